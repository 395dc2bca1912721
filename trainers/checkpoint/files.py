"""Every file operation on a checkpoint folder, and the names of what can go wrong there.

What is created appears whole or not at all. Other processes delete files at any time, so a file that has vanished is
no error here: reading gives None, listing leaves it out, and a temporary file that somebody removed is written again.

What is made is as open to other users as the folder it is made in, whatever the umask of the process: below the state
folder, which is closed, nobody else reads a checkpoint; below a place that the user chose, whoever that place admits.

Needs hard links (create-if-absent with whole content), as POSIX has them.
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
    """Call `to` before each file operation inside this block (and thread). What it raises ends the operation.

    For those who prove that a writer may pause or die anywhere.
    """
    token = _before.set(to)
    try:
        yield
    finally:
        _before.reset(token)


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


# Writing


def create(path: Path, data: Bytes) -> bool:
    """Create `path` with `data`, on stable storage, all or nothing; False (and no change) when it exists.

    The folder itself is not synced: callers create several files and then call `sync_folder` once.
    """
    while True:
        temporary = _written(path, data)
        try:
            _announce("link", path)
            os.link(temporary, path)
        except FileExistsError:
            return False
        except FileNotFoundError:
            continue  # somebody deleted the temporary file: write it again (a missing folder ends this there)
        finally:
            delete(temporary)
        return True


def replace(path: Path, data: Bytes) -> None:
    """Put `data` at `path` whatever is there now, on stable storage, all or nothing."""
    while True:
        temporary = _written(path, data)
        _announce("replace", path)
        with suppress(FileNotFoundError):
            os.replace(temporary, path)
            return


def delete(path: Path) -> None:
    """Delete a file, if it is there."""
    _announce("delete", path)
    path.unlink(missing_ok=True)


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
    _announce("sync", folder)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def prove_writable(folder: Path) -> None:
    """Raises OSError when no file can be made in `folder`."""
    delete(_written(folder / "probe", b"probe"))


# Reading


def read(path: Path, most_bytes: int, *, hint: str = "move it away") -> bytes | None:
    """The content of a file; None when there is none.

    Raises DamagedCheckpoint, whose remedy is `hint`, for more than `most_bytes`, and for what is no plain file (a pipe
    would be waited for).
    """
    _announce("read", path)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise DamagedCheckpoint(f"{path} is not a plain file", hint=hint)
        if found.st_size > most_bytes:
            raise DamagedCheckpoint(f"{path} has {found.st_size} bytes, far too many for what it is", hint=hint)
        with open(handle, "rb", closefd=False) as file:
            return file.read(most_bytes)
    finally:
        os.close(handle)


def listing(folder: Path) -> list[str]:
    """The names in a folder, in no order; none when there is no folder."""
    _announce("list", folder)
    with suppress(FileNotFoundError):
        return os.listdir(folder)
    return []


def status(path: Path) -> os.stat_result | None:
    """What the file system knows of a file; None when there is none."""
    _announce("status", path)
    with suppress(FileNotFoundError):
        return path.stat()
    return None


def _written(path: Path, data: Bytes) -> Path:
    """A temporary file beside `path`. Its name begins with a dot and the name of `path`."""
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
    """The permissions of what is made in `folder`. One that all may write, such as /tmp, lends that to nothing in it,
    and not to its group either."""
    mode = folder.stat().st_mode
    return (mode & 0o775) if not mode & 0o002 else (mode & 0o755)


def _announce(operation: Operation, path: Path) -> None:
    if (before := _before.get()) is not None:
        before(operation, path)
