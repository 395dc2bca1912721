"""Cells: groups of a market's rows that agree in site, kind of hardware and hazard, and differ only in price.

Whatever does not depend on the price is computed once per cell instead of once per row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.market.digest import BLOCK
from orchestrator.market.listing import Listing

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Rows with the same site, kind of hardware and hazard share a cell: they differ only in price.

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
        """The cells after the hazards have changed from `before` to `hazard`: each changed row gets a separate cell.
        None if there would be so many cells that rebuilding them is better."""
        rows = np.flatnonzero(hazard != before)
        if len(self.site) + len(rows) > len(hazard) // 2 + BLOCK:
            return None
        of_row = self.of_row.copy()
        of_row[rows] = len(self.site) + np.arange(len(rows))
        site, kind = np.append(self.site, listing.site[rows]), np.append(self.kind, listing.kind[rows])
        return Cells(of_row, site, kind, np.append(self.hazard, hazard[rows]))
