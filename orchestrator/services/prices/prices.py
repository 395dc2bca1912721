"""Prices: status, history, live changes and collection."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from orchestrator.engine.machines.collect import collect as poll_providers
from orchestrator.engine.machines.collect import collector
from orchestrator.errors import NotFoundError, ProviderFailure, UsageError, did_you_mean
from orchestrator.formats.csv_cells import table
from orchestrator.formats.readable import iso
from orchestrator.installation import Installation
from orchestrator.jobfile.units import BadValueError, parse_duration
from orchestrator.prices.sources import SOURCES, asked_sources, configured_sources
from orchestrator.prices.views import (
    CollectedRegion,
    PollList,
    PriceChange,
    PriceCollection,
    PricedRegion,
    PriceHistory,
    PriceSeries,
    PriceStatus,
)
from orchestrator.services.offers.ids import checked_offer_id
from orchestrator.services.paging import Cursors, checked_limit
from orchestrator.store import Interval, PollState, Tx
from providers.collect.runner import PollOutcome, SourceSpec
from providers.errors import ProviderError
from providers.hardware import GPUS, gpus_named
from providers.money import NANO_USD
from providers.offer import Offer, provider_of, region_of
from providers.price import PricePoint

NEWEST_FLAGS = 10
LOOK_EVERY_S = 60.0  # at least, because the clock may be changed

OnRegion = Callable[[CollectedRegion], None]


@dataclass(frozen=True, slots=True, order=True)
class _Rank:
    """Sort position of a series in a history that ends at `to_ms`."""

    to_ms: int
    past: bool
    nano_usd_per_gpu_hour: float
    offer_id: str


@dataclass(frozen=True, slots=True)
class _Poll:
    seq: int


_CURSORS = Cursors("price-history", _Rank)
_POLL_CURSORS = Cursors("price-polls", _Poll)


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


def history(
    installation: Installation,
    offer_id: str | None = None,
    *,
    gpu: str | None = None,
    provider: str | None = None,
    region: str | None = None,
    spot: bool | None = None,
    since: str = "30d",
    limit: int | None = 6,
    cursor: str | None = None,
) -> PriceHistory:
    """The price history of an offer, or of the `limit` matching offers that are cheapest per GPU at the end; offers
    that are available or changed in the period come first.

    Real and simulated markets have different clocks: if offers of both match, only the real ones are returned.

    `since` is a time as in `instant_of`. `cursor` continues a listing, as of the same time. Raises NotFoundError,
    UsageError.
    """
    most = checked_limit(limit)
    filters = {"offer": offer_id, "gpu": gpu, "provider": provider, "region": region, "spot": spot, "since": since}
    last = _CURSORS.read(cursor, filters)
    offer_id = None if offer_id is None else checked_offer_id(offer_id)
    if offer_id is None and gpu is None and provider is None:
        raise UsageError("this would be every offer there is", hint="name an offer, or --gpu, or --provider")
    with installation.store.read() as tx:
        found = tx.find_offers(offer_id=offer_id, gpus=_gpus(gpu), provider=provider, region=region, spot=spot)
        if not found:
            raise _unknown(tx, offer_id)
        matching, found = found, [each for each in found if not each.simulated] or found
        if last is None:
            now = (installation.clock if found[0].simulated else installation.outside_clock).now_ms()
            ends = tx.price_points_of([Interval(each.id, now, now + 1) for each in found])
            in_force = {each.id: points[-1] for points, each in zip(ends, found, strict=True) if points}
        else:  # newer prices do not change the order
            now = last.to_ms
            in_force = {point.offer_id: point for point in tx.payable_as_of(now)}
        start = instant_of(since, now)
        listed = tx.listed_among([each.id for each in found])
        priced = [each for each in found if each.id in in_force]
        ranked = sorted(
            ((_rank(now, in_force[each.id], each, start, listed), each) for each in priced), key=lambda pair: pair[0]
        )
        to_come = ranked if last is None else [pair for pair in ranked if pair[0] > last]
        page = to_come[:most]
        chosen = [each for _, each in page]
        series = tuple(_series(tx, each, start, now, each.id in listed) for each in chosen)
    simulated = any(each.simulated for each in chosen)
    return PriceHistory(
        from_ms=start,
        to_ms=now,
        series=series,
        left_out=len(found) - len(chosen),
        simulated=simulated,
        other_market=len(matching) - len(found),
        next_cursor=_CURSORS.write(page[-1][0], filters) if len(page) < len(to_come) else None,
    )


def polls(
    installation: Installation, provider: str | None = None, *, limit: int | None = 100, cursor: str | None = None
) -> PollList:
    """The latest `limit` price polls of a provider (None: of all), newest first; `cursor` continues a listing. Raises
    UsageError for an invalid limit or cursor."""
    most, filters = checked_limit(limit), {"provider": provider}
    before = _POLL_CURSORS.read(cursor, filters)
    with installation.store.read() as tx:
        found = tx.polls(
            provider, None if most is None else most + 1, before_seq=None if before is None else before.seq
        )
    page = found[:most]
    more = len(page) < len(found)
    return PollList(tuple(page), _POLL_CURSORS.write(_Poll(page[-1].seq), filters) if more else None)


def history_csv(view: PriceHistory) -> str:
    """A price history as CSV: one row per change, in exact USD per hour for the whole machine."""
    columns = ("offer_id", "gpu", "gpu_count", "effective_at", "observed_at", "price_per_hour")
    rows = (
        (
            series.offer_id,
            series.gpu,
            series.gpu_count,
            iso(effective_ms),
            iso(observed_ms),
            f"{price // NANO_USD}.{price % NANO_USD:09}",
        )
        for series in view.series
        for effective_ms, observed_ms, price in series.points
    )
    return table(columns, rows).rstrip("\n")


def _exact_usd(price_nano_usd: int) -> str:
    return f"{price_nano_usd // NANO_USD}.{price_nano_usd % NANO_USD:09}"


def watch(installation: Installation, *, gpu: str | None = None, every_wall_s: float = 2.0) -> Iterator[PriceChange]:
    """Price changes and failed or untrusted polls, as they are stored; it never ends. Times are those of each market:
    simulated market time runs faster. Raises UsageError."""
    kinds = _gpus(gpu)
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


def _rank(now_ms: int, last: PricePoint, offer: Offer, start_ms: int, listed: Collection[str]) -> _Rank:
    """Offers that are available or changed since `start_ms` come first, then the cheapest per GPU."""
    past = offer.id not in listed and last.effective_at_ms < start_ms
    return _Rank(now_ms, past, last.nano_usd_per_hour / max(1, offer.gpu_count), offer.id)


def _series(tx: Tx, offer: Offer, start_ms: int, end_ms: int, listed: bool) -> PriceSeries:
    points = tx.price_points(offer.id, start_ms, end_ms + 1)
    return PriceSeries(
        offer_id=offer.id,
        gpu=offer.gpu,
        gpu_count=offer.gpu_count,
        listed=listed,
        known_to_ms=tx.priced_to_ms(offer.id),
        points=tuple((each.effective_at_ms, each.observed_at_ms, each.nano_usd_per_hour) for each in points),
        flags=tuple(flag for flag in tx.flags_of(offer.id) if flag.cleared_ms is None or flag.cleared_ms >= start_ms),
    )


def _snapshot(
    installation: Installation, gpus: Collection[str]
) -> tuple[dict[str, tuple[PricePoint, bool]], dict[tuple[str, str], tuple[int, str, bool]]]:
    """By offer, the latest price and whether it is simulated; by source and region, the time of the last poll, its
    problem and whether it is simulated."""
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


def instant_of(text: str, now_ms: int) -> int:
    """The epoch ms of `30d` (that long ago), `2026-11-21` or `2026-11-21T13:00:00Z` (UTC by default).

    Raises UsageError.
    """
    try:
        return now_ms - round(parse_duration(text) * 1000)
    except BadValueError:
        pass
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise UsageError(f"{text!r} is not a time", hint="write 30d, 12h, 2026-11-21 or 2026-11-21T13:00:00Z") from None
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def _gpus(name: str | None) -> tuple[str, ...]:
    """The GPU kinds that a name means; empty: all."""
    if name is None:
        return ()
    kinds = gpus_named(name)
    if not kinds:
        raise UsageError(f"unknown GPU {name}", hint=did_you_mean(name, GPUS) or "see: tradewind offers")
    return kinds


def _unknown(tx: Tx, offer_id: str | None) -> NotFoundError:
    if offer_id is None:
        return NotFoundError("no offer matches", hint="see: tradewind prices status")
    ids = [offer.id for offer in tx.find_offers(provider=provider_of(offer_id))]
    return NotFoundError(
        f"no offer {offer_id} was ever seen", hint=did_you_mean(offer_id, ids) or "see: tradewind offers"
    )
