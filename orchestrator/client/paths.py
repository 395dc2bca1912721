"""Checks the paths that a caller of the SDK gives, before they are used with the file system."""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.config.paths import why_no_path
from orchestrator.errors import UsageError


def path_of(given: str | os.PathLike[str]) -> Path:
    """The path. Raises UsageError for another type, and if no file can have this path."""
    text = os.fspath(given) if isinstance(given, os.PathLike) else given
    if not isinstance(text, str):
        raise UsageError(f"a {type(given).__name__} is not a path", hint="give a str or a pathlib.Path")
    if wrong := why_no_path(text):
        raise UsageError(f"the path {text[:40]!a} {wrong}", hint="give another path")
    return Path(text)
