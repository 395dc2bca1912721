"""FolderStore: an object store in a folder of this machine; each object is a file.

Files are created completely or not at all: they are written under a temporary name, ".NAME.<12 hex digits>", and then
linked (only if absent) or renamed (replacing the target). Other processes may delete files at any time; a temporary
file that was removed is written again. put_if_match compares and renames while it holds a lock (flock) on the file that
it replaces. A file is never changed in place, so the process that locks the file with the current name is alone; no
separate lock file is needed, and the kernel releases the lock when its holder dies. A paused holder delays others by at
most LOCK_S.

New files are as accessible to other users as their folder, regardless of the umask: below the private state folder, no
other user can read an object; in a location that the user chose, access follows that location.

Needs hard links with POSIX semantics.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import BinaryIO, Literal, TypeAlias

from trainers.errors import (
    ObjectStoreError,
    StoreDenied,
    StoreFull,
    StoreNotFound,
    StoreReadOnly,
    StoreUnavailable,
    UnreadableObject,
)
from trainers.objects.base import Bytes, Found, Listed, checked_key, is_key

Operation: TypeAlias = Literal["write", "link", "replace", "read", "list", "status", "delete", "sync"]

LOCK_POLL_S = 0.02
LOCK_S = 5.0
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_READ_ONLY = {
    *(errno.EROFS, errno.EACCES, errno.EPERM),
    *(errno.ENOTDIR, errno.EEXIST, errno.ENOENT, errno.EISDIR, errno.ENOTEMPTY),
}
_DENIED = {errno.EACCES, errno.EPERM}
_TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{12}")
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


class FolderStore:
    """ObjectStore in `root`, which is created when it is needed."""

    poll_s = 0.02
    remote = False

    def __init__(self, root: str | Path, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._root = os.path.abspath(root)
        self._sleep = sleep

    @property
    def url(self) -> str:
        """The folder's path."""
        return self._root

    @property
    def root(self) -> Path:
        """The folder."""
        return Path(self._root)

    def where(self, key: str) -> str:
        """The file's path."""
        return self._path(key)

    def child(self, prefix: str) -> FolderStore:
        """The store in a folder below this one."""
        return FolderStore(self._path(prefix), sleep=self._sleep)

    # Reading

    def get(self, key: str, most_bytes: int) -> Found | None:
        """See ObjectStore.get. Raises UnreadableObject if it is not a regular file: reading a pipe would block."""
        path = self._path(key)
        with _opened(path) as file:
            if file is None:
                return None
            size_bytes = os.fstat(file.fileno()).st_size
            if size_bytes > most_bytes:
                raise UnreadableObject(f"{path} has {size_bytes} bytes; the limit is {most_bytes}", hint=_AWAY)
            return Found(file.read(most_bytes))

    def get_range(self, key: str, begin: int, end: int) -> bytes | None:
        """See ObjectStore.get_range."""
        with _opened(self._path(key)) as file:
            if file is None:
                return None
            file.seek(begin)
            return file.read(max(end - begin, 0))

    def head(self, key: str) -> Listed | None:
        """See ObjectStore.head."""
        path = self._path(key)
        try:
            _announce("status", path)
            found = os.stat(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unreadable(path, error) from error
        return None if stat.S_ISDIR(found.st_mode) else _listed(key, found)

    def keys(self, prefix: str = "") -> list[str]:
        """See ObjectStore.keys. Special files are listed too; reading them is an error."""
        return [key for key, _ in _below(self._folder(prefix), f"{prefix}/" if prefix else "")]

    def list(self, prefix: str = "") -> list[Listed]:
        """See ObjectStore.list."""
        found = []
        for key, entry in _below(self._folder(prefix), f"{prefix}/" if prefix else ""):
            try:
                found.append(_listed(key, entry.stat()))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise _unreadable(entry.path, error) from error
        return found

    # Writing

    def put(self, key: str, data: Bytes) -> None:
        """See ObjectStore.put."""
        path = self._path(key)
        try:
            _put(path, lambda handle: _write(handle, data))
        except OSError as error:
            raise _unwritable(path, error) from error

    def put_file(self, key: str, file: BinaryIO) -> None:
        """See ObjectStore.put_file."""
        path, begin = self._path(key), file.tell()
        try:
            _put(path, lambda handle: _copy(file, begin, handle))
        except OSError as error:
            raise _unwritable(path, error) from error

    def put_if_absent(self, key: str, data: Bytes) -> bool:
        """See ObjectStore.put_if_absent."""
        path = self._path(key)
        try:
            while True:
                temporary = _written(path, lambda handle: _write(handle, data))
                try:
                    _announce("link", path)
                    os.link(temporary, path)
                except FileExistsError:
                    return False
                except FileNotFoundError:
                    continue  # the temporary file was deleted
                finally:
                    _delete(temporary)
                return True
        except OSError as error:
            raise _unwritable(path, error) from error

    def put_if_match(self, key: str, data: Bytes, version: str) -> str | None:
        """See ObjectStore.put_if_match."""
        path = self._path(key)
        try:
            while True:
                temporary = _written(path, lambda handle: _write(handle, data))
                try:
                    _announce("replace", path)
                    with _locked(path, self._sleep) as present:
                        if present is None or Found(present).version != version:
                            return None
                        os.replace(temporary, path)
                except FileNotFoundError:
                    continue  # the temporary file was deleted
                finally:
                    _delete(temporary)
                return Found(bytes(data)).version
        except OSError as error:
            raise _unwritable(path, error) from error

    def copy(self, source: str, target: str) -> bool:
        """See ObjectStore.copy."""
        onto = self._path(target)
        with _opened(self._path(source)) as file:
            if file is None:
                return False
            try:
                _put(onto, lambda handle: _copy(file, 0, handle))
            except OSError as error:
                raise _unwritable(onto, error) from error
            return True

    def delete(self, *keys: str) -> None:
        """See ObjectStore.delete."""
        for path in [self._path(key) for key in keys]:
            try:
                _delete(path)
            except OSError as error:
                raise _unwritable(path, error) from error

    def prepare(self, *prefixes: str) -> None:
        """See ObjectStore.prepare. Creates the folders, on stable storage."""
        folder = self._root
        try:
            for folder in [self._folder(prefix) for prefix in prefixes] or [self._root]:
                _make_folder(folder)
            _delete(_written(f"{folder}/probe", lambda handle: _write(handle, b"probe")))
        except OSError as error:
            raise _unwritable(folder, error) from error

    def settle(self, prefix: str) -> None:
        """See ObjectStore.settle."""
        folder = self._folder(prefix)
        try:
            _sync_folder(folder)
        except OSError as error:
            raise _unwritable(folder, error) from error

    def sweep(self, prefix: str, dead: Callable[[str], bool]) -> None:
        """See ObjectStore.sweep."""
        folder = self._folder(prefix)
        try:
            for name in _hidden(folder):
                temporary = _TEMPORARY.fullmatch(name)
                if temporary is not None and dead(f"{prefix}/{temporary[1]}" if prefix else temporary[1]):
                    _delete(f"{folder}/{name}")
        except OSError as error:
            raise _unwritable(folder, error) from error

    def _path(self, key: str) -> str:
        return f"{self._root}/{checked_key(key)}"

    def _folder(self, prefix: str) -> str:
        return self._path(prefix) if prefix else self._root


# Errors

_AWAY = "move it away"


def _unreadable(path: str, error: OSError) -> ObjectStoreError:
    what = f"{path}: {error.strerror}"
    if error.errno in _DENIED:
        return StoreDenied(what, hint="make it readable for this user")
    if error.errno == errno.ENOTDIR:
        return StoreNotFound(what, hint="use a folder, not a file")
    return _unusable(path, error)


def _unwritable(path: str, error: OSError) -> ObjectStoreError:
    what = f"{path}: {error.strerror}"
    if error.errno in _FULL:
        return StoreFull(what, hint="free space there, or use a larger disk")
    if error.errno in _READ_ONLY:
        return StoreReadOnly(what, hint="make the folder writable for this user, or use another one")
    return _unusable(path, error)


def _unusable(path: str, error: OSError) -> ObjectStoreError:
    if error.errno == errno.ELOOP:
        return UnreadableObject(f"{path}: a symbolic link leads to itself", hint="remove the link")
    return StoreUnavailable(f"{path}: {error.strerror}", hint="check the disk or network drive, then try again")


# Reading


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO | None]:
    """The file, open for reading; None if it is missing. Opening a pipe does not block. Raises our errors."""
    try:
        _announce("read", path)
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    except OSError as error:
        raise _unreadable(path, error) from error
    try:
        _require_regular(file, path)
        with open(file, "rb", buffering=0, closefd=False) as stream:
            yield stream
    except OSError as error:
        raise _unreadable(path, error) from error
    finally:
        os.close(file)


