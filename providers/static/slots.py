"""The slots of a host: how many machines run there at a time, over all users and installations.

A slot is a file that all users of the host share; the holder of its lock has the slot. Part of what the `static`
provider sends to hosts.
"""

from __future__ import annotations

import fcntl
import os
import struct
from contextlib import suppress
from pathlib import Path

SLOTS = Path("/var/tmp/tradewind-slots")
_LOCK = "hhqqi4x"  # struct flock


class Refused(Exception):
    """The request is not carried out. `kind` tells the caller which error to raise."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def _slot_file(slot: int) -> int:
    """A file that all users of this host may lock. Raises Refused."""
    path = SLOTS / str(slot)
    try:
        with suppress(FileExistsError):
            SLOTS.mkdir()
            SLOTS.chmod(0o1777)
        with suppress(FileNotFoundError):
            return os.open(path, os.O_RDWR)
        with suppress(FileExistsError):
            made = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            os.fchmod(made, 0o666)
            return made
        return os.open(path, os.O_RDWR)
    except OSError as error:
        raise Refused("slots", f"the lock {path} of a slot cannot be opened: {error.strerror}") from error


def take_slots(slots: int, count: int) -> dict[int, int]:
    """The locks of `count` free slots by number; a lock is held as long as any process has it open. Raises Refused."""
    taken: dict[int, int] = {}
    for slot in range(slots):
        if len(taken) == count:
            break
        lock = _slot_file(slot)
        try:
            fcntl.fcntl(lock, fcntl.F_OFD_SETLK, struct.pack(_LOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
            taken[slot] = lock
        except OSError:
            os.close(lock)
    if len(taken) < count:
        for lock in taken.values():
            os.close(lock)
        raise Refused("capacity", f"{len(taken)} of {slots} slots are free")
    return taken


def free_slots(slots: int) -> list[int]:
    """The numbers of the free slots. Raises Refused."""
    free = []
    for slot in range(slots):
        lock = _slot_file(slot)
        try:
            asked = struct.pack(_LOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            if struct.unpack(_LOCK, fcntl.fcntl(lock, fcntl.F_OFD_GETLK, asked))[0] == fcntl.F_UNLCK:
                free.append(slot)
        finally:
            os.close(lock)
    return free
