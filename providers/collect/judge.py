"""Decides which reported prices may be booked and which may be chosen, and detects changes.

A price has three separate properties. It is *observed* once a source reports it, and is always kept. It is *payable* if
machines there are billed at it; an outlier is payable only after a second report confirms it. It is *eligible* if it
may be chosen; a flagged payable price may not. The first price of an offer, and one that jumped, must also be plausible
by `Anchors`, unless a second source reports about the same price or a person accepts it. An impossible price,
such as a negative one, is only flagged. 0 is possible only for simulated machines and those that the user owns, whose
declared prices are not compared with others. Every price of every source is checked here: those of enabled providers,
collectors and feeds (`judge`) and those of recorded tables (`replay`).
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
from providers.traits import traits_of

MOST_NANO_USD = 10**18
"""Per hour. No machine costs so much, and what it would cost in a few hours exceeds the numbers of the store."""
JUMP = 10
"""A price that changes by more than this factor in one step is an outlier until a second report confirms it."""
ALIKE = 2
"""Two reports within this factor confirm each other."""
SPOT_SHARE = 0.95
"""A spot price at or above this share of on-demand must not be chosen: AWS lists such prices where it has no spot
machines to sell. Machines already running are billed at it.
"""
SPOT_FLOOR = 0.02
"""No cloud has sold spot below a fiftieth of on-demand (AWS goes down to a tenth, GCP to an eleventh)."""
SLIP = 3
SLIP_MS = 2 * 86_400_000
"""In a recorded table, a price is an error if it differs by more than the factor SLIP from both neighbours, which agree
with each other, and lasts no longer than this.
"""

Kind = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Judged:
    """`payable` prices, ascending in time per offer. `flagged` are payable prices that must not be chosen, and prices
    that are not payable (Flag.OUTLIER).
    """

    payable: list[PricePoint]
    flagged: list[FlaggedFinding]


class Judge:
    """Checks prices against each other and against `anchors`.

    `known` are offers with their newest payable prices from earlier polls; `unconfirmed` the outliers that wait for a
    second report, by offer; `implausible` the implausible prices that wait for a second source, by offer and source.
    Without `anchors`, prices are compared only with on-demand prices.
    """

    def __init__(
        self,
        known: Iterable[tuple[Offer, PricePoint]] = (),
        unconfirmed: Mapping[str, PricePoint] | None = None,
        implausible: Mapping[str, Mapping[str, int]] | None = None,
        anchors: Anchors | None = None,
    ) -> None:
        self._anchors = anchors
        self._paid: dict[str, int] = {}
        self._unaccepted = {offer_id: dict(reports) for offer_id, reports in (implausible or {}).items()}
        self._unconfirmed = dict(unconfirmed or {})
        self._on_demand: dict[Kind, int] = {}
        self._spot: dict[Kind, dict[str, tuple[Offer, PricePoint]]] = defaultdict(dict)
        self._plausible: dict[str, tuple[str | None, int, int]] = {}  # GPU, how many, price
        for offer, point in known:
            self._accept(offer, point, accepted=offer.id not in self._unaccepted)
            if offer.id not in self._unaccepted:
                self._plausible[offer.id] = (offer.gpu, offer.gpu_count, point.nano_usd_per_hour)

    def judge(self, offers: Sequence[Offer], points: Sequence[PricePoint], source: str = "") -> Judged:
        """Check prices as `source` reports them. `points` ascend in time per offer; the last one of an offer is its
        current price.

        On-demand prices are checked first; a new one may flag spot prices that were eligible before. A report that
        confirms an outlier also makes the outlier payable, from the time it took effect. Only the current price of an
        offer decides whether the offer may be chosen; earlier prices are only payable.
        """
        of_offer = {offer.id: offer for offer in offers}
        judged, points = _priced(of_offer, points)
        present = {point.offer_id: point for point in points}
        for point in sorted(points, key=lambda point: of_offer[point.offer_id].spot):
            offer = of_offer[point.offer_id]
            unconfirmed, jump = self._unconfirmed.pop(offer.id, None), self._outlier(offer, point)
            if jump is not None:
                if unconfirmed is None or not _near(point.nano_usd_per_hour, unconfirmed.nano_usd_per_hour, ALIKE):
                    self._unconfirmed[offer.id] = point
                    judged.flagged.append(jump)
                    continue
                if unconfirmed.effective_at_ms < point.effective_at_ms:
                    judged.payable.append(unconfirmed)
            self._pay(judged, offer, point, source)
            if not offer.spot:
                judged.flagged.extend(self._spot_prices_now_wrong(offer, present.keys()))
        judged.flagged[:] = [
            each
            for each in judged.flagged
            if each.flag in (Flag.OUTLIER, Flag.MALFORMED) or present.get(each.subject, each.point) is each.point
        ]
        return judged

    def replay(self, offers: Sequence[Offer], points: Sequence[PricePoint]) -> Judged:
        """Check the prices of a recorded table, each against on-demand at its time. Later prices show whether one was
        an error; only an outlier at the end of its series waits for a second report.
        """
        of_offer = {offer.id: offer for offer in offers}
        judged, points = _priced(of_offer, points)
        series: dict[str, list[PricePoint]] = defaultdict(list)
        for point in sorted(points, key=lambda point: (point.effective_at_ms, not of_offer[point.offer_id].spot)):
            series[point.offer_id].append(point)
        places = {id(point): (reported, place) for reported in series.values() for place, point in enumerate(reported)}
        for point in sorted(points, key=lambda point: (point.effective_at_ms, of_offer[point.offer_id].spot)):
            offer, (reported, place) = of_offer[point.offer_id], places[id(point)]
            wrong = (
                _recording_error(offer, reported, place) if place + 1 < len(reported) else self._outlier(offer, point)
            )
            if wrong is None:
                self._pay(judged, offer, point, "")
            else:
                judged.flagged.append(wrong)
        return judged

    def _pay(self, judged: Judged, offer: Offer, point: PricePoint, source: str) -> None:
        judged.payable.append(point)
        wrong = self._against_on_demand(offer, point) or self._implausible(offer, point, source)
        self._accept(offer, point, accepted=wrong is None)
        if wrong is not None:
            judged.flagged.append(wrong)

    def _accept(self, offer: Offer, point: PricePoint, *, accepted: bool) -> None:
        """A price that is not accepted is payable, but other prices are not compared with it."""
        self._paid[offer.id] = point.nano_usd_per_hour
        if offer.spot and accepted:
            self._spot[_kind(offer)][offer.id] = (offer, point)
        elif offer.spot:
            self._spot[_kind(offer)].pop(offer.id, None)
        elif accepted:
            self._on_demand[_kind(offer)] = point.nano_usd_per_hour

    def _outlier(self, offer: Offer, point: PricePoint) -> FlaggedFinding | None:
        price, before = point.nano_usd_per_hour, self._paid.get(offer.id)
        if before is None or offer.id in self._unaccepted or _near(price, before):
            return None  # a price that is not accepted is no basis for a comparison
        text = f"{format_usd(price)}/h after {format_usd(before)}/h: not used until it is reported again"
        return FlaggedFinding(Flag.OUTLIER, offer.id, text, offer, point)

    def _implausible(self, offer: Offer, point: PricePoint, source: str) -> FlaggedFinding | None:
        """Compare a price with what is known elsewhere.

        A contradicted price is still accepted if it is similar to the last accepted price of the same hardware and that
        price was contradicted, too: a person has accepted it. A price cannot leave the plausible range in small steps
        this way.
        """
        price, before = point.nano_usd_per_hour, self._plausible.get(offer.id, (None, 0, -1))
        alike = before[:2] == (offer.gpu, offer.gpu_count) and _near(price, before[2], ALIKE)
        reports = self._unaccepted.get(offer.id, {})
        second = any(name != source and _near(price, other, ALIKE) for name, other in reports.items())
        if not second and not (alike and price == before[2]):
            why = self._contradiction(offer, price)
            if why and not (alike and self._contradiction(offer, before[2])):
                self._unaccepted[offer.id] = {**reports, source: price}
                return FlaggedFinding(
                    Flag.IMPLAUSIBLE,
                    offer.id,
                    f"{why}; if it is right, run: tradewind prices accept OFFER",
                    offer,
                    point,
                )
        self._unaccepted.pop(offer.id, None)
        self._plausible[offer.id] = (offer.gpu, offer.gpu_count, price)
        return None

    def _contradiction(self, offer: Offer, price: int) -> str:
        """What contradicts a price; empty if nothing does."""
        if traits_of(offer.provider).owned:
            return ""
        why = "" if self._anchors is None else self._anchors.objection(offer, price)
        on_demand = self._on_demand.get(_kind(offer))
        if not why and offer.spot and on_demand is not None and price < SPOT_FLOOR * on_demand:
            why = f"spot {format_usd(price)}/h is {price / on_demand:.1%} of on-demand {format_usd(on_demand)}/h"
        return why

    def _against_on_demand(self, offer: Offer, point: PricePoint) -> FlaggedFinding | None:
        price, on_demand = point.nano_usd_per_hour, self._on_demand.get(_kind(offer))
        if not offer.spot or on_demand is None or price < SPOT_SHARE * on_demand:
            return None
        share = f"{price / on_demand:.1%} of" if on_demand else "not below"
        text = f"spot {format_usd(price)}/h is {share} on-demand {format_usd(on_demand)}/h"
        return FlaggedFinding(Flag.SPOT_NOT_BELOW_ON_DEMAND, offer.id, text, offer, point)

    def _spot_prices_now_wrong(self, on_demand: Offer, reported_anew: Set[str]) -> list[FlaggedFinding]:
        """Flag spot prices that were eligible before the new on-demand price; those in `reported_anew` are checked
        separately.
        """
        spot = self._spot[_kind(on_demand)]
        flagged = []
        for offer, point in list(spot.values()):
            wrong = self._against_on_demand(offer, point)
            if wrong is not None and offer.id not in reported_anew:
                del spot[offer.id]
                flagged.append(wrong)
        return flagged


def _priced(offers: Mapping[str, Offer], points: Sequence[PricePoint]) -> tuple[Judged, list[PricePoint]]:
    """The points whose numbers are prices, and a result with the flags of the others."""
    judged, priced = Judged([], []), list[PricePoint]()
    for point in points:
        price, offer = point.nano_usd_per_hour, offers[point.offer_id]
        free = offer.simulated or traits_of(offer.provider).owned
        if type(price) is int and (0 if free else 1) <= price <= MOST_NANO_USD:
            priced.append(point)
        else:
            least = "0" if free else "1 nano-USD"
            text = f"{price!r:.60} nano-USD per hour is not a price from {least} to {format_usd(MOST_NANO_USD)}/h"
            judged.flagged.append(FlaggedFinding(Flag.MALFORMED, point.offer_id, text, offer))
    return judged, priced


def _kind(offer: Offer) -> Kind:
    """The key by which spot is compared with on-demand, whose prices apply to a whole region."""
    return offer.provider, offer.region, offer.instance_type


def _near(price: int, other: int, factor: float = JUMP) -> bool:
    return other <= price * factor and price <= other * factor


def _recording_error(offer: Offer, reported: Sequence[PricePoint], place: int) -> FlaggedFinding | None:
    """Flag a recorded price that its neighbours show to be an error; None if it is not."""
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
    """Detects changes: clouds repeat prices that have not changed. `known` as for Judge."""

    def __init__(self, known: Iterable[tuple[Offer, PricePoint]] = ()) -> None:
        self._newest = {offer.id: (point.effective_at_ms, point.nano_usd_per_hour) for offer, point in known}

    def news(self, points: Iterable[PricePoint]) -> list[PricePoint]:
        """The points that change an offer's price, in order of offer and time. Pass all points of an offer together.

        Points older than the newest known one are not changes. But if an offer's last point contradicts what is known
        for its time, the provider has corrected itself: that is a change from when it was observed. A known price later
        than the observation (from a clock that was wrong) is ignored.
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
        """The points up to the newest known one of their offers: a source of history does not set current prices."""
        return [each for each in points if each.effective_at_ms <= self._newest.get(each.offer_id, (math.inf, -1))[0]]

    def missing(self, points: Iterable[PricePoint]) -> list[PricePoint]:
        """The points that change a price in a history reported late, in order of offer and time, including those older
        than the newest known one.
        """
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
        """Mark these points as known. Call it only once they are stored: known points are not reported again."""
        for point in news:
            if point.effective_at_ms >= self._newest.get(point.offer_id, (-1, -1))[0]:
                self._newest[point.offer_id] = (point.effective_at_ms, point.nano_usd_per_hour)
