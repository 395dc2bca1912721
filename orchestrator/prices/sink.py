"""What collectors find, into the store: each poll of a region in one transaction, when it is over.

Of a long history all but the newest changes go before it, some thousands at once: nobody waits long for the store. What
a poll found before it failed counts, and is marked by the poll's error; only a whole one may say that an offer is gone.
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
"""Price changes in one transaction: about a third of a second."""


@dataclass(slots=True)
class _Found:
    offers: dict[str, Offer] = field(default_factory=dict)
    points: list[PricePoint] = field(default_factory=list)
    flagged: list[facts.FlaggedFinding] = field(default_factory=list)
    signals: list[facts.Signal] = field(default_factory=list)


class StoreSink:
    """A sink (providers.collect.runner.Sink) that writes to `store` and tells of every poll that is stored.

    `ended` raises StoreError; the polls before it are stored. A control plane's `leadership` guards each of its writes;
    None for a person's own collecting. Of each offer one source tells at a time: of `reserved` providers, where
    machines are rented and booked, their own; of others whoever tells first, until that one falls silent or is not
    believed, and a cloud's own source before a feed. What another one says is kept as a flag that touches no offer.
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
        self._told = reported
        self._found: dict[tuple[str, str], _Found] = {}

    def offers(self, source: str, region: str, offers: Sequence[Offer]) -> None:
        self._of(source, region).offers.update((offer.id, offer) for offer in offers)

    def prices(self, source: str, region: str, points: Sequence[PricePoint]) -> None:
        self._of(source, region).points.extend(points)

    def flagged(self, source: str, region: str, flagged: Sequence[facts.FlaggedFinding]) -> None:
        self._of(source, region).flagged.extend(flagged)

    def signals(self, source: str, region: str, signals: Sequence[facts.Signal]) -> None:
        self._of(source, region).signals.extend(signals)

    def ended(self, poll: PollOutcome) -> None:
        found = self._found.pop((poll.source, poll.region), _Found())
        provider = provider_of_source(poll.source)
        whole, past_only = poll.error is None, history_of(poll.source) == "only"
        found = _without(found, self._told_by_others(poll, found, past_only))
        only_flagged = {
            each.offer.id: each.offer
            for each in found.flagged
            if each.offer is not None and each.offer.id not in found.offers
        }
        # Nobody knew a price before its poll had ended: a market as of an instant within it must not see it.
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
            if suspect:  # what it drops and says only why is not believed either
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
        self._told(replace(poll, suspect=suspect))

    def _told_by_others(self, poll: PollOutcome, found: _Found, past_only: bool) -> dict[str, str]:
        """The offers of which another source tells now, and why that one counts."""
        ids = {*found.offers, *(each.offer.id for each in found.flagged if each.offer is not None)}
        own = provider_of_source(poll.source)
        reported = {
            each: f"only {place}'s own sources tell prices of it, because it is enabled"
            for each in ids
            if (place := provider_of(each)) in self._reserved and place != own
        }
        if past_only:
            return reported
        with self._store.read() as tx:
            for each in tx.told_by_others(poll.source, ids - reported.keys()):
                cloud = provider_of(each.offer_id)
                silent_s = (poll.ended_at_ms - each.heard_ms) / 1000
                if abs(silent_s) <= fresh_s(each.source) and (own != cloud or provider_of_source(each.source) == cloud):
                    reported[each.offer_id] = f"{each.source} tells its price, and counts as long as it is heard"
        return reported

    def _of(self, source: str, region: str) -> _Found:
        return self._found.setdefault((source, region), _Found())


def _without(found: _Found, reported: Mapping[str, str]) -> _Found:
    """What was found but for the offers of which others tell: of each that is priced otherwise here a flag that touches
    none, with what was said."""
    if not reported:
        return found
    said = {each.offer_id: each for each in found.points}
    said = {each.offer.id: each.point for each in found.flagged if each.offer is not None and each.point} | said
    kept = [each for each in found.flagged if each.offer is None or each.offer.id not in reported]
    kept += [
        facts.FlaggedFinding(facts.Flag.NOT_ITS_OWN, name, reported[name], None, said[name])
        for name in reported
        if name in said
    ]
    return _Found(
        {name: offer for name, offer in found.offers.items() if name not in reported},
        [each for each in found.points if each.offer_id not in reported],
        kept,
        found.signals,
    )


def provider_of_source(source: str) -> str:
    """The provider of a source: "aws" of "aws-spot"; a feed is its own."""
    return source.partition(":")[0].partition("-")[0]


def _parted(points: Sequence[PricePoint]) -> tuple[list[list[PricePoint]], list[PricePoint]]:
    """What is written before the rest, in batches, the oldest first; and the rest."""
    if len(points) <= AT_ONCE:
        return [], list(points)
    ordered = sorted(points, key=lambda point: point.effective_at_ms)
    batches = [ordered[first : first + AT_ONCE] for first in range(0, len(ordered), AT_ONCE)]
    return batches[:-1], batches[-1]


def _split(found: _Found, past_only: bool) -> tuple[list[NewFlag], list[NewFlag]]:
    """NewFlag rows of the past, which leave no offer out: a later price, sound or flagged, has overtaken them, or their
    source tells nothing else; and those of the present."""
    newest: dict[str, int] = {}
    for point in [*found.points, *(each.point for each in found.flagged if each.point is not None)]:
        newest[point.offer_id] = max(point.effective_at_ms, newest.get(point.offer_id, 0))
    past: list[NewFlag] = []
    present: list[NewFlag] = []
    for each in found.flagged:
        overtaken = each.point is not None and newest.get(each.point.offer_id, -1) > each.point.effective_at_ms
        (past if overtaken or (past_only and each.offer is not None) else present).append(stored(each))
    return past, present


def stored(each: facts.FlaggedFinding) -> NewFlag:
    """A flag as the store has it. An ambiguous price has a sound twin: its row leaves no offer out."""
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
