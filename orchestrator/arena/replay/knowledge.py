"""Knowledge: the Market of a record as the product knows it at a time: what was observed so far, nothing later."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from orchestrator.arena.replay.record import Record
from orchestrator.market import AvailabilityPoint, Course, History, Market, Tariff
from orchestrator.market.reversion import course
from providers.price import PricePoint

DAY_MS = 86_400_000
LOOKED_BACK_MS = 14 * DAY_MS
"""As the product: how far back it learns how prices behave, and for how long it remembers capacity (30 days)."""
REMEMBERED_MS = 30 * DAY_MS
SAMPLE = 64  # offers of each provider from which its course is learned, as in the product

Floats = NDArray[np.float64]


class Knowledge:
    """What can be known of a record's prices. What is learned from past prices is renewed daily (the product: every
    half hour) and shared by all replays."""

    def __init__(self, record: Record, tariff: Tariff, startup_s: float) -> None:
        self.record = record
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
        """The number of prices known at a time."""
        return bisect_right(self._times, at_ms)

    def learned(self, day: int) -> tuple[dict[str, Course], Floats]:
        """The course of each provider's spot prices, and the mean price of each offer (-1: unknown), by a day's
        beginning."""
        if day not in self._learned:
            self._learned[day] = self._learn(day * DAY_MS)
        return self._learned[day]

    def _learn(self, until_ms: int) -> tuple[dict[str, Course], Floats]:
        listing, since_ms = self.record.listing, until_ms - LOOKED_BACK_MS
        levels = np.full(len(listing), -1.0)
        histories: dict[str, list[History]] = {name: [] for name in listing.providers}
        for row in np.flatnonzero(listing.spot).tolist():
            known = [
                (max(at_ms, since_ms), price)
                for at_ms, price in self.record.between(row, since_ms, until_ms)
                if at_ms < until_ms
            ]
            if known:
                at, price = (np.array(column, np.int64) for column in zip(*known, strict=True))
                history = History(at, price.astype(np.float64), until_ms)
                levels[row] = _mean(history)
                histories[listing.sites[int(listing.site[row])].provider].append(history)
        courses = {name: course(each[:: -(-len(each) // SAMPLE)] if each else ()) for name, each in histories.items()}
        return courses, levels


class MarketStream:
    """The market as time passes. `background` are observations made by others, in order of time."""

    def __init__(self, knowledge: Knowledge, background: Sequence[AvailabilityPoint] = ()) -> None:
        self._knowledge = knowledge
        self._background = background
        self._market: Market | None = None
        self._day = -1
        self._prices = self._own = self._others = 0

    def at(self, at_ms: int, points: Sequence[AvailabilityPoint]) -> Market:
        """The market at a time, not earlier than the last one. `points` are all own observations so far, none later
        than `at_ms`, in order of time; only new ones are read."""
        known, day = self._knowledge, at_ms // DAY_MS
        prices, others = known.before(at_ms), self._before(at_ms)
        record, market = known.record, self._market
        polls = [((name, "", None), at_ms) for name in record.listing.providers]
        if market is None or day != self._day:
            courses, levels = known.learned(day)
            market = Market.as_of(
                at_ms,
                offers=record.listing,
                prices=_in_force(record, at_ms),
                availability=[
                    point
                    for point in (*self._background[:others], *points)
                    if at_ms - REMEMBERED_MS <= point.at_ms <= at_ms
                ],
                polls=polls,
                startup_s=dict.fromkeys(record.listing.providers, known.startup_s),
                courses=courses,
                levels=levels,
                tariff=known.tariff,
            )
        else:
            market = market.learn(
                at_ms,
                prices=known.points[self._prices : prices],
                availability=[*self._background[self._others : others], *points[self._own :]],
                polls=polls,
            )
        self._market, self._day, self._prices, self._own, self._others = market, day, prices, len(points), others
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
    return float((history.price * lasted).sum() / lasted.sum())