def _require_regular(file: int, path: str) -> os.stat_result:
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode):
        raise UnreadableObject(f"{path} is not a regular file", hint=_AWAY)
    return found


def _below(folder: str, prefix: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """The key and entry of each file at any depth. Raises our errors."""
    try:
        _announce("list", folder)
        with os.scandir(folder) as found:
            entries = [(each, each.is_dir()) for each in found if is_key(prefix + each.name)]
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unreadable(error.filename or folder, error) from error
    for entry, is_folder in entries:
        if is_folder:
            yield from _below(entry.path, f"{prefix}{entry.name}/")
        else:
            yield prefix + entry.name, entry


def _listed(key: str, found: os.stat_result) -> Listed:
    return Listed(key, found.st_size, found.st_mtime_ns // 1_000_000)


# Writing; all of these raise OSError


@contextmanager
def _locked(path: str, sleep: Callable[[float], None]) -> Iterator[bytes | None]:
    """The content of a file, locked against other processes in this block; None if there is no file.

    Raises StoreUnavailable if another process holds the lock for LOCK_S.
    """
    waited_s = 0.0
    while True:
        try:
            file = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            yield None
            return
        try:
            found = _require_regular(file, path)
            if not _lock(file):
                if waited_s >= LOCK_S:
                    what = f"another process has been changing {path} for {LOCK_S:g} s"
                    raise StoreUnavailable(what, hint="check whether that process is paused")
                sleep(LOCK_POLL_S)
                waited_s += LOCK_POLL_S
            elif _is_at(path, found):
                with open(file, "rb", closefd=False) as stream:
                    yield stream.read()
                return
        finally:
            os.close(file)


def _lock(file: int) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _is_at(path: str, file: os.stat_result) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.stat(path), file)
    return False


def _put(path: str, write: Callable[[int], None]) -> None:
    while True:
        temporary = _written(path, write)
        _announce("replace", path)
        try:
            os.replace(temporary, path)
        except FileNotFoundError:
            continue
        except IsADirectoryError:  # keys below it were deleted
            _delete(temporary)
            _remove_empty(path)
            continue
        return


def _remove_empty(path: str) -> None:
    """Remove a folder that contains only folders. Raises OSError if there is anything else."""
    for folder, _, _ in os.walk(path, topdown=False):
        with suppress(FileNotFoundError):
            os.rmdir(folder)


def _written(path: str, write: Callable[[int], None]) -> str:
    """A temporary file next to `path`, on stable storage. The folder is created if it is missing."""
    folder, _, name = path.rpartition("/")
    temporary = f"{folder}/.{name}.{secrets.token_hex(6)}"
    _announce("write", temporary)
    try:
        handle = _create(temporary)
    except FileNotFoundError:
        _make_folder(folder)
        handle = _create(temporary)
    try:
        os.fchmod(handle, _openness(folder) & 0o666)
        write(handle)
        _announce("sync", temporary)
        os.fsync(handle)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    finally:
        os.close(handle)
    return temporary


def _create(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


def _write(handle: int, data: Bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def _copy(file: BinaryIO, begin: int, handle: int) -> None:
    file.seek(begin)
    with open(handle, "wb", closefd=False) as copy:
        shutil.copyfileobj(file, copy, 2**20)


def _delete(path: str) -> None:
    _announce("delete", path)
    with suppress(FileNotFoundError):
        os.unlink(path)


def _make_folder(path: str) -> None:
    """Create `path` and missing parent folders on stable storage, each with the access rights of its parent."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    _make_folder(parent)
    try:
        os.mkdir(path, mode=0o700)
    except FileExistsError:  # another process created it; or it is a file, and the next write fails
        return
    os.chmod(path, _openness(parent))
    _sync_folder(parent)


def _sync_folder(folder: str) -> None:
    _announce("sync", folder)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _openness(folder: str) -> int:
    """The permissions for new files in `folder`. A world-writable folder, such as /tmp, passes on neither world nor
    group write permission.
    """
    mode = os.stat(folder).st_mode
    return (mode & 0o775) if not mode & 0o002 else (mode & 0o755)


def _hidden(folder: str) -> list[str]:
    """The names in a folder that start with a dot."""
    _announce("list", folder)
    with suppress(FileNotFoundError):
        return [name for name in os.listdir(folder) if name.startswith(".")]
    return []


def _announce(operation: Operation, path: str) -> None:
    if (before := _before.get()) is not None:
        before(operation, Path(path))
