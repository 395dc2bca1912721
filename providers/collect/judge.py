"""Checks that need more than one row: spot against on-demand, a price against its past, and what is news at all.

Both see every price of every source in the order of arrival, and remember a few numbers per offer. Must not know:
clouds, stores, time.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace

from providers.collect.facts import Flag, Flagged
from providers.money import format_usd
from providers.offer import Offer
from providers.price import PricePoint

JUMP = 10
"""A price that changes by more than this factor in one step is an outlier, until a second report confirms it."""
SPOT_FLOOR = 0.02
"""No cloud has ever sold spot below a fiftieth of on-demand (AWS goes down to a tenth, GCP to an eleventh)."""

Kind = tuple[str, str, str]


class Judge:
    """`known` are offers with their newest accepted prices, of earlier polls; `doubted` the outliers that have not been
    reported again since, in nano-USD per hour by offer."""

    def __init__(
        self, known: Iterable[tuple[Offer, PricePoint]] = (), doubted: Mapping[str, int] | None = None
    ) -> None:
        self._accepted: dict[str, int] = {}
        self._reported: dict[str, int] = {}
        self._on_demand: dict[Kind, int] = {}
        self._spot: dict[Kind, dict[str, tuple[Offer, PricePoint]]] = defaultdict(dict)
        for offer, point in known:
            self._accept(offer, point)
        self._reported.update(doubted or {})

    def judge(self, offers: Sequence[Offer], points: Sequence[PricePoint]) -> tuple[list[PricePoint], list[Flagged]]:
        """Split prices into those to decide on and those to keep with a reason. `points` ascend in time per offer.

        On-demand prices are judged first; a new one may also flag spot prices that were accepted before.
        """
        of_offer = {offer.id: offer for offer in offers}
        reported_anew = {point.offer_id for point in points}
        accepted: list[PricePoint] = []
        flagged: list[Flagged] = []
        for point in sorted(points, key=lambda point: of_offer[point.offer_id].spot):
            offer = of_offer[point.offer_id]
            reason = self._against_its_past(offer, point) or self._against_on_demand(offer, point)
            self._reported[offer.id] = point.nano_usd_per_hour
            if reason is None:
                self._accept(offer, point)
                accepted.append(point)
                if not offer.spot:
                    flagged += self._spot_prices_now_wrong(offer, reported_anew)
            else:
                self._spot[_kind(offer)].pop(offer.id, None)
                flagged.append(Flagged(reason[0], offer.id, reason[1], offer, point))
        return accepted, flagged

    def _accept(self, offer: Offer, point: PricePoint) -> None:
        self._accepted[offer.id] = self._reported[offer.id] = point.nano_usd_per_hour
        if offer.spot:
            self._spot[_kind(offer)][offer.id] = (offer, point)
        else:
            self._on_demand[_kind(offer)] = point.nano_usd_per_hour

    def _against_its_past(self, offer: Offer, point: PricePoint) -> tuple[Flag, str] | None:
        price, before = point.nano_usd_per_hour, self._accepted.get(offer.id)
        if before is None or _near(price, before) or _near(price, self._reported[offer.id]):
            return None
        return Flag.OUTLIER, f"{format_usd(price)}/h after {format_usd(before)}/h: left out until reported again"

    def _against_on_demand(self, offer: Offer, point: PricePoint) -> tuple[Flag, str] | None:
        price, on_demand = point.nano_usd_per_hour, self._on_demand.get(_kind(offer))
        if not offer.spot or on_demand is None:
            return None
        if price >= on_demand:
            text = f"spot {format_usd(price)}/h is not below on-demand {format_usd(on_demand)}/h"
            return Flag.SPOT_NOT_BELOW_ON_DEMAND, text
        if price < on_demand * SPOT_FLOOR:
            text = f"spot {format_usd(price)}/h is below {SPOT_FLOOR:.0%} of on-demand {format_usd(on_demand)}/h"
            return Flag.OUTLIER, text
        return None

    def _spot_prices_now_wrong(self, on_demand: Offer, reported_anew: Set[str]) -> list[Flagged]:
        """Of those that were accepted before; what is reported anew is judged on its own."""
        spot = self._spot[_kind(on_demand)]
        flagged = []
        for offer, point in list(spot.values()):
            reason = self._against_on_demand(offer, point)
            if reason is not None and offer.id not in reported_anew:
                del spot[offer.id]
                flagged.append(Flagged(reason[0], offer.id, reason[1], offer, point))
        return flagged


def _kind(offer: Offer) -> Kind:
    """On-demand prices hold for a whole region: this is what spot is compared by."""
    return offer.provider, offer.region, offer.instance_type


def _near(price: int, other: int) -> bool:
    return other <= price * JUMP and price <= other * JUMP


class Changes:
    """Tells news from what is known: clouds repeat prices that have not changed. `known` as for Judge."""

    def __init__(self, known: Iterable[tuple[Offer, PricePoint]] = ()) -> None:
        self._newest = {offer.id: (point.effective_at_ms, point.nano_usd_per_hour) for offer, point in known}

    def news(self, points: Iterable[PricePoint]) -> list[PricePoint]:
        """The points that change an offer's price, in order of offer and time. Give all points of an offer together.

        What is older than the newest known is no news. But if an offer's last point contradicts what is known for that
        time, the provider has corrected itself: that is a change from when we saw it.
        """
        by_offer: dict[str, list[PricePoint]] = defaultdict(list)
        for point in points:
            by_offer[point.offer_id].append(point)
        fresh: list[PricePoint] = []
        for offer_id, series in by_offer.items():
            ordered = sorted(series, key=lambda point: point.effective_at_ms)
            at_ms, price = self._newest.get(offer_id, (-1, -1))
            last = ordered[-1]
            if last.effective_at_ms <= at_ms < last.observed_at_ms and last.nano_usd_per_hour != price:
                ordered = [replace(last, effective_at_ms=last.observed_at_ms)]
            for point in ordered:
                if point.effective_at_ms > at_ms and point.nano_usd_per_hour != price:
                    at_ms, price = point.effective_at_ms, point.nano_usd_per_hour
                    fresh.append(point)
        return fresh

    def past(self, points: Iterable[PricePoint]) -> list[PricePoint]:
        """Those up to the newest known of their offers: what holds now is not for a source of the past to say."""
        return [each for each in points if each.effective_at_ms <= self._newest.get(each.offer_id, (math.inf, -1))[0]]

    def missing(self, points: Iterable[PricePoint]) -> list[PricePoint]:
        """The points that change a price in a history that is told late, in order of offer and time: those that are
        older than the newest known, too."""
        fresh: list[PricePoint] = []
        before: PricePoint | None = None
        for point in sorted(points, key=lambda point: (point.offer_id, point.effective_at_ms)):
            repeated = (
                before is not None
                and before.offer_id == point.offer_id
                and before.nano_usd_per_hour == point.nano_usd_per_hour
            )
            at_ms, price = self._newest.get(point.offer_id, (math.inf, -1))
            if not repeated and not (point.effective_at_ms >= at_ms and point.nano_usd_per_hour == price):
                fresh.append(point)
            before = point
        return fresh

    def doubt(self, point: PricePoint) -> None:
        """A price that was accepted is left out from now on; should it be right again, that is news."""
        if self._newest.get(point.offer_id) == (point.effective_at_ms, point.nano_usd_per_hour):
            del self._newest[point.offer_id]

    def keep(self, news: Iterable[PricePoint]) -> None:
        """From now on these are known. Only to be told once they are safe: what is known is never told again."""
        for point in news:
            if point.effective_at_ms >= self._newest.get(point.offer_id, (-1, -1))[0]:
                self._newest[point.offer_id] = (point.effective_at_ms, point.nano_usd_per_hour)
