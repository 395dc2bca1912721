"""FolderStore: an object store in a folder of this machine; each object is a file.

Files are created completely or not at all: they are written under a temporary name, ".NAME.<12 hex digits>", and then
linked (if absent) or renamed (whatever is there). Other processes may delete files at any time; a temporary file that
was removed is written again. put_if_match compares and renames while it holds a lock (flock) on the file that it
replaces: a file is never changed in place, so whoever locks the file that still has the name is alone, the lock needs
no file of its own, and the kernel releases it when its holder dies. A holder that is paused delays others by LOCK_S at
most.

New files are as accessible to other users as their folder, regardless of the umask: below the private state folder
nobody else can read an object; in a location that the user chose, access follows that location.

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
from typing import Literal, TypeAlias

from trainers.errors import (
    ObjectStoreError,
    StoreDenied,
    StoreFull,
    StoreNotFound,
    StoreReadOnly,
    StoreUnavailable,
    UnreadableObject,
)
from trainers.objects.base import Bytes, Found, Listed, checked_key, checked_prefix, is_key

Operation: TypeAlias = Literal["write", "link", "replace", "read", "list", "status", "delete", "sync"]

POLL_S = 0.02
LOCK_S = 5.0
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST, errno.ENOENT, errno.EISDIR}
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

    poll_s = POLL_S

    def __init__(self, root: str | Path, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self.root = Path(root).absolute()
        self._sleep = sleep

    @property
    def url(self) -> str:
        """The folder's path."""
        return str(self.root)

    def where(self, key: str) -> str:
        """The file's path."""
        return str(self._path(key))

    def child(self, prefix: str) -> FolderStore:
        """The store in that folder below this one."""
        return FolderStore(self._path(prefix), sleep=self._sleep)

    # Reading

    def get(self, key: str, most_bytes: int) -> Found | None:
        """See ObjectStore.get. Raises UnreadableObject for what is not a regular file: reading a pipe would block."""
        path = self._path(key)
        with _reading(path), _opened(path) as file:
            if file is None:
                return None
            found = _regular(file, path)
            if found.st_size > most_bytes:
                raise UnreadableObject(f"{path} has {found.st_size} bytes; the limit is {most_bytes}", hint=_AWAY)
            with open(file, "rb", closefd=False) as stream:
                return Found(stream.read(most_bytes))

    def get_range(self, key: str, begin: int, end: int) -> bytes | None:
        """See ObjectStore.get_range."""
        path = self._path(key)
        with _reading(path), _opened(path) as file:
            if file is None:
                return None
            _regular(file, path)
            with open(file, "rb", closefd=False) as stream:
                stream.seek(begin)
                return stream.read(max(end - begin, 0))

    def head(self, key: str) -> Listed | None:
        """See ObjectStore.head."""
        path = self._path(key)
        with _reading(path), suppress(FileNotFoundError):
            _announce("status", path)
            found = path.stat()
            return None if stat.S_ISDIR(found.st_mode) else _listed(key, found)
        return None

    def list(self, prefix: str = "") -> list[Listed]:
        """See ObjectStore.list. Files that are not regular are listed too; reading them is an error."""
        folder = self._folder(prefix)
        with _reading(folder):
            return list(_below(folder, f"{prefix}/" if prefix else ""))

    # Writing

    def put(self, key: str, data: Bytes) -> None:
        """See ObjectStore.put."""
        path = self._path(key)
        with _writing(path):
            _put(path, lambda handle: _write(handle, data))

    def put_if_absent(self, key: str, data: Bytes) -> bool:
        """See ObjectStore.put_if_absent."""
        path = self._path(key)
        with _writing(path):
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

    def put_if_match(self, key: str, data: Bytes, version: str) -> str | None:
        """See ObjectStore.put_if_match."""
        path = self._path(key)
        with _writing(path):
            while True:
                temporary = _written(path, lambda handle: _write(handle, data))
                try:
                    _announce("replace", path)
                    with _locked(path, self._sleep) as present:
                        if present is None or Found(present).version != version:
                            return None
                        temporary.replace(path)
                except FileNotFoundError:
                    continue  # the temporary file was deleted
                finally:
                    _delete(temporary)
                return Found(bytes(data)).version

    def copy(self, source: str, target: str) -> bool:
        """See ObjectStore.copy."""
        path, onto = self._path(source), self._path(target)
        with _reading(path), _opened(path) as file:
            if file is None:
                return False
            _regular(file, path)
            with open(file, "rb", closefd=False) as stream, _writing(onto):

                def write(handle: int) -> None:
                    stream.seek(0)
                    with open(handle, "wb", closefd=False) as copy:
                        shutil.copyfileobj(stream, copy, 2**20)

                _put(onto, write)
            return True

    def delete(self, *keys: str) -> None:
        """See ObjectStore.delete."""
        for path in [self._path(key) for key in keys]:
            with _writing(path):
                _delete(path)

    def prepare(self, *prefixes: str) -> None:
        """See ObjectStore.prepare. Creates the folders, on stable storage."""
        for folder in [self._folder(prefix) for prefix in prefixes]:
            with _writing(folder):
                _make_folder(folder)
                _delete(_written(folder / "probe", lambda handle: _write(handle, b"probe")))

    def settle(self, prefix: str) -> None:
        """See ObjectStore.settle."""
        folder = self._folder(prefix)
        with _writing(folder):
            _sync_folder(folder)

    def sweep(self, prefix: str, dead: Callable[[str], bool]) -> None:
        """See ObjectStore.sweep."""
        folder = self._folder(prefix)
        with _writing(folder):
            for name in _names(folder):
                temporary = _TEMPORARY.fullmatch(name)
                if temporary is not None and dead(f"{prefix}/{temporary[1]}" if prefix else temporary[1]):
                    _delete(folder / name)

    def _path(self, key: str) -> Path:
        return self.root / checked_key(key)

    def _folder(self, prefix: str) -> Path:
        return self.root / checked_prefix(prefix)


