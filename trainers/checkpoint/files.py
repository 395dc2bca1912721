"""All file operations on a checkpoint folder, and their errors.

Files are created completely or not at all. Other processes may delete files at any time, so a missing file is not an
error: reading returns None, listing omits it, and a temporary file that was removed is written again.

New files are as accessible to other users as their folder, regardless of the umask: below the private state folder
nobody else can read a checkpoint; in a location that the user chose, access follows that location.

Needs hard links with POSIX semantics (create-if-absent with complete content).
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Literal, TypeAlias

from trainers.errors import CheckpointFull, CheckpointReadOnly, DamagedCheckpoint

Bytes: TypeAlias = bytes | bytearray | memoryview
Operation: TypeAlias = Literal["write", "link", "replace", "read", "list", "status", "delete", "sync"]

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST, errno.ENOENT}
_before: ContextVar[Callable[[Operation, Path], object] | None] = ContextVar("before", default=None)


@contextmanager
def announced(to: Callable[[Operation, Path], object]) -> Iterator[None]:
    """Call `to` before each file operation in this block (and thread). An exception from it ends the operation.

    For tests that pause or kill a writer at any point.
    """
    token = _before.set(to)
    try:
        yield
    finally:
        _before.reset(token)


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Convert the operating system's refusal to write below `path` to CheckpointFull or CheckpointReadOnly."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise CheckpointFull(
                f"cannot write the checkpoint: {error.strerror}: {path}",
                hint="free space there, lower checkpoint.keep, or point checkpoint.to at a larger disk",
            ) from error
        if error.errno in _READ_ONLY:
            raise CheckpointReadOnly(
                f"cannot write the checkpoint: {error.strerror}: {path}",
                hint="make the folder writable for this user, or point checkpoint.to at another one",
            ) from error
        raise


# Writing


def create(path: Path, data: Bytes) -> bool:
    """Create `path` with `data`, atomically and on stable storage; False (and no change) if it exists.

    The folder is not synced: callers create several files and then call `sync_folder` once. Raises OSError.
    """
    while True:
        temporary = _written(path, data)
        try:
            _announce("link", path)
            os.link(temporary, path)
        except FileExistsError:
            return False
        except FileNotFoundError:
            continue  # the temporary file was deleted: write it again (fails there if the folder is missing)
        finally:
            delete(temporary)
        return True


def replace(path: Path, data: Bytes) -> None:
    """Write `data` to `path` atomically and on stable storage, whatever is there now. Raises OSError."""
    while True:
        temporary = _written(path, data)
        _announce("replace", path)
        with suppress(FileNotFoundError):
            os.replace(temporary, path)
            return


def delete(path: Path) -> None:
    """Delete a file if it exists. Raises OSError."""
    _announce("delete", path)
    path.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Create `path` and missing parent folders, each with the access rights of its parent. Raises OSError."""
    if path.is_dir():
        return
    make_folder(path.parent)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:  # another process created it; or it is a file, and the next write fails
        return
    path.chmod(_openness(path.parent))


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` survive a power loss. Raises OSError."""
    _announce("sync", folder)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def prove_writable(folder: Path) -> None:
    """Raises OSError if no file can be created in `folder`."""
    delete(_written(folder / "probe", b"probe"))


# Reading


def read(path: Path, most_bytes: int, *, hint: str = "move it away") -> bytes | None:
    """The content of a file; None if there is none.

    Raises DamagedCheckpoint with `hint` if it has more than `most_bytes` or is not a regular file (reading a pipe would
    block). Raises OSError.
    """
    _announce("read", path)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise DamagedCheckpoint(f"{path} is not a regular file", hint=hint)
        if found.st_size > most_bytes:
            raise DamagedCheckpoint(f"{path} has {found.st_size} bytes; the limit is {most_bytes}", hint=hint)
        with open(handle, "rb", closefd=False) as file:
            return file.read(most_bytes)
    finally:
        os.close(handle)


def listing(folder: Path) -> list[str]:
    """The names in a folder, in no particular order; empty if there is no folder. Raises OSError."""
    _announce("list", folder)
    with suppress(FileNotFoundError):
        return os.listdir(folder)
    return []


def status(path: Path) -> os.stat_result | None:
    """The file's metadata; None if there is no file. Raises OSError."""
    _announce("status", path)
    with suppress(FileNotFoundError):
        return path.stat()
    return None


def _written(path: Path, data: Bytes) -> Path:
    """A temporary file next to `path`. Its name starts with a dot and the name of `path`."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    _announce("write", temporary)
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
    """The permissions for new files in `folder`. A world-writable folder, such as /tmp, passes on neither world nor
    group write permission.
    """
    mode = folder.stat().st_mode
    return (mode & 0o775) if not mode & 0o002 else (mode & 0o755)


def _announce(operation: Operation, path: Path) -> None:
    if (before := _before.get()) is not None:
        before(operation, path)
