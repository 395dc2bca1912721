"""Shared memory that a machine leaves behind: files in /dev/shm, which take up main memory until they are deleted.

Programs delete their own, but not when they are killed (NCCL, multiprocessing.shared_memory). A file belongs to a
machine if one of its processes has mapped or opened it; this is looked up while they are alive. It is deleted when no
process of this user uses it any more. Part of what the `static` provider sends to hosts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

FOLDER = "/dev/shm"


def used_by(pids: Iterable[int]) -> set[str]:
    """The names of the files in FOLDER that these processes have mapped or open."""
    found: set[str] = set()
    for pid in pids:
        with suppress(OSError):  # gone, or another user's
            for line in Path(f"/proc/{pid}/maps").read_bytes().splitlines():
                _, _, path = line.partition(FOLDER.encode() + b"/")
                found.add(os.fsdecode(path))
        with suppress(OSError):
            for descriptor in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    _, _, name = os.readlink(f"/proc/{pid}/fd/{descriptor}").partition(f"{FOLDER}/")
                    found.add(name)
    return {name for name in found if name and not name.endswith(" (deleted)")}


def remove(names: Iterable[str]) -> None:
    """Delete the files among these that belong to this user and that no process of this user uses any more."""
    left = {name for name in names if _is_ours(name)}
    if left:
        left -= used_by(int(pid) for pid in os.listdir("/proc") if pid.isdigit())
    for name in left:
        with suppress(OSError):
            os.unlink(f"{FOLDER}/{name}")


def _is_ours(name: str) -> bool:
    try:
        return os.lstat(f"{FOLDER}/{name}").st_uid == os.geteuid()
    except OSError:
        return False
