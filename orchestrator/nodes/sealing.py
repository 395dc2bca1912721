"""Sealing: secrets are sent to a machine sealed to a key that exists only in its agent's memory.

The agent makes a key pair at each start and publishes the public half, with a proof that it has the boot token of its
user data, so write access to the store alone is not enough to get the secrets. The boot token of a machine is derived
from a key of the installation, because a repeated launch must have the same user data.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from hashlib import blake2b, sha256
from typing import TYPE_CHECKING, Any

from orchestrator.errors import MissingExtraError, SiteError
from orchestrator.formats.codec import CodecError, dumps, loads

if TYPE_CHECKING:
    from nacl.public import PrivateKey


def boot_token(installation_key: bytes, launch_token: str) -> str:
    """The boot token of the machine with this launch token."""
    return hmac.new(installation_key, f"boot:{launch_token}".encode(), sha256).hexdigest()


def proof(token: str, boot: str, public_key: str) -> str:
    """The proof that an agent publishes with its key to show that it has the boot token."""
    words = f"node:{boot}:{public_key}".encode(errors="replace")
    return hmac.new(token.encode(), words, sha256).hexdigest()


def error_proof(token: str, boot: str, error: str) -> str:
    """The proof that an unusable machine publishes with the reason (also orchestrator.nodes.boot.program)."""
    return hmac.new(token.encode(), f"error:{boot}:{error}".encode(errors="replace"), sha256).hexdigest()


def is_proven(token: str, boot: str, public_key: str, shown: str, error: str = "") -> bool:
    """Whether the agent that published this, or a boot that failed with this error, has the boot token."""
    expected = error_proof(token, boot, error) if error else proof(token, boot, public_key)
    return hmac.compare_digest(expected.encode(), shown.encode(errors="replace"))


def new_key() -> PrivateKey:
    """A key pair for one start of an agent. Raises MissingExtraError."""
    key: PrivateKey = _nacl().PrivateKey.generate()
    return key


def public_half(key: PrivateKey) -> str:
    """The public key in hexadecimal."""
    return bytes(key.public_key).hex()


def seal(public_key: str, run_id: str, secrets: Mapping[str, str]) -> bytes:
    """The secrets of a run, which only the holder of the key can open. Raises SiteError if the key is not valid."""
    nacl = _nacl()
    try:
        box = nacl.SealedBox(nacl.PublicKey(bytes.fromhex(public_key)))
    except (ValueError, TypeError) as error:
        raise SiteError(
            f"the machine's public key is not valid: {error}", hint="Tradewind replaces the machine"
        ) from error
    return bytes(box.encrypt(dumps({"run_id": run_id, "secrets": dict(secrets)}).encode()))


def opened(key: PrivateKey, sealed: bytes, run_id: str) -> dict[str, str]:
    """The secrets of this run. Raises SiteError if they were sealed for another run or another key."""
    from nacl.exceptions import CryptoError

    try:
        content = loads(dict[str, object], _nacl().SealedBox(key).decrypt(sealed))
        if content["run_id"] != run_id:
            raise CodecError("belongs to another run", "run_id")
        return loads(dict[str, str], dumps(content["secrets"]))
    except (CryptoError, CodecError, KeyError) as error:
        raise SiteError(
            f"the secrets of {run_id} cannot be opened: {error}", hint="Tradewind seals them again"
        ) from error


def locked(installation_key: bytes, content: str) -> bytes:
    """A text that only this installation can read again. Raises MissingExtraError."""
    return bytes(_box(installation_key).encrypt(content.encode()))


def unlocked(installation_key: bytes, sealed: bytes) -> str:
    """The text of `locked`. Raises SiteError if it is of another installation, or damaged."""
    from nacl.exceptions import CryptoError

    try:
        return bytes(_box(installation_key).decrypt(sealed)).decode()
    except (CryptoError, UnicodeDecodeError) as error:
        hint = "give each installation its own store_root; if its control.key was lost, Tradewind replaces its machines"
        raise SiteError(f"this object cannot be read with the key of this installation: {error}", hint=hint) from error


def digest(sealed: bytes) -> str:
    """The name by which an order refers to sealed secrets."""
    return blake2b(sealed, digest_size=16).hexdigest()


def _box(installation_key: bytes) -> Any:
    _nacl()
    import nacl.secret

    return nacl.secret.SecretBox(hmac.new(installation_key, b"lock", sha256).digest())


def _nacl() -> Any:
    try:
        import nacl.public
    except ModuleNotFoundError as error:
        raise MissingExtraError("pynacl", "ray") from error
    return nacl.public
