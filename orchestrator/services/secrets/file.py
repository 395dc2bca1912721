"""Secrets that survive a restart of the control plane, if the user enables it: encrypted in the state folder.

The key is in a file elsewhere (`secrets.key_file`), so copies and backups of the state folder do not reveal the values.
A process that can read both files (this user and root) can read them. Fernet (`cryptography`) authenticates, so damage
is detected.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.config import Config
from orchestrator.config.private import write_privately
from orchestrator.engine.secret_values import Given, SecretValues
from orchestrator.errors import MissingExtraError, StoreError, UsageError
from orchestrator.formats.codec import CodecError, dumps, loads

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

FILE = "secrets.encrypted"


def kept_secrets(config: Config) -> SecretValues:
    """The secrets of this installation: only in memory, or also in its file if one is configured.

    Raises MissingExtraError; UsageError if others can read the key or if it is in the state folder; StoreError if the
    file or the key cannot be read.
    """
    key_file = config.secrets.key_file
    if key_file is None:
        return SecretValues()
    require_place_of_key(config, key_file)
    from cryptography.fernet import Fernet

    path = config.state_dir / FILE
    try:
        cipher = Fernet(_key(key_file, Fernet.generate_key))
    except (OSError, ValueError) as error:
        raise StoreError(f"the key {key_file} cannot be used: {error}", hint="restore the right key file") from error
    return SecretValues(
        kept=lambda: _read(path, key_file, cipher),
        keep=lambda given: _write(path, cipher, given),
    )


def require_place_of_key(config: Config, key_file: Path) -> None:
    """Checks that secrets could be kept with a key at this path, without creating one. Raises MissingExtraError,
    UsageError."""
    if find_spec("cryptography") is None:
        raise MissingExtraError("cryptography", "secrets")
    if key_file.resolve().is_relative_to(config.state_dir.resolve()):
        raise UsageError(
            f"secrets.key_file is in the state folder {config.state_dir}, beside the data that it encrypts",
            hint="keep it elsewhere, such as ~/.config/tradewind/secrets.key",
        )


def _key(key_file: Path, generate: Callable[[], bytes]) -> bytes:
    """The key, generated if there is none. Raises OSError, UsageError."""
    with suppress(FileExistsError):
        key_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(key_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(generate())
    found = key_file.stat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise UsageError(
            f"others can read the key {key_file}", hint=f"chown it to this user, then: chmod 600 {key_file}"
        )
    return key_file.read_bytes().strip()


def _read(path: Path, key_file: Path, cipher: Fernet) -> Given:
    from cryptography.fernet import InvalidToken

    try:
        return loads(dict[str, dict[str, str]], cipher.decrypt(path.read_bytes()))
    except FileNotFoundError:
        return {}
    except (InvalidToken, OSError, CodecError) as error:
        raise StoreError(
            f"the secrets in {path} cannot be read with the key {key_file}",
            hint="restore the key that they were written with, or remove the file and give the secrets again",
        ) from error


def _write(path: Path, cipher: Fernet, given: Given) -> None:
    """Raises StoreError."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
    text = cipher.encrypt(dumps(given).encode()).decode()
    try:
        write_privately(unfinished, text)
        os.replace(unfinished, path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise StoreError(f"{path} cannot be written: {error.strerror}", hint="free some space") from error
