"""Pool: the rows of a market that are relevant to a job, with the columns that a forecast needs.

Columns are computed only over the required rows: those that a job may use, or the few that are shown. Values that
depend only on the site and the kind of hardware are computed once per combination ("cell").
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import numpy as np
from numpy.typing import NDArray

from orchestrator.market import PRIOR_LOSSES, Market, PriceForecast
from orchestrator.market.cached_property import cached_property
from orchestrator.policy.ranking.transition_costs import TransitionCosts

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

_FEW = 256  # pools with at most this many rows are small: positions are looked up in a dictionary


class Pool:
    """Rows of a market in ascending order, with their cells. Jobs that may use the same rows share a pool.

    - Over the rows: `rows`, `cell`, `spot`, and `price_s` (nano-USD per second, 0 without a known price). An old price
      counts one standard deviation higher, because the cheapest of many old prices is the one most likely to have
      risen.
    - Over the cells: `site`, `kind`, `hazard_s` (losses per second).
    - `current`, `target`: the rows where the job is and to which it is moving. Each has a cell of its own, `here` and
      `there`.
    - `setup_s`: the time that setting up the job's environment adds to each start.
    - `around`: other rows that may be requested. They are included when a few rows of the pool are forecast
      (Forecast.over).
    """

    def __init__(
        self,
        market: Market,
        rows: Rows,
        current: int | None = None,
        target: int | None = None,
        setup_s: float = 0.0,
        around: Rows | None = None,
    ) -> None:
        self.market = market
        self.setup_s = setup_s
        self.around = around
        self.rows = rows
        self.current = current
        self.target = target
        self.known_transition_costs: dict[Hashable, TransitionCosts] = {}
        self.small = len(rows) <= _FEW  # if so, each row has a cell of its own
        self.of_all: slice | Rows = (
            slice(None) if len(rows) == len(market) else rows
        )  # selects its rows from a market column
        if self.small:
            self.cell = np.arange(len(rows))
            self.site, self.kind = market.listing.site[rows], market.listing.kind[rows]
            self.hazard_s = market.hazard[rows] / 3600
        elif len(rows) == len(market):
            cells = market.cells
            self.cell = cells.of_row if current is None and target is None else cells.of_row.copy()
            self.site, self.kind, self.hazard_s = cells.site, cells.kind, cells.hazard / 3600
        else:
            cells = market.cells
            of_row = cells.of_row[self.of_all]
            occur = np.zeros(len(cells.site), np.bool_)
            occur[of_row] = True
            used = np.flatnonzero(occur)
            number = np.empty(len(cells.site), np.int64)
            number[used] = np.arange(len(used))
            self.cell = number[of_row]
            self.site, self.kind, self.hazard_s = cells.site[used], cells.kind[used], cells.hazard[used] / 3600
        self.here = None if current is None else self._own_cell(current)
        self.there = None if target is None else self._own_cell(target)

    def _own_cell(self, row: int) -> int:
        at = self.at(row)
        if self.small:
            return at
        old, own = int(self.cell[at]), len(self.site)
        self.cell[at] = own
        self.site, self.kind = np.append(self.site, self.site[old]), np.append(self.kind, self.kind[old])
        self.hazard_s = np.append(self.hazard_s, self.hazard_s[old])
        return own

    @cached_property
    def kinds(self) -> list[int]:
        """The codes of the kinds of hardware among the rows."""
        return np.flatnonzero(np.bincount(self.kind, minlength=len(self.market.listing.kinds))).tolist()

    @cached_property
    def price_s(self) -> Floats:
        """nano-USD per second over the rows (see the class)."""
        price_s: Floats = np.maximum(self.market.price[self.of_all], 0) / 3600
        return price_s if self.drift is None else price_s * np.exp(self.drift)

    @cached_property
    def drift(self) -> Floats | None:
        """One standard deviation of the logarithm of each price, due to its age; None if all are fresh."""
        drift = self.market.drift
        return None if drift is None else drift[self.of_all]

    @cached_property
    def spot(self) -> NDArray[np.bool_]:
        """Whether each row is a spot offer."""
        return self.market.spot[self.of_all]

    @cached_property
    def startup_s(self) -> Floats:
        """Market seconds from a launch to a ready trainer, over the cells; 0 where the job is."""
        return self.from_here(self.start_s)

    @cached_property
    def start_s(self) -> Floats:
        """Market seconds from a launch to a ready trainer, over the cells. For the job's present offer, the time for
        another machine there."""
        return self.market.start_s(self.site, self.kind) + self.setup_s

    @cached_property
    def start_low_s(self) -> Floats:
        """The 5th percentile of `start_s`."""
        return self.market.start_s(self.site, self.kind, "low") + self.setup_s / 2

    @cached_property
    def start_high_s(self) -> Floats:
        """The 95th percentile of `start_s`."""
        return self.market.start_s(self.site, self.kind, "high") + self.setup_s * 2

    @cached_property
    def losses_known(self) -> Floats:
        """The number of losses from which each cell's hazard was learned, including the prior's."""
        losses = self.market.losses[self.of_all]
        if self.small:
            return np.asarray(PRIOR_LOSSES + losses, np.float64)
        column = np.full(len(self.site), PRIOR_LOSSES)
        column[self.cell] = PRIOR_LOSSES + losses
        return column

    @cached_property
    def ahead(self) -> PriceForecast:
        """The price forecast of the rows."""
        return self.market.ahead(self.of_all)

    def mean_price_s(self, seconds: Floats) -> Floats:
        """The expected mean of `price_s` over `seconds`, which is given over the cells."""
        return self.price_s if self.ahead.stays else self.price_s * self.ahead.mean(seconds, self.cell)

    def over_rows(self, column: Floats) -> Floats:
        """A column over the cells (its last axis) as a column over the rows. The result must not be changed."""
        return column if self.small else column[..., self.cell]

    def over_sites(self, by_site: Floats) -> Floats:
        """A column over the sites as a column over the cells, with 0 where the job is."""
        return self.from_here(by_site[self.site])

    def from_here(self, column: Floats) -> Floats:
        """A copy of a column over the cells with 0 where the job is."""
        column = column.copy()
        if self.here is not None:
            column[self.here] = 0.0
        return column

    def at(self, row: int) -> int:
        """The position of a market row in the pool, which must contain it."""
        return self._at[row] if self.small else int(np.searchsorted(self.rows, row))

    def positions(self, rows: Rows) -> Rows:
        """The positions of market rows in the pool, which must contain them."""
        return rows if self.whole else np.searchsorted(self.rows, rows)

    @property
    def whole(self) -> bool:
        """Whether the pool has all rows of the market."""
        return len(self.rows) == len(self.market)

    def has(self, rows: Iterable[int]) -> bool:
        """Whether the pool is small and has all these rows."""
        return self.small and all(row in self._at for row in rows)

    @cached_property
    def _at(self) -> dict[int, int]:
        return {row: position for position, row in enumerate(self.rows.tolist())}
