"""Durable, atomic creation of files in a checkpoint folder, and the names of what can go wrong there.

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


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` survive a power loss."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _written(path: Path, data: Bytes) -> Path:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
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
