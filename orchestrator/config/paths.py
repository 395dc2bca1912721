"""Which texts can be paths at all, so that none reaches the file system that would fail there in a way of its own; and
files that are read without waiting for anybody."""

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
    """Why no file can have this path; empty if one can."""
    if not text:
        return "must not be empty"
    if "\0" in text:
        return "must have no NUL character"
    try:
        names = [len(os.fsencode(name)) for name in text.split("/")]
    except UnicodeEncodeError:
        return "must have no half of a character"
    if sum(names) + len(names) > LONGEST_PATH_BYTES:
        return f"must have at most {LONGEST_PATH_BYTES} bytes"
    if max(names) > LONGEST_NAME_BYTES:
        return f"must have at most {LONGEST_NAME_BYTES} bytes between two slashes"
    return ""


class NoFileError(OSError):
    """A pipe or a device, where only a file is read."""


@contextmanager
def opened_file(path: str | Path) -> Iterator[BinaryIO]:
    """A regular file, open for reading. Raises OSError; NoFileError for a device, and for a pipe without waiting."""
    with open(path, "rb", opener=_opened_at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise NoFileError(errno.EINVAL, "it is a pipe or a device", str(path))
        yield file


def _opened_at_once(path: str, flags: int) -> int:
    """Without waiting for somebody who writes to a pipe."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
