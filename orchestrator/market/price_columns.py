"""Price columns: the prices in force, as columns over a listing. A market of a hundred thousand offers is built from
them at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from orchestrator.market.listing import Listing
from providers.price import PricePoint

Ints = NDArray[np.int64]


class PriceColumns(NamedTuple):
    """By row of a listing: nano-USD per hour, when that came into force, and when it was learned (epoch ms of market
    time); -1 where no price is known."""

    price: Ints
    effective_at: Ints
    observed_at: Ints

    @classmethod
    def unknown(cls, size: int) -> PriceColumns:
        """The columns of a listing of `size` offers without any known price."""
        return cls(*(np.full(size, -1, np.int64) for _ in cls._fields))

    def renewed(self, listing: Listing, offer_ids: Collection[str], points: Iterable[PricePoint]) -> PriceColumns:
        """New columns in which `points`, at most one per offer, replace all known prices of the offers `offer_ids`.
        Offers without a point have no known price then."""
        after = PriceColumns(*(column.copy() for column in self))
        gone = [row for name in offer_ids if (row := listing.row(name)) is not None]
        found = [(row, each) for each in points if (row := listing.row(each.offer_id)) is not None]
        rows = [row for row, _ in found]
        for column, field in zip(after, ("nano_usd_per_hour", "effective_at_ms", "observed_at_ms"), strict=True):
            column[gone] = -1
            column[rows] = [getattr(each, field) for _, each in found]
        return after
