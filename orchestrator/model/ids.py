"""Ids: prefixed and sorted by time, such as `job_01JD3K...`."""

from __future__ import annotations

import hashlib
import re
from typing import Protocol

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford base 32: sorts like the number, no I L O U


class RandomBits(Protocol):
    """The method of random.Random that ids need."""

    def getrandbits(self, k: int, /) -> int:
        """An integer of `k` random bits."""
        ...


def new_id(prefix: str, now_ms: int, random: RandomBits) -> str:
    """A new id: `prefix_` + 9 characters of time (45 bits of ms) + 6 random ones (30 bits)."""
    return f"{prefix}_{_base32(now_ms, 9)}{_base32(random.getrandbits(30), 6)}"


def is_id(prefix: str, text: str) -> bool:
    """Whether `new_id` or `derived_id` can have made `text` with this prefix. Only such texts may name folders."""
    return re.fullmatch(f"{prefix}_[{_ALPHABET}]{{15}}", text) is not None


def derived_id(prefix: str, at_ms: int, content: bytes) -> str:
    """An id of the same form that depends only on its arguments: equal content gives an equal id."""
    bits = int.from_bytes(hashlib.blake2b(content, digest_size=4).digest(), "big") >> 2
    return f"{prefix}_{_base32(at_ms, 9)}{_base32(bits, 6)}"


def _base32(value: int, width: int) -> str:
    chars = []
    for _ in range(width):
        chars.append(_ALPHABET[value & 31])
        value >>= 5
    return "".join(reversed(chars))
