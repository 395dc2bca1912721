"""Files of a store: free names beside it, and files that appear whole or not at all. Must not know databases."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.errors import StoreError

JOURNALS = ("-wal", "-shm")
"""What SQLite keeps beside a file while it is in use."""


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
    return found.st_dev, found.st_ino


@contextmanager
def file_to_be(path: Path) -> Iterator[Path]:
    """A name to write to, which becomes `path` when the block is done. Raises StoreError, also when `path` exists."""
    if path.exists():
        raise StoreError(f"{path} exists", hint="name a new file for the backup")
    if not path.parent.is_dir():
        raise StoreError(f"the backup {path} cannot be written: no such folder", hint="name a file in another folder")
    unfinished = beside(path, f".{os.getpid()}.part")
    try:
        yield unfinished
        unfinished.chmod(0o600)  # job files hold what others must not read
        sync(unfinished)
        os.replace(unfinished, path)
        sync(path.parent)
    except OSError as error:
        raise StoreError(
            f"the backup {path} cannot be written: {error.strerror}", hint="name a file in another folder"
        ) from error
    finally:
        for ending in ("", "-journal", *JOURNALS):
            beside(unfinished, ending).unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Wait until a file's content, or the names in a folder, would survive the loss of power. Raises OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
