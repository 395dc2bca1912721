"""Packing: a folder of code as one archive, the same bytes for the same files, for machines without that folder.

`.tradewindignore` in the folder names the files to leave out, in the syntax of .gitignore; IGNORED is always left out.
Entries that an archive cannot hold safely are refused with the name of the file: links that lead out of the folder,
pipes, sockets and devices.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import stat
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import BinaryIO

from orchestrator.errors import UsageError
from orchestrator.nodes.gitignore import Pattern, is_ignored, patterns

IGNORE_FILE = ".tradewindignore"
IGNORED = frozenset({".git", "__pycache__", ".venv"})
LARGE_BYTES = 100_000_000
MOST_BYTES = 5_000_000_000
MOST_FILES = 100_000
_SECRET_NAMES = (
    *(
        ".env",
        ".env.*",
        "*.env",
        ".envrc",
        "*.pem",
        "*.key",
        "*.p12",
        "*.pfx",
        "*.ppk",
        "*.jks",
        "*.keystore",
        "*.kdbx",
    ),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "credentials", "credentials.*", "*credentials.json"),
    *(
        ".netrc",
        "_netrc",
        ".pgpass",
        ".my.cnf",
        ".s3cfg",
        ".boto",
        ".htpasswd",
        ".npmrc",
        ".pypirc",
        ".git-credentials",
        ".dockercfg",
        "*.tfstate",
    ),
    *("token", "tokens", "token.txt", "token.json", "tokens.json", "*.token", "*_token", "*-token"),
    *("secrets", "secrets.*", "secret.*", "service-account*.json", "service_account*.json"),
    *("password.txt", "passwords.txt", "api_key", "api_key.txt", "*_api_key", "*_api_key.txt", "*.tfvars"),
    *("kubeconfig", "*.kubeconfig", "rclone.conf", ".renviron"),
)
_SECRET_FOLDERS = frozenset(
    {".aws", ".ssh", ".gnupg", ".azure", ".gcloud", ".kube", ".docker", ".huggingface", ".secrets", "secrets"}
)
_NO_SECRET = ("*.pub", "*.example", "*.sample", "*.template", "*.dist")
_PRIVATE_KEY = re.compile(rb"^-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----", re.MULTILINE)
_LOOKED_AT_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of an archive: sorted paths, relative to `folder`, of folders, files and links. `secret_like` are
    files whose name, folder or first bytes look like those of a key or password."""

    folder: Path
    folders: tuple[str, ...]
    files: tuple[str, ...]
    links: tuple[str, ...]
    size_bytes: int
    secret_like: tuple[str, ...]


def contents(folder: Path, *, without: Sequence[Path] = ()) -> Contents:
    """The contents of a folder of code, without ignored files and the folders `without`. Raises UsageError."""
    ignored = _ignored(folder)
    apart = {_identity(os.stat(each)) for each in without if os.path.exists(each)}
    found = _Found(folder, os.path.realpath(folder))
    for path, status in _below(folder, ignored, apart):
        found.add(path, status)
        if len(found.files) + len(found.folders) > MOST_FILES:
            raise _refused(f"{folder} has more than {MOST_FILES:,} files", "exclude data")
    if found.size_bytes > MOST_BYTES:
        size = f"{found.size_bytes / 1e9:.1f} GB; at most {MOST_BYTES / 1e9:.0f} GB of code is uploaded"
        raise _refused(f"{folder} has {size}", "exclude data")
    secret_like = tuple(path for path in sorted(found.files) if _is_secret_like(folder, path))
    folders, files, links = (tuple(sorted(each)) for each in (found.folders, found.files, found.links))
    return Contents(folder, folders, files, links, found.size_bytes, secret_like)


def pack(packed: Contents, target: BinaryIO) -> str:
    """Write the archive (tar, gzip) to `target`. Returns its SHA-256 in hexadecimal. Raises UsageError, OSError."""
    hashed = _Hashed(target)
    zipped = gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=hashed, mtime=0)
    with zipped, tarfile.open(mode="w", fileobj=zipped, format=tarfile.PAX_FORMAT) as archive:
        for path in packed.folders:
            archive.addfile(_info(path, tarfile.DIRTYPE, 0o755))
        for path in packed.files:
            _add_file(archive, packed.folder, path)
        for path in packed.links:
            info = _info(path, tarfile.SYMTYPE, 0o777)
            info.linkname = _link(packed.folder, path)
            archive.addfile(info)
    return hashed.digest()


class _Found:
    """The findings of a search so far."""

    def __init__(self, folder: Path, real: str) -> None:
        self._folder, self._real = folder, real
        self.folders: list[str] = []
        self.files: list[str] = []
        self.links: list[str] = []
        self.size_bytes = 0

    def add(self, path: str, status: os.stat_result) -> None:
        """Leaves out a link that has been deleted meanwhile. Raises UsageError for an entry that cannot be packed."""
        with suppress(FileNotFoundError):
            self._add(path, status)

    def _add(self, path: str, status: os.stat_result) -> None:
        if stat.S_ISLNK(status.st_mode):
            _inside(self._folder, path)
            self.links.append(path)
        elif stat.S_ISDIR(status.st_mode):
            self.folders.append(path)
        elif stat.S_ISREG(status.st_mode):
            self.files.append(path)
            self.size_bytes += status.st_size
        else:
            raise _refused(f"{self._folder / path} is not a regular file: it cannot be uploaded", "remove it", path)


