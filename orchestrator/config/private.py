"""Private files: folders that only their owner may enter (0700), and files that only their owner may read (0600).

The permissions do not depend on the caller's umask.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from orchestrator.errors import StoreError

PRIVATE_UMASK = 0o077
"""For processes that work in the state folder and write nothing for other users."""


MARK = ".tradewind-private"
"""A file in each folder that Tradewind made private. A folder with a user's own files is never restricted."""

_SIGNS = (MARK, "tradewind.db", "clock.json", "control-plane.log", "head.lock", "session_latest")
"""Any of these names shows that a folder is a state folder, a site's folder, or a site's Ray folder, also of an older
version. People do not give these names to their own files."""


def private_folder(path: Path) -> None:
    """Create `path` and missing parents, or restrict an existing folder of Tradewind to its owner.

    The content is restricted as well; a folder from an older version needs this once. Raises OSError. Raises StoreError
    for a folder of another user, who could read and replace everything in it, and for a folder with other files, whose
    permissions must not change.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    owner = path.stat().st_uid
    if owner != os.geteuid():
        raise StoreError(
            f"the folder {path} belongs to another user (uid {owner}), not to the current user (uid {os.geteuid()})",
            hint="run as its owner, or set state_dir or site.temp_dir to a folder of your own",
        )
    if not _is_ours(path):
        raise StoreError(
            f"the folder {path} contains files that do not belong to Tradewind",
            hint="set state_dir or site.temp_dir to a new or an empty folder",
        )
    if path.stat().st_mode & 0o777 != 0o700:
        path.chmod(0o700)  # first: from now on, no other user can reach the content
    _close(path)
    write_privately(path / MARK, "")


def _is_ours(path: Path) -> bool:
    """Whether the folder is empty, or a file in it shows that Tradewind uses it."""
    names = set(os.listdir(path)) - {"lost+found"}
    return not names or any(sign in names for sign in _SIGNS)


def append_privately(path: Path) -> BinaryIO:
    """Open `path` for appending; a new file is private. Raises OSError."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "ab")


def write_privately(path: Path, text: str) -> None:
    """Overwrite `path`; a new file is private. Raises OSError."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(text)


def _close(folder: Path) -> None:
    """Restrict the content of `folder`, each folder after its content, so that a restricted one can be skipped.

    Links and other users' files stay unchanged: the enclosing folder keeps all other users out.
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
            except FileNotFoundError:  # a running job may delete its files at the same time
                continue
            if not entry.is_symlink() and found.st_uid == os.geteuid():
                yield entry, found.st_mode & 0o777


def _chmod(path: str, mode: int) -> None:
    try:
        os.chmod(path, mode)
    except FileNotFoundError:  # as above
        return
