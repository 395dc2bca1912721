"""Writes files atomically: on a full disk the previous content stays, without any of the new content."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_whole(path: Path, text: str, *, replace: bool = True) -> None:
    """Write a text as UTF-8. Links are followed; pipes and devices are written directly. Raises OSError;
    FileExistsError if the path exists and must not be replaced."""
    if not replace and os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    with to_be(path.resolve()) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


@contextmanager
def to_be(path: Path) -> Iterator[Path]:
    """A temporary file that replaces `path` when the block ends without an error. Raises OSError."""
    unfinished = path.with_name(f".{path.name:.200}.{os.getpid()}.part")
    try:
        yield unfinished
        with unfinished.open("rb") as stream:
            os.fsync(stream.fileno())
        if path.exists():
            shutil.copymode(path, unfinished)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
