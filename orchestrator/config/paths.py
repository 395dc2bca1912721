"""Checks whether a text can be a path, before the file system reports an error that says less; finds broken links; and
opens files without waiting for another process."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

LONGEST_PATH_BYTES = 4095  # PATH_MAX of Linux, without its NUL
LONGEST_NAME_BYTES = 255  # NAME_MAX


def why_no_path(text: str) -> str:
    """Why no file can have this path; empty if a file can."""
    if not text:
        return "must not be empty"
    if "\0" in text:
        return "must not contain a NUL character"
    try:
        names = [len(os.fsencode(name)) for name in text.split("/")]
    except UnicodeEncodeError:
        return "must not contain an unpaired surrogate"
    if sum(names) + len(names) > LONGEST_PATH_BYTES:
        return f"must be at most {LONGEST_PATH_BYTES} bytes long"
    if max(names) > LONGEST_NAME_BYTES:
        return f"must have at most {LONGEST_NAME_BYTES} bytes between two slashes"
    return ""


def broken_link(path: Path) -> Path | None:
    """The link on the way to `path`, or at its end, whose target does not exist; None without one."""
    return next((each for each in (path, *path.parents) if each.is_symlink() and not each.exists()), None)


def why_not_created(path: Path, error: OSError) -> str:
    """Why `path` could not be created. For a broken link the system says only that the file exists."""
    link = broken_link(path)
    return f"{link} is a broken link to {os.readlink(link)}" if link is not None else error.strerror or str(error)


class NoFileError(OSError):
    """The path is a pipe or a device, not a regular file."""


@contextmanager
def opened_file(path: str | Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading. Raises OSError; NoFileError for a device or a pipe, without waiting."""
    with open(path, "rb", opener=_opened_at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise NoFileError(errno.EINVAL, "it is a pipe or a device", str(path))
        yield file


def _opened_at_once(path: str, flags: int) -> int:
    """Open a path; do not wait for a pipe to have a writer."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
