"""The one judge of prices: what of all that is said may be paid, and what of that may be chosen; and what is news.

Three facts of a price are kept apart. It is *observed*: somebody said it, and it is kept, always. It is *payable*: what
a machine costs there, which the books use; a leap is not until a second report confirms it. It is *eligible*: fit to be
chosen; a payable price with a flag is not. Nor is one that nothing outside of its source makes plausible: the first of
an offer, and one that leapt, are held against `Anchors`; a second source that says about the same, or a person, lifts
that. Every price of every source passes here: of providers that are enabled, of
collectors and feeds as they answer (`judge`), of recorded tables (`replay`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from providers.collect.anchors import Anchors
from providers.collect.facts import Flag, FlaggedFinding
from providers.money import format_usd
from providers.offer import Offer
from providers.price import PricePoint

JUMP = 10
"""A price that changes by more than this factor in one step is an outlier, until a second report confirms it."""
ALIKE = 2
"""Two reports within this factor confirm each other."""
SPOT_SHARE = 0.95
"""Spot at or above this share of on-demand is no price to choose: AWS lists such where it has no spot machine to sell.
Who has one pays it."""
SPOT_FLOOR = 0.02
"""No cloud has ever sold spot below a fiftieth of on-demand (AWS goes down to a tenth, GCP to an eleventh)."""
SLIP = 3
SLIP_MS = 2 * 86_400_000
"""In a recorded table, a price this many times off the one before and the one after, which agree, and that lasts no
longer than this, is a slip of a pen."""

Kind = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Judged:
    """`payable` prices, ascending in time per offer; `flagged` are those of them that are not to be chosen, and those
    that are not even payable (Flag.OUTLIER)."""

    payable: list[PricePoint]
    flagged: list[FlaggedFinding]


class Judge:
    """`known` are offers with their newest payable prices, of earlier polls; `doubted` the outliers that wait for a
    second report, by offer; `questioned` the implausible prices that wait for a second source: by offer, by source.
    Without `anchors` nothing is implausible but by what on-demand costs."""

    def __init__(
        self,
        known: Iterable[tuple[Offer, PricePoint]] = (),
        doubted: Mapping[str, PricePoint] | None = None,
        questioned: Mapping[str, Mapping[str, int]] | None = None,
        anchors: Anchors | None = None,
    ) -> None:
        self._anchors = anchors
        self._paid: dict[str, int] = {}
        self._questioned = {offer_id: dict(said) for offer_id, said in (questioned or {}).items()}
        self._doubted = dict(doubted or {})
        self._on_demand: dict[Kind, int] = {}
        self._spot: dict[Kind, dict[str, tuple[Offer, PricePoint]]] = defaultdict(dict)
        self._plausible: dict[str, tuple[str | None, int, int]] = {}  # GPU, how many, price
        for offer, point in known:
            self._accept(offer, point, believed=offer.id not in self._questioned)
            if offer.id not in self._questioned:
                self._plausible[offer.id] = (offer.gpu, offer.gpu_count, point.nano_usd_per_hour)

    def judge(self, offers: Sequence[Offer], points: Sequence[PricePoint], source: str = "") -> Judged:
        """Prices as `source` reports them. `points` ascend in time per offer, and the last of an offer is its present.

        On-demand prices are judged first; a new one may also flag spot prices that were sound before. A report that
        confirms an outlier makes that payable, too, from when it took effect. Whether an offer may be chosen is a
        question of its present price alone: what has passed by now is payable and no more.
        """
        of_offer = {offer.id: offer for offer in offers}
        present = {point.offer_id: point for point in points}
        judged = Judged([], [])
        for point in sorted(points, key=lambda point: of_offer[point.offer_id].spot):
            offer = of_offer[point.offer_id]
            doubted, leap = self._doubted.pop(offer.id, None), self._leap(offer, point)
            if leap is not None:
                if doubted is None or not _near(point.nano_usd_per_hour, doubted.nano_usd_per_hour, ALIKE):
                    self._doubted[offer.id] = point
                    judged.flagged.append(leap)
                    continue
                if doubted.effective_at_ms < point.effective_at_ms:
                    judged.payable.append(doubted)
            self._pay(judged, offer, point, source)
            if not offer.spot:
                judged.flagged.extend(self._spot_prices_now_wrong(offer, present.keys()))
        judged.flagged[:] = [
            each
            for each in judged.flagged
            if each.flag is Flag.OUTLIER or present.get(each.subject, each.point) is each.point
        ]
        return judged

    def replay(self, offers: Sequence[Offer], points: Sequence[PricePoint]) -> Judged:
        """Prices of a recorded table, each beside what on-demand cost at that time. What followed a price tells whether
        it was a slip; only a leap that nothing follows waits for a report to confirm it."""
        of_offer = {offer.id: offer for offer in offers}
        series: dict[str, list[PricePoint]] = defaultdict(list)
        for point in sorted(points, key=lambda point: (point.effective_at_ms, not of_offer[point.offer_id].spot)):
            series[point.offer_id].append(point)
        places = {id(point): (reported, place) for reported in series.values() for place, point in enumerate(reported)}
        judged = Judged([], [])
        for point in sorted(points, key=lambda point: (point.effective_at_ms, of_offer[point.offer_id].spot)):
            offer, (reported, place) = of_offer[point.offer_id], places[id(point)]
            wrong = _slip(offer, reported, place) if place + 1 < len(reported) else self._leap(offer, point)
            if wrong is None:
                self._pay(judged, offer, point, "")
            else:
                judged.flagged.append(wrong)
        return judged

    def _pay(self, judged: Judged, offer: Offer, point: PricePoint, source: str) -> None:
        judged.payable.append(point)
        wrong = self._against_on_demand(offer, point) or self._implausible(offer, point, source)
        self._accept(offer, point, believed=wrong is None)
        if wrong is not None:
            judged.flagged.append(wrong)

    def _accept(self, offer: Offer, point: PricePoint, *, believed: bool) -> None:
        """What is not believed is paid, and is nothing to hold another price against."""
        self._paid[offer.id] = point.nano_usd_per_hour
        if offer.spot and believed:
            self._spot[_kind(offer)][offer.id] = (offer, point)
        elif offer.spot:
            self._spot[_kind(offer)].pop(offer.id, None)
        elif believed:
            self._on_demand[_kind(offer)] = point.nano_usd_per_hour

    def _leap(self, offer: Offer, point: PricePoint) -> FlaggedFinding | None:
        price, before = point.nano_usd_per_hour, self._paid.get(offer.id)
        if before is None or offer.id in self._questioned or _near(price, before):
            return None  # from what is not believed itself nothing leaps
        text = f"{format_usd(price)}/h after {format_usd(before)}/h: left out until reported again"
        return FlaggedFinding(Flag.OUTLIER, offer.id, text, offer, point)

    def _implausible(self, offer: Offer, point: PricePoint, source: str) -> FlaggedFinding | None:
        """Held against what is known elsewhere. What that contradicts is believed all the same if it is about what it
        was, for the same hardware, and that was contradicted, too: somebody has vouched for it. So no price walks out
        of what is plausible in small steps."""
        price, before = point.nano_usd_per_hour, self._plausible.get(offer.id, (None, 0, -1))
        alike = before[:2] == (offer.gpu, offer.gpu_count) and _near(price, before[2], ALIKE)
        said = self._questioned.get(offer.id, {})
        second = any(name != source and _near(price, other, ALIKE) for name, other in said.items())
        if not second and not (alike and price == before[2]):
            why = self._contradiction(offer, price)
            if why and not (alike and self._contradiction(offer, before[2])):
                self._questioned[offer.id] = {**said, source: price}
                return FlaggedFinding(Flag.IMPLAUSIBLE, offer.id, f"{why}: tradewind prices accept", offer, point)
        self._questioned.pop(offer.id, None)
        self._plausible[offer.id] = (offer.gpu, offer.gpu_count, price)
        return None

    def _contradiction(self, offer: Offer, price: int) -> str:
        """What is known elsewhere and speaks against a price; empty if nothing does."""
        why = "" if self._anchors is None else self._anchors.objection(offer, price)
        on_demand = self._on_demand.get(_kind(offer))
        if not why and offer.spot and on_demand is not None and price < SPOT_FLOOR * on_demand:
            why = f"spot {format_usd(price)}/h is {price / on_demand:.1%} of on-demand {format_usd(on_demand)}/h"
        return why

    def _against_on_demand(self, offer: Offer, point: PricePoint) -> FlaggedFinding | None:
        price, on_demand = point.nano_usd_per_hour, self._on_demand.get(_kind(offer))
        if not offer.spot or on_demand is None or price < SPOT_SHARE * on_demand:
            return None
        text = f"spot {format_usd(price)}/h is {price / on_demand:.1%} of on-demand {format_usd(on_demand)}/h"
        return FlaggedFinding(Flag.SPOT_NOT_BELOW_ON_DEMAND, offer.id, text, offer, point)

    def _spot_prices_now_wrong(self, on_demand: Offer, reported_anew: Set[str]) -> list[FlaggedFinding]:
        """Of those that were sound before; what is reported anew is judged on its own."""
        spot = self._spot[_kind(on_demand)]
        flagged = []
        for offer, point in list(spot.values()):
            wrong = self._against_on_demand(offer, point)
            if wrong is not None and offer.id not in reported_anew:
                del spot[offer.id]
                flagged.append(wrong)
        return flagged


def _kind(offer: Offer) -> Kind:
    """On-demand prices hold for a whole region: this is what spot is compared by."""
    return offer.provider, offer.region, offer.instance_type


def _near(price: int, other: int, factor: float = JUMP) -> bool:
    return other <= price * factor and price <= other * factor


def _slip(offer: Offer, reported: Sequence[PricePoint], place: int) -> FlaggedFinding | None:
    """Whether a price that others precede and follow is a slip."""
    if place == 0:
        return None
    point, after = reported[place], reported[place + 1]
    price, before, then = point.nano_usd_per_hour, reported[place - 1].nano_usd_per_hour, after.nano_usd_per_hour
    lasted_ms = after.effective_at_ms - point.effective_at_ms
    if _near(price, before, SLIP) or _near(price, then, SLIP) or not _near(before, then, 1.5) or lasted_ms > SLIP_MS:
        return None
    text = f"{format_usd(price)}/h after {format_usd(before)}/h and before {format_usd(then)}/h"
    return FlaggedFinding(Flag.OUTLIER, offer.id, text, offer, point)


class Changes:
    """Tells news from what is known: clouds repeat prices that have not changed. `known` as for Judge."""

    def __init__(self, known: Iterable[tuple[Offer, PricePoint]] = ()) -> None:
        self._newest = {offer.id: (point.effective_at_ms, point.nano_usd_per_hour) for offer, point in known}

    def news(self, points: Iterable[PricePoint]) -> list[PricePoint]:
        """The points that change an offer's price, in order of offer and time. Give all points of an offer together.

        What is older than the newest known is no news. But if an offer's last point contradicts what is known for that
        time, the provider has corrected itself: that is a change from when we saw it. What is known only for later than
        a point was seen (by a clock that was wrong) is not known yet.
        """
        by_offer: dict[str, list[PricePoint]] = defaultdict(list)
        for point in points:
            by_offer[point.offer_id].append(point)
        fresh: list[PricePoint] = []
        for offer_id, series in by_offer.items():
            ordered = sorted(series, key=lambda point: point.effective_at_ms)
            at_ms, price = self._newest.get(offer_id, (-1, -1))
            last = ordered[-1]
            if at_ms > last.observed_at_ms:
                at_ms, price = -1, -1
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

    def keep(self, news: Iterable[PricePoint]) -> None:
        """From now on these are known. Only to be told once they are safe: what is known is never told again."""
        for point in news:
            if point.effective_at_ms >= self._newest.get(point.offer_id, (-1, -1))[0]:
                self._newest[point.offer_id] = (point.effective_at_ms, point.nano_usd_per_hour)
