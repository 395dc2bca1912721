"""Digest: a hash that identifies the content of a market. After a price change, only a small part is hashed again.

Rows are hashed in blocks. Facts that do not depend on prices or lost machines are hashed once (`declared`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orchestrator.market.quotas import Rooms
from orchestrator.market.reversion import Course

BLOCK = 1024  # rows that are hashed together: one new price costs the hash of one block


def declared(
    listing_digest: bytes,
    given: Sequence[Mapping[Any, Any]],
    rooms: Rooms,
    room: NDArray[np.int64],
    courses: Mapping[str, Course],
    level: NDArray[np.float64],
) -> hashlib.blake2b:
    """The first part of a market's digest, to be updated with the hashes of its blocks.

    `given` are mappings of the market (start times, priors, doubts); `room` is Market.room, integers of shape
    (2, rows); `level` is in nano-USD per hour, one per row.
    """
    facts = tuple(sorted(each.items()) for each in given)
    digest = hashlib.blake2b(listing_digest + repr(facts).encode(), digest_size=16)
    if rooms:
        left, most = room
        digest.update(repr([(row, left.item(row), most.item(row)) for row in sorted(rooms)]).encode())
    if courses:
        for name, course in sorted(courses.items()):
            digest.update(name.encode() + course.table.tobytes())
        digest.update(level.tobytes())
    return digest


def block_hashes(
    columns: Sequence[NDArray[np.int64]], size: int, known: tuple[bytes, ...] | None, dirty: Iterable[int]
) -> tuple[bytes, ...]:
    """The hash of each block of rows; `known` hashes are reused for blocks that are not `dirty`."""
    count = -(-size // BLOCK)
    blocks = [b""] * count if known is None else list(known)
    for block in range(count) if known is None else sorted(dirty):
        rows = slice(block * BLOCK, (block + 1) * BLOCK)
        digest = hashlib.blake2b(digest_size=16)
        for column in columns:
            digest.update(column[rows].tobytes())
        blocks[block] = digest.digest()
    return tuple(blocks)
