"""Files of a store: free names beside it, and files that appear whole or not at all."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from orchestrator.errors import StoreError

JOURNALS = ("-journal", "-wal", "-shm")
"""What SQLite keeps beside a file while it is in use, and plays back into whatever file has its name later."""

_UNFINISHED = ".tradewind-part"


def beside(path: Path, ending: str) -> Path:
    """`path` with something added to its name."""
    return path.with_name(path.name + ending)


def unused(path: Path) -> Path:
    """`path`, or the first of `path.2`, `path.3` and so on that does not exist."""
    candidate, number = path, 1
    while candidate.exists():
        number += 1
        candidate = beside(path, f".{number}")
    return candidate


def identity(path: Path) -> tuple[int, int] | None:
    """Tells the file from any other that takes its place; None when there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return _identity_of(found)


def _identity_of(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


@contextmanager
def unfinished(path: Path) -> Iterator[Path]:
    """An empty file beside `path` for the time of the block, which may move it away. Raises OSError.

    It is locked as long as its maker lives: what makers that were killed have left in the folder is removed first.
    """
    _remove_leftovers(path.parent)
    while True:
        made = beside(path, f".{secrets.token_hex(4)}{_UNFINISHED}")
        handle = os.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)  # job files hold what others must not read
        with suppress(OSError):  # a file system without locks: nobody can take it for left over there, either
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if identity(made) == _identity_of(os.fstat(handle)):
            break
        os.close(handle)  # somebody removed it before it was locked
    try:
        yield made
    finally:
        for ending in (*JOURNALS, ""):
            beside(made, ending).unlink(missing_ok=True)
        os.close(handle)


@contextmanager
def file_to_be(path: Path) -> Iterator[Path]:
    """An empty file to write to, which becomes `path` when the block is done. Raises StoreError, also when `path`
    exists."""
    if path.exists():
        raise StoreError(f"{path} exists", hint="name a new file for the backup")
    if not path.parent.is_dir():
        raise StoreError(f"the backup {path} cannot be written: no such folder", hint="name a file in another folder")
    try:
        with unfinished(path) as made:
            yield made
            sync(made)
            os.replace(made, path)
            sync(path.parent)
    except OSError as error:
        raise StoreError(
            f"the backup {path} cannot be written: {error.strerror}", hint="name a file in another folder"
        ) from error


def _remove_leftovers(folder: Path) -> None:
    for each in folder.glob(f"*{_UNFINISHED}"):
        with suppress(OSError):  # gone meanwhile, or not ours
            handle = os.open(each, os.O_RDWR)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while its maker lives
                for ending in (*JOURNALS, ""):
                    beside(each, ending).unlink(missing_ok=True)
            finally:
                os.close(handle)


def sync(path: Path) -> None:
    """Wait until a file's content, or the names in a folder, would survive the loss of power. Raises OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
