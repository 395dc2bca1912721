"""Private files: folders that only their owner may enter (0700), files that only their owner may read (0600).

The permissions do not depend on the umask of whoever runs a command.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from orchestrator.errors import StoreError

PRIVATE_UMASK = 0o077
"""For processes that work in the state folder and write nothing for anybody else."""


def private_folder(path: Path) -> None:
    """Make `path`, and the folders above it that are missing, or close an existing one to all but its owner.

    What lies in it is closed as well, which a folder of an older version needs once. Raises OSError, and StoreError
    for a folder of another user, who could read and replace everything in it.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    owner = path.stat().st_uid
    if owner != os.geteuid():
        raise StoreError(
            f"the folder {path} belongs to another user (uid {owner}), not to this one (uid {os.geteuid()})",
            hint="run as its owner, or configure a folder of your own (state_dir, site.temp_dir)",
        )
    if path.stat().st_mode & 0o777 != 0o700:
        path.chmod(0o700)  # first: whatever is in it is out of reach from here on
    _close(path)


def append_privately(path: Path) -> BinaryIO:
    """`path` for appending, made private if it is new. Raises OSError."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "ab")


def write_privately(path: Path, text: str) -> None:
    """Write `path` anew, made private if it is new. Raises OSError."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(text)


def _close(folder: Path) -> None:
    """Close what is in `folder`, each folder after its content: one that is closed needs not be looked through.

    Links and what belongs to others are left alone: the folder around them keeps everybody out.
    """
    for entry, mode in _own(folder):
        if entry.is_dir() and mode & 0o077:
            _close(Path(entry.path))
        if mode & 0o077:
            _chmod(entry.path, mode & 0o700)


def _own(folder: Path) -> Iterator[tuple[os.DirEntry[str], int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                found = entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # a run at work deletes what it wrote a moment ago
                continue
            if not entry.is_symlink() and found.st_uid == os.geteuid():
                yield entry, found.st_mode & 0o777


def _chmod(path: str, mode: int) -> None:
    try:
        os.chmod(path, mode)
    except FileNotFoundError:  # as above
        return
