"""KeyFile: the secret key of an installation. Secrets known only to its control planes are derived from it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock

from orchestrator.errors import SiteError

KEY_FILE = "control.key"
"""Its name in the state folder."""
KEY_BYTES = 32


class KeyFile:
    """The key in a file, which is created when it is first needed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._key: bytes | None = None
        self._making = Lock()

    def __call__(self) -> bytes:
        """The key. Raises SiteError. May be called from several threads."""
        with self._making, _named_errors(self._path):
            if self._key is None:
                self._key = _key_in(self._path)
            return self._key

    def check(self) -> None:
        """Raises SiteError if a key exists and cannot be used. Creates none."""
        with _named_errors(self._path):
            if self._path.exists():
                _read(self._path)


@contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        hint = "free some space, or give its owner write permission"
        raise SiteError(f"{path} cannot be written: {error}", hint=hint) from error


def _key_in(path: Path) -> bytes:
    """The key in a file, which is created atomically if it does not exist. Raises OSError."""
    if not path.exists():
        partial = path.with_suffix(f".{os.getpid()}.tmp")
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):  # another process was faster
            os.link(partial, path)
        partial.unlink()
    return _read(path)


def _read(path: Path) -> bytes:
    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        hint = "delete it; Tradewind then replaces running machines, and their jobs continue from their checkpoints"
        raise SiteError(f"{path} is damaged: it has {len(key)} bytes, not {KEY_BYTES}", hint=hint)
    return key
