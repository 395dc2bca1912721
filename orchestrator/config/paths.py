"""Which texts can be paths at all, so that none reaches the file system that would fail there in a way of its own."""

from __future__ import annotations

import os

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
