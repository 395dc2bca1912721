"""Sink: stores what collectors find, each poll of a region in one transaction when it ends.

All but the newest changes of a long history are stored earlier, in batches of some thousands, so that the store is
never blocked for long. What a poll found before it failed is kept, marked with the poll's error. Only a complete poll
can show that an offer is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.prices.suspect import suspicion
from orchestrator.store import Leadership, NewFlag, Store
from orchestrator.store.market.polls import ALL_REGIONS
from providers.collect import facts
from providers.collect.runner import PollOutcome
from providers.collect.sources import fresh_s, history_of, usual_interval_s
from providers.offer import Offer, provider_of
from providers.price import PricePoint

AT_ONCE = 4000
"""Price changes per transaction, which takes about a third of a second."""


@dataclass(slots=True)
class _Found:
    offers: dict[str, Offer] = field(default_factory=dict)
    points: list[PricePoint] = field(default_factory=list)
    flagged: list[facts.FlaggedFinding] = field(default_factory=list)
    signals: list[facts.Signal] = field(default_factory=list)


class StoreSink:
    """A sink (providers.collect.runner.Sink) that writes to `store` and reports every stored poll to `reported`.

    `ended` raises StoreError; earlier polls stay stored. A control plane's `leadership` guards each write; None if a
    user collects. For each offer one source at a time is used: for `reserved` providers, where machines are rented and
    booked, their own source; otherwise the first source, until it stops answering or is suspect, and a cloud's own
    source before a feed. Reports of other sources are kept as flags without effect on the offer.
    """

    def __init__(
        self,
        store: Store,
        reported: Callable[[PollOutcome], None] = lambda _: None,
        leadership: Leadership | None = None,
        reserved: Collection[str] = (),
    ) -> None:
        self._reserved = frozenset(reserved)
        self._store = store
        self._leadership = leadership
        self._reported = reported
        self._found: dict[tuple[str, str], _Found] = {}

    def offers(self, source: str, region: str, offers: Sequence[Offer]) -> None:
        """Add offers found by a poll."""
        self._of(source, region).offers.update((offer.id, offer) for offer in offers)

    def prices(self, source: str, region: str, points: Sequence[PricePoint]) -> None:
        """Add price points found by a poll."""
        self._of(source, region).points.extend(points)

    def flagged(self, source: str, region: str, flagged: Sequence[facts.FlaggedFinding]) -> None:
        """Add flagged findings of a poll."""
        self._of(source, region).flagged.extend(flagged)

    def signals(self, source: str, region: str, signals: Sequence[facts.Signal]) -> None:
        """Add interruption signals found by a poll."""
        self._of(source, region).signals.extend(signals)

    def ended(self, poll: PollOutcome) -> None:
        """Store everything that the poll has found. Raises StoreError."""
        found = self._found.pop((poll.source, poll.region), _Found())
        provider = provider_of_source(poll.source)
        whole, past_only = poll.error is None, history_of(poll.source) == "only"
        found = _without(found, self._reported_by_others(poll, found, past_only))
        only_flagged = {
            each.offer.id: each.offer
            for each in found.flagged
            if each.offer is not None and each.offer.id not in found.offers
        }
        # A price becomes known only when its poll has ended: a market as of an earlier time must not contain it.
        known = [replace(each, observed_at_ms=max(each.observed_at_ms, poll.ended_at_ms)) for each in found.points]
        past_points, points = _parted(known)
        if past_points:
            with self._store.write(self._leadership) as tx:
                tx.add_past_offers(poll.source, list(found.offers.values()))
        changed = 0
        for batch in past_points:
            with self._store.write(self._leadership) as tx:
                changed += tx.add_prices(batch)
        scope = "" if poll.region in ALL_REGIONS else poll.region
        with self._store.write(self._leadership) as tx:
            suspect = ""
            if past_only:
                tx.add_past_offers(poll.source, list(found.offers.values()))
            elif whole:
                suspect = suspicion(
                    tx,
                    poll.source,
                    poll.region,
                    scope,
                    found.offers.keys(),
                    poll.started_at_ms,
                    usual_interval_s(poll.source),
                    rows=poll.rows,
                    flagged=[each.flag.value for each in found.flagged],
                )
            believed = whole and not suspect
            if not past_only and (found.offers or believed):
                offers = list(found.offers.values())
                tx.put_offers(provider, offers, source=poll.source, region=scope, whole=believed)
            if only_flagged:
                tx.add_past_offers(poll.source, list(only_flagged.values()))
            changed += tx.add_prices(points) if points else 0
            past, flags = _split(found, past_only)
            if suspect:  # if the poll is suspect, offers that it dropped with a reason stay, too
                flags = [each if each.offer_id in found.offers else replace(each, offer_id=None) for each in flags]
            tx.add_past_flags(poll.source, [(each, poll.region, poll.ended_at_ms, poll.ended_at_ms) for each in past])
            sound = () if past_only else found.offers.keys()
            tx.put_flags(poll.source, poll.region, poll.ended_at_ms, flags, sound=sound, whole=believed)
            if found.signals:
                tx.add_risks(found.signals)
            tx.record_poll(
                provider,
                poll.started_at_ms,
                poll.ended_at_ms,
                len(found.offers),
                changed,
                None if poll.error is None else str(poll.error),
                source=poll.source,
                region=poll.region,
                flagged=len(found.flagged),
                hint=None if poll.error is None else poll.error.hint,
                newest_ms=poll.newest_ms,
                suspect=suspect,
                passed=", ".join(f"{rows} {why}" for why, rows in poll.skipped.items()),
            )
        self._reported(replace(poll, suspect=suspect))

    def _reported_by_others(self, poll: PollOutcome, found: _Found, past_only: bool) -> dict[str, str]:
        """The offers for which another source is currently used, with the reason."""
        ids = {*found.offers, *(each.offer.id for each in found.flagged if each.offer is not None)}
        own = provider_of_source(poll.source)
        reported = {
            each: f"only {place}'s own sources are used, because {place} is enabled"
            for each in ids
            if (place := provider_of(each)) in self._reserved and place != own
        }
        if past_only:
            return reported
        with self._store.read() as tx:
            for each in tx.reported_by_others(poll.source, ids - reported.keys()):
                cloud = provider_of(each.offer_id)
                silent_s = (poll.ended_at_ms - each.heard_ms) / 1000
                if abs(silent_s) <= fresh_s(each.source) and (own != cloud or provider_of_source(each.source) == cloud):
                    reported[each.offer_id] = f"{each.source} already reports its price"
        return reported

    def _of(self, source: str, region: str) -> _Found:
        return self._found.setdefault((source, region), _Found())


def _without(found: _Found, reported: Mapping[str, str]) -> _Found:
    """What was found, without the offers for which another source is used: if they have a price here, it is kept in a
    flag without effect."""
    if not reported:
        return found
    priced = {each.offer_id: each for each in found.points}
    priced = {each.offer.id: each.point for each in found.flagged if each.offer is not None and each.point} | priced
    kept = [each for each in found.flagged if each.offer is None or each.offer.id not in reported]
    kept += [
        facts.FlaggedFinding(facts.Flag.NOT_ITS_OWN, name, reported[name], None, priced[name])
        for name in reported
        if name in priced
    ]
    return _Found(
        {name: offer for name, offer in found.offers.items() if name not in reported},
        [each for each in found.points if each.offer_id not in reported],
        kept,
        found.signals,
    )


def provider_of_source(source: str) -> str:
    """The provider of a source: "aws" for "aws-spot"; a feed is its own provider."""
    return source.partition(":")[0].partition("-")[0]


def _parted(points: Sequence[PricePoint]) -> tuple[list[list[PricePoint]], list[PricePoint]]:
    """(batches to write first, oldest first; the rest)."""
    if len(points) <= AT_ONCE:
        return [], list(points)
    ordered = sorted(points, key=lambda point: point.effective_at_ms)
    batches = [ordered[first : first + AT_ONCE] for first in range(0, len(ordered), AT_ONCE)]
    return batches[:-1], batches[-1]


def _split(found: _Found, past_only: bool) -> tuple[list[NewFlag], list[NewFlag]]:
    """(past flags, current flags). Past flags do not affect an offer: a later price has replaced theirs, or their
    source only reports the past."""
    newest: dict[str, int] = {}
    for point in [*found.points, *(each.point for each in found.flagged if each.point is not None)]:
        newest[point.offer_id] = max(point.effective_at_ms, newest.get(point.offer_id, 0))
    past: list[NewFlag] = []
    present: list[NewFlag] = []
    for each in found.flagged:
        replaced = each.point is not None and newest.get(each.point.offer_id, -1) > each.point.effective_at_ms
        (past if replaced or (past_only and each.offer is not None) else present).append(stored(each))
    return past, present


def stored(each: facts.FlaggedFinding) -> NewFlag:
    """A finding as a flag to store. An ambiguous price also has a valid row, so it does not affect an offer."""
    offer = None if each.flag is facts.Flag.AMBIGUOUS else each.offer
    return NewFlag(
        each.flag.value,
        each.subject,
        each.detail,
        None if offer is None else offer.id,
        None if each.point is None else each.point.nano_usd_per_hour,
        None if each.point is None else each.point.effective_at_ms,
        each.flag is facts.Flag.OUTLIER,
    )
