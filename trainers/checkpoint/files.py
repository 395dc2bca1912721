"""Durable, atomic creation of files in a checkpoint folder, and the names of what can go wrong there.

What is made is as open to other users as the folder it is made in, whatever the umask of the process: below the state
folder, which is closed, nobody else reads a checkpoint; below a place that the user chose, whoever that place admits.

Must not know: what the files mean. Needs hard links (create-if-absent with whole content), as POSIX has them.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from trainers.errors import CheckpointFull, CheckpointReadOnly

Bytes: TypeAlias = bytes | bytearray | memoryview

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST}


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Turn the operating system's refusal to write below `path` into CheckpointFull or CheckpointReadOnly."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise CheckpointFull(
                f"cannot write the checkpoint: {error.strerror}: {path}",
                hint="free space there, lower checkpoint.keep, or point checkpoint.to at a larger place",
            ) from error
        if error.errno in _READ_ONLY:
            raise CheckpointReadOnly(
                f"cannot write the checkpoint: {error.strerror}: {path}",
                hint="make it a folder that this user may write, or point checkpoint.to at one",
            ) from error
        raise


def create(path: Path, data: Bytes) -> bool:
    """Create `path` with `data`, on stable storage, all or nothing; False (and no change) when it exists.

    The folder itself is not synced: callers create several files and then call `sync_folder` once.
    """
    temporary = _written(path, data)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    return True


def replace(path: Path, data: Bytes) -> None:
    """Put `data` at `path` whatever is there now, on stable storage, all or nothing."""
    os.replace(_written(path, data), path)


def make_folder(path: Path) -> None:
    """Make `path`, and the folders above it that are missing, each as open as the one it lies in. Raises OSError."""
    if path.is_dir():
        return
    make_folder(path.parent)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:  # another process was faster; or a file is in its place, which the next write tells
        return
    path.chmod(_openness(path.parent))


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` survive a power loss."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _written(path: Path, data: Bytes) -> Path:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.fchmod(handle, _openness(path.parent) & 0o666)
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        os.fsync(handle)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    finally:
        os.close(handle)
    return temporary


def _openness(folder: Path) -> int:
    """The permissions of what is made in `folder`. One that all may write, such as /tmp, lends that to nothing in it,
    and not to its group either."""
    mode = folder.stat().st_mode
    return (mode & 0o775) if not mode & 0o002 else (mode & 0o755)