class _Hashed:
    """A file that is only written to, and its hash."""

    def __init__(self, target: BinaryIO) -> None:
        self._target, self._hash = target, hashlib.sha256()

    def write(self, data: bytes) -> int:
        self._hash.update(data)
        return self._target.write(data)

    def flush(self) -> None:
        self._target.flush()

    def digest(self) -> str:
        return self._hash.hexdigest()


def _ignored(folder: Path) -> tuple[Pattern, ...]:
    path = folder / IGNORE_FILE
    try:
        if not path.exists():
            return ()
        if not path.is_file():
            raise ValueError("it is not a regular file")
        return patterns(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # also for an undecodable file
        raise UsageError(
            f"{path} cannot be read: {error}", hint="correct it: its syntax is that of .gitignore"
        ) from error


def _below(
    folder: Path, ignored: Sequence[Pattern], apart: set[tuple[int, int]]
) -> Iterator[tuple[str, os.stat_result]]:
    """The path relative to `folder` and the type of every entry, at any depth, that is not ignored."""
    waiting = [""]
    while waiting:
        prefix = waiting.pop()
        for entry in _entries(folder, prefix):
            path = f"{prefix}/{entry.name}" if prefix else entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if entry.name in IGNORED or is_ignored(ignored, path, is_folder=is_folder):
                continue
            status = _status(folder, path, entry)
            if status is None or (is_folder and _identity(status) in apart):
                continue
            yield path, status
            if is_folder:
                waiting.append(path)


def _status(folder: Path, path: str, entry: os.DirEntry[str]) -> os.stat_result | None:
    """None: deleted meanwhile."""
    try:
        return entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    except OSError as error:  # the folder cannot be searched, or the path is too long
        raise _refused(f"{folder / path} cannot be read: {error.strerror}", "make it readable", path) from error


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _entries(folder: Path, prefix: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder / prefix) as found:
            return list(found)
    except OSError as error:
        if prefix and isinstance(error, FileNotFoundError):  # deleted meanwhile
            return []
        raise _refused(f"{folder / prefix} cannot be read: {error.strerror}", "make it readable", prefix) from error


def _inside(folder: Path, path: str) -> str:
    """The target of a link, relative to the link's folder, without leaving `folder`. Raises UsageError."""
    target, parent = os.readlink(folder / path), os.path.dirname(path)
    real = os.path.relpath(os.path.realpath(folder / path), os.path.realpath(folder))
    if _leaves(real):
        raise _refused(f"{folder / path} leads out of train.workdir, to {target}", "replace it with a copy", path)
    if os.path.isabs(target) or _leaves(os.path.normpath(os.path.join(parent, target))):
        return os.path.relpath(real, parent or ".")
    return target


def _leaves(relative: str) -> bool:
    return relative == ".." or relative.startswith("../")


def _is_secret_like(folder: Path, path: str) -> bool:
    *parents, name = path.lower().split("/")
    if any(fnmatchcase(name, each) for each in _NO_SECRET):
        return False
    if not _SECRET_FOLDERS.isdisjoint(parents) or any(fnmatchcase(name, each) for each in _SECRET_NAMES):
        return True
    try:
        with open(folder / path, "rb") as file:
            return _PRIVATE_KEY.search(file.read(_LOOKED_AT_BYTES)) is not None
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _refused(f"{folder / path} cannot be read: {error.strerror}", "make it readable", path) from error


def _info(path: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    """An entry without owner and time."""
    info = tarfile.TarInfo(path)
    info.type, info.mode = kind, mode
    return info


def _add_file(archive: tarfile.TarFile, folder: Path, path: str) -> None:
    try:
        handle = os.open(folder / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(0, "it is no longer a regular file")
            info = _info(path, tarfile.REGTYPE, 0o755 if status.st_mode & stat.S_IXUSR else 0o644)
            info.size = status.st_size
            archive.addfile(info, file)
    except OSError as error:
        raise _changed(folder, path, error) from error


def _link(folder: Path, path: str) -> str:
    try:
        return _inside(folder, path)
    except OSError as error:
        raise _changed(folder, path, error) from error


def _changed(folder: Path, path: str, error: OSError) -> UsageError:
    why = error.strerror or str(error)
    return _refused(f"{folder / path} cannot be packed: {why}", "try again while no program changes it", path)


def _refused(what: str, remedy: str, path: str = "") -> UsageError:
    named = f"/{path}" if path else "it"
    return UsageError(what, hint=f"{remedy}, or name {named} in {IGNORE_FILE}")
