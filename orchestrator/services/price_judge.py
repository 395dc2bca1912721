"""Which prices of a recorded history are kept but not decided on, and why. Must not know files or the store.

A history shows more than a poll does: what came before and after a price, and what on-demand cost at that time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.services.price_columns import PriceRow
from orchestrator.store import Flagged
from providers.collect.facts import Flag
from providers.collect.judge import SPOT_FLOOR
from providers.money import format_usd

SPOT_SHARE = 0.95
"""Spot at or above this share of on-demand is no spot price: AWS lists such where it has none to sell."""
LISTS_PHANTOMS = frozenset({"gcp"})
"""Providers with prices for places without the hardware: there, only what is known to be offered counts."""
SPIKE = 3
SPIKE_MS = 2 * 86_400_000
"""A price this many times off the one before and the one after, which lasts no longer than this, is a slip of a pen."""
LEAP = 10
"""A last price this many times off the one before waits for another one to confirm it."""

Kind = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Held:
    """A flag with the instants from which and to which it holds."""

    row: PriceRow
    flagged: Flagged
    opened_ms: int
    cleared_ms: int


class History:
    """All rows of an import, to judge each offer's against the others."""

    def __init__(self, rows: Iterable[PriceRow]) -> None:
        self.of_offer: dict[str, list[PriceRow]] = defaultdict(list)
        self._offered: dict[Kind, bool] = {}
        on_demand: dict[Kind, dict[int, int]] = defaultdict(dict)
        for row in rows:
            self.of_offer[row.point.offer_id].append(row)
            kind = _kind(row)
            if row.offered is not None:
                self._offered[kind] = row.offered or self._offered.get(kind, False)
            if not row.offer.spot:
                on_demand[kind].setdefault(row.point.effective_at_ms, row.point.nano_usd_per_hour)
        self._on_demand: Mapping[Kind, Sequence[tuple[int, int]]] = {
            kind: sorted(prices.items()) for kind, prices in on_demand.items()
        }

    def judge(self, offer_id: str) -> tuple[list[PriceRow], list[Held]]:
        """An offer's rows to decide on, and those to keep with a reason; in order of time, one per instant."""
        rows = sorted(self.of_offer[offer_id], key=lambda row: (row.point.effective_at_ms, row.point.observed_at_ms))
        rows = [row for before, row in zip([None, *rows], rows, strict=False) if _later(before, row)]
        reasons = [self._reason(rows, place) for place in range(len(rows))]
        sound = [row for row, reason in zip(rows, reasons, strict=True) if reason is None]
        held = []
        for place, (row, reason) in enumerate(zip(rows, reasons, strict=True)):
            if reason is None:
                continue
            following = rows[min(place + 1, len(rows) - 1)]  # the last one ends at once: no import flags the present
            flagged = Flagged(
                reason[0].value,
                offer_id,
                reason[1],
                offer_id,
                row.point.nano_usd_per_hour,
                row.point.effective_at_ms,
            )
            held.append(Held(row, flagged, row.point.observed_at_ms, following.point.observed_at_ms))
        return sound, held

    def _reason(self, rows: Sequence[PriceRow], place: int) -> tuple[Flag, str] | None:
        row = rows[place]
        return self._against_hardware(row) or self._against_on_demand(row) or _against_neighbours(rows, place)

    def _against_hardware(self, row: PriceRow) -> tuple[Flag, str] | None:
        offered = self._offered.get(_kind(row)) if row.offered is None else row.offered
        where = f"{row.offer.instance_type} in {row.offer.region}"
        if offered is False:
            return Flag.NO_HARDWARE, f"{where} is listed, but not offered there"
        if offered is None and row.offer.provider in LISTS_PHANTOMS:
            return Flag.NO_HARDWARE, f"{where} is listed, but not known to be offered there"
        return None

    def _against_on_demand(self, row: PriceRow) -> tuple[Flag, str] | None:
        if not row.offer.spot:
            return None
        known = self._on_demand.get(_kind(row), ())
        place = bisect_right(known, row.point.effective_at_ms, key=lambda change: change[0])
        if place == 0:
            return None
        price, on_demand = row.point.nano_usd_per_hour, known[place - 1][1]
        if SPOT_FLOOR * on_demand <= price < SPOT_SHARE * on_demand:
            return None
        flag = Flag.SPOT_NOT_BELOW_ON_DEMAND if price > SPOT_FLOOR * on_demand else Flag.OUTLIER
        share = f"{price / on_demand:.0%} of on-demand {format_usd(on_demand)}/h"
        return flag, f"spot {format_usd(price)}/h is {share}"


def _against_neighbours(rows: Sequence[PriceRow], place: int) -> tuple[Flag, str] | None:
    if place == 0:
        return None
    price, before = rows[place].point.nano_usd_per_hour, rows[place - 1].point.nano_usd_per_hour
    if not _off(price, before, SPIKE):
        return None
    words = f"{format_usd(price)}/h after {format_usd(before)}/h"
    if place + 1 == len(rows):
        return (Flag.OUTLIER, f"{words}, and nothing confirms it") if _off(price, before, LEAP) else None
    after = rows[place + 1].point
    lasted_ms = after.effective_at_ms - rows[place].point.effective_at_ms
    if (
        _off(price, after.nano_usd_per_hour, SPIKE)
        and not _off(before, after.nano_usd_per_hour, 1.5)
        and lasted_ms <= SPIKE_MS
    ):
        return Flag.OUTLIER, f"{words} and before {format_usd(after.nano_usd_per_hour)}/h"
    return None


def _off(price: int, other: int, factor: float) -> bool:
    return price > other * factor or other > price * factor


def _later(before: PriceRow | None, row: PriceRow) -> bool:
    return before is None or before.point.effective_at_ms < row.point.effective_at_ms


def _kind(row: PriceRow) -> Kind:
    return row.offer.provider, row.offer.region, row.offer.instance_type
