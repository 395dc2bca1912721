"""Store files: unused names, temporary files and files that are written atomically."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from orchestrator.errors import StoreError

JOURNALS = ("-journal", "-wal", "-shm")
"""Suffixes of the files that SQLite keeps beside a database in use and replays into any later file of that name."""

_UNFINISHED = ".tradewind-part"


def beside(path: Path, ending: str) -> Path:
    """`path` with `ending` appended to its name."""
    return path.with_name(path.name + ending)


def unused(path: Path) -> Path:
    """`path`, or the first of `path.2`, `path.3` and so on that does not exist."""
    candidate, number = path, 1
    while candidate.exists():
        number += 1
        candidate = beside(path, f".{number}")
    return candidate


def identity(path: Path) -> tuple[int, int] | None:
    """Device and inode, which distinguish the file from one that replaces it; None if it does not exist."""
    try:
        found = path.stat()
    except OSError:
        return None
    return _identity_of(found)


def _identity_of(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


@contextmanager
def temporary_file(path: Path) -> Iterator[Path]:
    """An empty file beside `path`, removed after the block unless the block moved it. Raises OSError.

    It is locked while its creator lives; files that killed processes left in the folder are removed first.
    """
    _remove_leftovers(path.parent)
    while True:
        made = beside(path, f".{secrets.token_hex(4)}{_UNFINISHED}")
        handle = os.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)  # job files may contain private data
        with suppress(OSError):  # on a file system without locks no other process removes it, either
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if identity(made) == _identity_of(os.fstat(handle)):
            break
        os.close(handle)  # another process removed it before it was locked
    try:
        yield made
    finally:
        for ending in (*JOURNALS, ""):
            beside(made, ending).unlink(missing_ok=True)
        os.close(handle)


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """An empty file to write to, which becomes `path` at the end of the block. Raises StoreError, also if `path`
    exists."""
    if path.exists():
        raise StoreError(f"{path} exists", hint="choose a new file name for the backup")
    if not path.parent.is_dir():
        raise StoreError(f"the backup {path} cannot be written: no such folder", hint="choose an existing folder")
    try:
        with temporary_file(path) as made:
            yield made
            sync(made)
            os.replace(made, path)
            sync(path.parent)
    except OSError as error:
        raise StoreError(
            f"the backup {path} cannot be written: {error.strerror}", hint="choose another folder"
        ) from error


def _remove_leftovers(folder: Path) -> None:
    for each in folder.glob(f"*{_UNFINISHED}"):
        with suppress(OSError):  # already removed, or owned by another user
            handle = os.open(each, os.O_RDWR)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while its creator lives
                for ending in (*JOURNALS, ""):
                    beside(each, ending).unlink(missing_ok=True)
            finally:
                os.close(handle)


def sync(path: Path) -> None:
    """Flushes a file's content, or a folder's entries, to the disk so that they survive a power failure. Raises
    OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
