"""Prices: status, polls, live changes and collection."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from orchestrator.engine.machines.collect import collect as poll_providers
from orchestrator.engine.machines.collect import collector
from orchestrator.errors import ProviderFailure, UsageError
from orchestrator.installation import Installation
from orchestrator.prices.sources import SOURCES, asked_sources, configured_sources
from orchestrator.prices.views import (
    CollectedRegion,
    PollList,
    PriceChange,
    PriceCollection,
    PricedRegion,
    PriceStatus,
)
from orchestrator.services.paging import Cursors, checked_limit
from orchestrator.services.prices.history import gpu_kinds
from orchestrator.store import PollState
from providers.collect.runner import PollOutcome, SourceSpec
from providers.errors import ProviderError
from providers.offer import region_of
from providers.price import PricePoint

NEWEST_FLAGS = 10
LOOK_EVERY_S = 60.0  # at least this often, because the clock may be changed

OnRegion = Callable[[CollectedRegion], None]


@dataclass(frozen=True, slots=True)
class _Poll:
    seq: int


_CURSORS = Cursors("price-polls", _Poll)


def status(installation: Installation) -> PriceStatus:
    """The age and state of the prices of every source and region."""
    now, outside_now = installation.clock.now_ms(), installation.outside_clock.now_ms()
    with installation.store.read() as tx:
        states, counts = tx.poll_states(), tx.flag_counts()
        flags, kept_from = tx.flags(limit=NEWEST_FLAGS), tx.kept_from_ms()
    regions = tuple(
        PricedRegion(
            provider=state.provider,
            source=state.source,
            region=state.region,
            polled_at_ms=state.finished_ms,
            age_s=None
            if state.good_finished_ms is None
            else ((now if _of_this_market(installation, state) else outside_now) - state.good_finished_ms) / 1000,
            failures=state.failures,
            offers=state.offers_seen,
            flags=counts.pop((state.source, state.region), {}),
            error=state.error,
            hint=state.hint,
            suspect=state.suspect,
            passed=state.passed or "",
            simulated=_of_this_market(installation, state) and installation.providers[state.source].simulated,
        )
        for state in states
    )
    return PriceStatus(outside_now, regions, tuple(flags), kept_from, any(each.simulated for each in regions))


def _of_this_market(installation: Installation, state: PollState) -> bool:
    """True if the tick polled it, by market time; collectors poll by real time, also for an enabled provider."""
    return state.source in installation.providers


def polls(
    installation: Installation, provider: str | None = None, *, limit: int | None = 100, cursor: str | None = None
) -> PollList:
    """The latest `limit` price polls of a provider (None: of all), newest first; `cursor` continues a listing. Raises
    UsageError for an invalid limit or cursor."""
    most, filters = checked_limit(limit), {"provider": provider}
    before = _CURSORS.read(cursor, filters)
    with installation.store.read() as tx:
        found = tx.polls(
            provider, None if most is None else most + 1, before_seq=None if before is None else before.seq
        )
    page = found[:most]
    more = len(page) < len(found)
    return PollList(tuple(page), _CURSORS.write(_Poll(page[-1].seq), filters) if more else None)


def watch(installation: Installation, *, gpu: str | None = None, every_wall_s: float = 2.0) -> Iterator[PriceChange]:
    """Price changes and failed or untrusted polls, as they are stored; it never ends. Times are those of each market:
    simulated market time runs faster. Raises UsageError."""
    kinds = gpu_kinds(gpu)
    prices, troubles = _snapshot(installation, kinds)
    while True:
        installation.clock.sleep(every_wall_s)
        new_prices, new_troubles = _snapshot(installation, kinds)
        for name, (point, simulated) in new_prices.items():
            before = prices.get(name)
            price, old = point.nano_usd_per_hour, None if before is None else before[0].nano_usd_per_hour
            if price != old:
                at_ms, region = point.observed_at_ms, region_of(name)
                yield PriceChange(at_ms, name, point.source, region, price, old, None, simulated)
        for place, (at_ms, trouble, simulated) in new_troubles.items():
            if trouble and troubles.get(place) != (at_ms, trouble, simulated):
                yield PriceChange(at_ms, None, *place, None, None, trouble, simulated)
        prices, troubles = new_prices, new_troubles


def collect(
    installation: Installation,
    *,
    clouds: Sequence[str] = (),
    feeds: Sequence[tuple[str, str]] = (),
    once: bool = True,
    reported: OnRegion = lambda _: None,
    specs: Sequence[SourceSpec] | None = None,
) -> PriceCollection:
    """Polls the sources of `clouds` and `feeds` (name, file or URL); without either, the enabled providers and the
    configured sources.

    Unless `once`, it never ends and polls each region at its own interval. `specs` are sources with their own options,
    used instead. Raises UsageError, StoreError; a provider's failure is in the result of its poll.
    """
    for cloud in clouds:
        if cloud not in SOURCES:
            raise UsageError(f"there is no collector for {cloud}", hint=f"one of {', '.join(SOURCES)}")
    seen: list[CollectedRegion] = []
    all_of_them = specs is None and not clouds and not feeds
    if specs is None:
        specs = (
            configured_sources(installation.config)
            if all_of_them
            else asked_sources(installation.config, clouds, feeds)
        )

    def keep(poll: PollOutcome) -> None:
        seen.append(_collected(poll))
        reported(seen[-1])

    if all_of_them:
        for poll in _enabled(installation):
            seen.append(poll)
            reported(poll)
    clock = installation.outside_clock
    try:
        collecting = collector(
            installation.store, clock, specs, random.Random(), keep, reserved=installation.providers.keys()
        )
    except ProviderError as error:
        raise ProviderFailure(str(error), hint=error.hint) from error
    collecting.collect()
    while not once:
        seen.clear()
        due_ms = collecting.next_ms()
        wait_s = 1.0 if due_ms is None else (due_ms - clock.now_ms()) / 1000
        clock.sleep(min(max(1.0, wait_s), LOOK_EVERY_S))
        collecting.collect()
    return PriceCollection(tuple(seen))


def _enabled(installation: Installation) -> list[CollectedRegion]:
    """Polls every enabled provider once."""
    started = installation.clock.now_ms()
    poll_providers(installation)
    with installation.store.read() as tx:
        made = [poll for poll in tx.polls(limit=len(installation.providers)) if poll.started_ms >= started]
    return [
        CollectedRegion(
            poll.source,
            poll.region,
            poll.started_ms,
            poll.finished_ms,
            poll.offers_seen,
            poll.changed,
            poll.flagged,
            poll.error,
            poll.hint or "",
        )
        for poll in made
    ]


def _collected(poll: PollOutcome) -> CollectedRegion:
    return CollectedRegion(
        poll.source,
        poll.region,
        poll.started_at_ms,
        poll.ended_at_ms,
        poll.offers,
        poll.changed,
        poll.flagged,
        None if poll.error is None else str(poll.error),
        "" if poll.error is None else poll.error.hint,
        poll.suspect,
        dict(poll.skipped),
    )


def _snapshot(
    installation: Installation, gpus: Collection[str]
) -> tuple[dict[str, tuple[PricePoint, bool]], dict[tuple[str, str], tuple[int, str, bool]]]:
    """The latest price by offer, and whether it is simulated; the last poll by source and region: its time, its problem
    and whether it is simulated."""
    with installation.store.read() as tx:
        simulated = {offer.id: offer.simulated for offer in tx.offers() if not gpus or offer.gpu in gpus}
        points = tx.newest_prices()
        states = tx.poll_states()
    prices = {each.offer_id: (each, simulated[each.offer_id]) for each in points if each.offer_id in simulated}
    troubles = {
        (each.source, each.region): (
            each.finished_ms,
            each.error or each.suspect or "",
            _of_this_market(installation, each) and installation.providers[each.source].simulated,
        )
        for each in states
    }
    return prices, troubles