# Errors

_AWAY = "move it away"


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = f"cannot read {path}: {error.strerror}"
        if error.errno in _DENIED:
            raise StoreDenied(what, hint="make it readable for this user") from error
        if error.errno == errno.ENOTDIR:
            raise StoreNotFound(what, hint="use a folder, not a file") from error
        raise StoreUnavailable(what, hint="check the disk or network drive, then try again") from error


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _refusal(path, error) from error


def _refusal(path: Path, error: OSError) -> ObjectStoreError:
    what = f"cannot write {path}: {error.strerror}"
    if error.errno in _FULL:
        return StoreFull(what, hint="free space there, or use a larger disk")
    if error.errno in _READ_ONLY:
        return StoreReadOnly(what, hint="make the folder writable for this user, or use another one")
    return StoreUnavailable(what, hint="check the disk or network drive, then try again")


# Files; all of these raise OSError


@contextmanager
def _opened(path: Path) -> Iterator[int | None]:
    """The file, open for reading; None if there is none. Opening a pipe does not block."""
    _announce("read", path)
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    try:
        yield file
    finally:
        os.close(file)


def _regular(file: int, path: Path) -> os.stat_result:
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode):
        raise UnreadableObject(f"{path} is not a regular file", hint=_AWAY)
    return found


@contextmanager
def _locked(path: Path, sleep: Callable[[float], None]) -> Iterator[bytes | None]:
    """The content of a file while no other process can be in here for this file; None if there is no file.

    Raises StoreUnavailable if another process stays in here for LOCK_S.
    """
    waited_s = 0.0
    while True:
        try:
            file = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            yield None
            return
        try:
            found = _regular(file, path)
            if not _lock(file):
                if waited_s >= LOCK_S:
                    raise StoreUnavailable(
                        f"another process has been changing {path} for {LOCK_S:g} s", hint="is it paused?"
                    )
                sleep(POLL_S)
                waited_s += POLL_S
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


def _is_at(path: Path, file: os.stat_result) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), file)
    return False


def _put(path: Path, write: Callable[[int], None]) -> None:
    while True:
        temporary = _written(path, write)
        _announce("replace", path)
        with suppress(FileNotFoundError):
            temporary.replace(path)
            return


def _written(path: Path, write: Callable[[int], None]) -> Path:
    """A temporary file next to `path`, on stable storage. The folder is created if it is missing."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    _announce("write", temporary)
    try:
        handle = _create(temporary)
    except FileNotFoundError:
        _make_folder(path.parent)
        handle = _create(temporary)
    try:
        os.fchmod(handle, _openness(path.parent) & 0o666)
        write(handle)
        os.fsync(handle)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    finally:
        os.close(handle)
    return temporary


def _create(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


def _write(handle: int, data: Bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def _delete(path: Path) -> None:
    _announce("delete", path)
    path.unlink(missing_ok=True)


def _make_folder(path: Path) -> None:
    """Create `path` and missing parent folders on stable storage, each with the access rights of its parent."""
    if path.is_dir():
        return
    _make_folder(path.parent)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:  # another process created it; or it is a file, and the next write fails
        return
    path.chmod(_openness(path.parent))
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    _announce("sync", folder)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _openness(folder: Path) -> int:
    """The permissions for new files in `folder`. A world-writable folder, such as /tmp, passes on neither world nor
    group write permission.
    """
    mode = folder.stat().st_mode
    return (mode & 0o775) if not mode & 0o002 else (mode & 0o755)


def _names(folder: Path) -> list[str]:
    _announce("list", folder)
    with suppress(FileNotFoundError):
        return os.listdir(folder)
    return []


def _below(folder: Path, prefix: str) -> Iterator[Listed]:
    """The files at any depth. What is deleted meanwhile is left out."""
    _announce("list", folder)
    try:
        entries = os.scandir(folder)
    except FileNotFoundError:
        return
    with entries:
        for entry in entries:
            key = prefix + entry.name
            if not is_key(key):
                continue
            if entry.is_dir():
                yield from _below(folder / entry.name, f"{key}/")
            else:
                with suppress(FileNotFoundError):
                    yield _listed(key, entry.stat())


def _listed(key: str, found: os.stat_result) -> Listed:
    return Listed(key, found.st_size, found.st_mtime_ns // 1_000_000)


def _announce(operation: Operation, path: Path) -> None:
    if (before := _before.get()) is not None:
        before(operation, path)
