"""Unpacking: the code of a job on a machine that does not have the submitter's folder.

An archive is known by the SHA-256 of its bytes, which is checked before anything is unpacked. Names that lead out of
the folder, links to elsewhere, devices and owners are refused or ignored by tarfile's own "data" filter (PEP 706).
"""

from __future__ import annotations

import gzip
import hashlib
import os
import secrets
import shutil
import tarfile
import zlib
from fcntl import LOCK_EX, flock
from pathlib import Path

from orchestrator.errors import SiteError
from trainers.objects.base import ObjectStore

CODE = "workdir"
MOST_PACKED_BYTES = 5 << 30
MOST_BYTES = 6_000_000_000
MOST_ENTRIES = 250_000
PIECE_BYTES = 8 << 20
_SUBMIT = "submit the job again"


class CodeError(SiteError):
    """The code is not available, on this machine or any other."""


def code_key(digest: str) -> str:
    """The key of an archive, below the place of its job."""
    return f"{CODE}/{digest}.tar.gz"


def unpacked(store: ObjectStore, digest: str, folder: Path) -> Path:
    """The folder with the code of this digest below `folder`; fetched and unpacked if it is not there yet.

    Concurrent processes do this only once. Raises CodeError, ObjectStoreError, OSError.
    """
    target = folder / digest
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / f".{digest}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        flock(lock, LOCK_EX)
        if not target.is_dir():
            _unpack(store, digest, target)
    finally:
        os.close(lock)
    return target


def _unpack(store: ObjectStore, digest: str, target: Path) -> None:
    partial = target.with_name(f".{digest}.{secrets.token_hex(4)}")
    archive = partial.with_suffix(".tar.gz")
    try:
        _fetch(store, digest, archive)
        partial.mkdir(mode=0o700)
        extract(archive, partial)
        partial.rename(target)
    finally:
        archive.unlink(missing_ok=True)
        shutil.rmtree(partial, ignore_errors=True)


def _fetch(store: ObjectStore, digest: str, archive: Path) -> None:
    """Copy the archive to a file, a piece at a time, and check its hash."""
    key = code_key(digest)
    found, hashed = store.head(key), hashlib.sha256()
    if found is None:
        raise CodeError(f"the code of this job is no longer in the store: {store.where(key)}", hint=_SUBMIT)
    if found.size_bytes > MOST_PACKED_BYTES:
        raise CodeError(
            f"{store.where(key)} has {found.size_bytes} bytes; the limit is {MOST_PACKED_BYTES}", hint=_SUBMIT
        )
    with open(archive, "xb") as file:
        for begin in range(0, found.size_bytes, PIECE_BYTES):
            piece = store.get_range(key, begin, min(begin + PIECE_BYTES, found.size_bytes)) or b""
            hashed.update(piece)
            file.write(piece)
    if hashed.hexdigest() != digest:
        raise CodeError(f"{store.where(key)} is damaged: it differs from the uploaded archive", hint=_SUBMIT)


def extract(archive: Path, target: Path) -> None:
    """Unpack an archive into an empty folder. Raises CodeError, OSError."""
    if not hasattr(tarfile, "data_filter"):
        raise CodeError("this Python cannot unpack safely", hint="use Python 3.11.4 or newer on the machine")
    size_bytes = entries = 0
    try:
        with tarfile.open(archive, "r:gz") as packed:
            for entry in packed:
                size_bytes, entries = size_bytes + entry.size, entries + 1
                if size_bytes > MOST_BYTES or entries > MOST_ENTRIES:
                    raise CodeError(f"the code has more than {MOST_BYTES} bytes or {MOST_ENTRIES} files", hint=_SUBMIT)
                packed.extract(entry, target, set_attrs=True, filter="data")
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, ValueError) as error:
        raise CodeError(f"the archive of the code cannot be unpacked: {error}", hint=_SUBMIT) from error
