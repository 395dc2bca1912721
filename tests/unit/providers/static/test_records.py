"""What a host keeps of its machines, on a disk without room."""

from __future__ import annotations

from pathlib import Path

import pytest

from providers.static import on_host
from tests.disks import mounted


@pytest.mark.parametrize("durable", [False, True])
def test_a_record_that_does_not_fit_leaves_the_one_before_and_nothing_else(tmp_path: Path, durable: bool) -> None:
    with mounted(tmp_path, "size=8k") as disk:
        record = disk / "beat"
        on_host._replace(record, "before")
        (disk / "junk").write_bytes(b"x" * 4096)
        with pytest.raises(OSError, match="No space left"):
            on_host._replace(record, "after", durable=durable)
        assert sorted(each.name for each in disk.iterdir()) == ["beat", "junk"]
        assert record.read_text() == "before"
