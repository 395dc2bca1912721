"""Knowledge: the Market of a record as the product knows it at a time, with all observations so far and none later."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from orchestrator.arena.replay.record import Record
from orchestrator.market import AvailabilityPoint, Course, History, Market, Tariff
from orchestrator.market.polls import Answered
from orchestrator.market.reversion import course
from orchestrator.model import Estimate
from orchestrator.perf import InstanceKind
from providers.billing.charges import Location
from providers.price import PricePoint

DAY_MS = 86_400_000
LOOKED_BACK_MS = 14 * DAY_MS
"""As in the product: how far back it learns the course of prices, and how long it remembers capacity (30 days)."""
REMEMBERED_MS = 30 * DAY_MS
SAMPLE = 64  # offers of each provider from which its course is learned, as in the product

Floats = NDArray[np.float64]


class Knowledge:
    """The knowable facts about a record's prices. Estimates from past prices are renewed every `renew_ms` (by default
    daily; in the product every half hour) and shared by all replays."""

    def __init__(self, record: Record, tariff: Tariff, startup_s: float, renew_ms: int = DAY_MS) -> None:
        self.record = record
        self.renew_ms = renew_ms
        self.tariff = tariff
        self.startup_s = startup_s
        self.points = record.points
        self._times = [point.observed_at_ms for point in self.points]
        hours = {-(-at_ms // 3_600_000) * 3_600_000 for at_ms in self._times}
        self._hours = sorted(hours)
        self._learned: dict[int, tuple[dict[str, Course], Floats]] = {}

    def next_change_ms(self, at_ms: int) -> int | None:
        """The next full hour after a time by which some price has changed."""
        index = bisect_right(self._hours, at_ms)
        return self._hours[index] if index < len(self._hours) else None

    def before(self, at_ms: int) -> int:
        """The number of known prices at a time."""
        return bisect_right(self._times, at_ms)

    def learned(self, at_ms: int) -> tuple[dict[str, Course], Floats]:
        """The course of each provider's spot prices, and the mean price of each offer (-1: unknown), as of the last
        renewal."""
        until_ms = at_ms - at_ms % self.renew_ms
        if until_ms not in self._learned:
            self._learned[until_ms] = self._learn(until_ms)
        courses, levels = self._learned[until_ms]
        return courses, levels.copy()

    def polls(self, at_ms: int) -> list[tuple[Answered, int]]:
        """All prices are confirmed at every time."""
        return [((name, "", None), at_ms) for name in self.record.listing.providers]

    def market(
        self,
        at_ms: int,
        points: Iterable[AvailabilityPoint],
        startup_s: Mapping[str, float | Estimate],
        starts: Mapping[tuple[Location, InstanceKind], Estimate] | None = None,
    ) -> Market:
        """The market at a time; `points` after it and long before it do not count. Starting a machine takes `startup_s`
        by provider, or `starts` where observed."""
        courses, levels = self.learned(at_ms)
        for row in np.flatnonzero(self.record.listing.spot & (levels < 0)).tolist():
            first_ms, price = self.record.changes[row][0]
            if first_ms <= at_ms:  # younger than the last renewal
                levels[row] = price
        return Market.as_of(
            at_ms,
            offers=self.record.listing,
            prices=_in_force(self.record, at_ms),
            availability=[point for point in points if at_ms - REMEMBERED_MS <= point.at_ms <= at_ms],
            polls=self.polls(at_ms),
            startup_s=startup_s,
            starts=starts,
            courses=courses,
            levels=levels,
            tariff=self.tariff,
        )

    def _learn(self, until_ms: int) -> tuple[dict[str, Course], Floats]:
        listing = self.record.listing
        histories = {row: self._history(row, until_ms) for row in np.flatnonzero(listing.spot).tolist()}
        levels = np.full(len(listing), -1.0)
        of_provider: dict[str, list[History | None]] = {name: [] for name in listing.providers}
        for row, history in histories.items():
            of_provider[listing.sites[int(listing.site[row])].provider].append(history)
            if history is not None:
                levels[row] = _mean(history)
        sampled = {name: each[:: -(-len(each) // SAMPLE) or 1] for name, each in of_provider.items()}
        return {name: course(found for found in each if found is not None) for name, each in sampled.items()}, levels

    def _history(self, row: int, until_ms: int) -> History | None:
        """An offer's prices in the look-back period; None if it had none."""
        since_ms = until_ms - LOOKED_BACK_MS
        known = [each for each in self.record.between(row, since_ms, until_ms) if each[0] < until_ms]
        if not known:
            return None
        at_ms, price = (np.array(column, np.int64) for column in zip(*known, strict=True))
        return History(np.maximum(at_ms, since_ms), price.astype(np.float64), until_ms)


class MarketStream:
    """The market as time passes. `background` are other users' observations, in order of time."""

    def __init__(self, knowledge: Knowledge, background: Sequence[AvailabilityPoint] = ()) -> None:
        self._knowledge = knowledge
        self._background = background
        self._market: Market | None = None
        self._renewal = -1
        self._prices = self._own = self._others = 0

    def at(self, at_ms: int, points: Sequence[AvailabilityPoint]) -> Market:
        """The market at a time, not earlier than the last one. `points` are all of the user's observations so far, none
        later than `at_ms`, in order of time; only new ones are read."""
        known = self._knowledge
        renewal = at_ms // known.renew_ms
        prices, others = known.before(at_ms), self._before(at_ms)
        record, market = known.record, self._market
        if market is None or renewal != self._renewal:
            seen = [*self._background[:others], *points]
            market = known.market(at_ms, seen, dict.fromkeys(record.listing.providers, known.startup_s))
        else:
            market = market.learn(
                at_ms,
                prices=known.points[self._prices : prices],
                availability=[*self._background[self._others : others], *points[self._own :]],
                polls=known.polls(at_ms),
            )
        self._market, self._renewal = market, renewal
        self._prices, self._own, self._others = prices, len(points), others
        return market

    def _before(self, at_ms: int) -> int:
        index = self._others
        while index < len(self._background) and self._background[index].at_ms <= at_ms:
            index += 1
        return index


def _in_force(record: Record, at_ms: int) -> list[PricePoint]:
    found = []
    for row, offer_id in enumerate(record.listing.ids):
        changes = record.between(row, at_ms, at_ms)
        if changes and changes[0][0] <= at_ms:
            since_ms, price = changes[0]
            found.append(PricePoint(offer_id, price, since_ms, since_ms, record.name))
    return found


def _mean(history: History) -> float:
    lasted = np.diff(np.append(history.at_ms, history.until_ms)).astype(np.float64)
    return float(round((history.price * lasted).sum() / lasted.sum()))
