"""The slots of a host: a file for each, which all users lock."""

from __future__ import annotations

import os
from pathlib import Path

from providers.static import on_host


def test_the_file_of_a_slot_that_is_held_never_looks_unused(tmp_path: Path) -> None:
    """systemd-tmpfiles deletes what was not used in /var/tmp for 30 days; another machine could then take the slot."""
    slot = tmp_path / "0"
    slot.touch()
    os.utime(slot, (0, 0))
    lock = os.open(slot, os.O_RDWR)
    on_host._beat(tmp_path, lock)
    os.close(lock)
    assert slot.stat().st_mtime > 0
