"""Cells and blocks: rows of a market taken together, so that a small change costs little.

A cell is what agrees in all but price; a block is a run of rows that is hashed at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.market.listing import Listing

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

BLOCK = 1024  # rows that are hashed together: one new price costs the hash of one block


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Rows that agree in site, kind of hardware and hazard share a cell: there they differ by price alone.

    `of_row` is the cell of each row; the other columns are over the cells.
    """

    of_row: Ints
    site: Ints
    kind: Ints
    hazard: Floats

    @classmethod
    def of(cls, listing: Listing, hazard: Floats) -> Cells:
        """The cells of a listing whose rows have these hazards."""
        rates, rate = np.unique(hazard, return_inverse=True)
        codes = (listing.site * len(listing.kinds) + listing.kind) * len(rates) + rate
        cells, of_row = np.unique(codes, return_inverse=True)
        pairs, rate = np.divmod(cells, max(len(rates), 1))
        site, kind = np.divmod(pairs, max(len(listing.kinds), 1))
        return cls(of_row, site, kind, rates[rate])

    def renewed(self, listing: Listing, before: Floats, hazard: Floats) -> Cells | None:
        """The cells with another hazard, each row that changed in a cell of its own; None where those have become so
        many that finding all anew is better."""
        rows = np.flatnonzero(hazard != before)
        if len(self.site) + len(rows) > len(hazard) // 2 + BLOCK:
            return None
        of_row = self.of_row.copy()
        of_row[rows] = len(self.site) + np.arange(len(rows))
        site, kind = np.append(self.site, listing.site[rows]), np.append(self.kind, listing.kind[rows])
        return Cells(of_row, site, kind, np.append(self.hazard, hazard[rows]))


def block_hashes(
    columns: Sequence[NDArray[np.int64]], size: int, known: tuple[bytes, ...] | None, dirty: Iterable[int]
) -> tuple[bytes, ...]:
    """The hash of each block of rows; `known` ones count where they are not `dirty`."""
    count = -(-size // BLOCK)
    blocks = [b""] * count if known is None else list(known)
    for block in range(count) if known is None else sorted(dirty):
        rows = slice(block * BLOCK, (block + 1) * BLOCK)
        digest = hashlib.blake2b(digest_size=16)
        for column in columns:
            digest.update(column[rows].tobytes())
        blocks[block] = digest.digest()
    return tuple(blocks)
