"""Collect: stores providers' offers and prices.

A failed poll is recorded with its error, so that "no change" and "no data" remain distinguishable.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from orchestrator.engine.calls import Answer
from orchestrator.engine.context import Context
from orchestrator.engine.direct_calls import Ask, at_once
from orchestrator.installation import Installation
from orchestrator.prices.sink import StoreSink, stored
from orchestrator.prices.suspect import ENABLED_INTERVAL_S, suspicion
from orchestrator.store import Leadership, Store, Tx
from orchestrator.store.market.prices import DAY_MS
from providers.base import LimitsByQuota, NamesClosed, Provider, ProvidesPriceHistory, Quota
from providers.clock import Clock
from providers.closed import Closed, refused
from providers.collect.anchors import Anchors
from providers.collect.facts import Flag
from providers.collect.judge import Judge
from providers.collect.runner import Collector, Known, PollOutcome, SourceSpec
from providers.errors import ProviderError
from providers.offer import Offer
from providers.price import PricePoint

BEFORE_MS = 7 * DAY_MS
"""How far back prices are requested at first: enough to estimate their usual level (market.reversion)."""
MOST_FLAGS = 10_000
"""Prices that wait for confirmation, newest first; far more than a market has."""
Polled = tuple[Sequence[Offer], Sequence[PricePoint], Sequence[Quota] | None]
"""Quotas are None if the provider has none that limit plans, or did not answer."""


def collect(installation: Installation, leadership: Leadership | None = None, ask: Ask = at_once) -> int:
    """Poll every enabled provider once. Returns how many prices changed. `ask` makes the calls.

    `leadership` is the caller's; None only if a user queries the market while no control plane runs. Raises
    NotLeaderError.
    """
    return sum(collect_from(installation, leadership, provider, ask) for provider in installation.providers.values())


def collector(
    store: Store,
    clock: Clock,
    specs: Sequence[SourceSpec],
    chance: random.Random,
    reported: Callable[[PollOutcome], None] = lambda _: None,
    *,
    leadership: Leadership | None = None,
    reserved: Collection[str] = (),
) -> Collector:
    """A collector from `specs` into `store`, which continues where the last one ended. Its child processes import the
    modules that the sources need; `reported` is called for each region's poll once it is stored. `leadership`: as for
    `collect`; `reserved` are the enabled providers, whose offers no other source may report."""

    def recall() -> Known:
        with store.read() as tx:
            offers = {offer.id: offer for offer in tx.offers()}
            states = {(state.source, state.region): state for state in tx.poll_states()}
            return Known(
                [(offers[point.offer_id], point) for point in tx.newest_prices()],
                {place: state.newest_ms for place, state in states.items() if state.newest_ms is not None},
                _unconfirmed(tx),
                _implausible(tx),
                frozenset(place for place, state in states.items() if state.failures),
            )

    return Collector(specs, StoreSink(store, reported, leadership, reserved), clock, chance, recall=recall)


def poll_prices(ctx: Context, provider: Provider, every_s: float) -> int | None:
    """Poll a provider at most every `every_s` wall seconds, and store its answer when it comes. Returns how many prices
    and quotas changed; None if there was no new answer."""
    key, place = f"collect:{provider.name}", (provider.name, "")
    answer = ctx.answer(key)
    if answer is None and ctx.may_ask(key, place, every_s):
        answer = ctx.begin(key, place, question(ctx.installation, provider))
    if answer is None:
        return None
    return record(ctx.installation, ctx.leadership, provider, answer)


def collect_from(
    installation: Installation, leadership: Leadership | None, provider: Provider, ask: Ask = at_once
) -> int:
    """Poll one provider and wait for it. Returns how many prices changed. Raises NotLeaderError."""
    asked_ms, asked_s = installation.clock.now_ms(), installation.clock.monotonic_s()
    try:
        answer = Answer(asked_ms, asked_s, ask(provider.name, question(installation, provider)))
    except ProviderError as error:
        answer = Answer(asked_ms, asked_s, error=error)
    return record(installation, leadership, provider, answer)


def question(installation: Installation, provider: Provider) -> Callable[[], Polled]:
    """The call that polls a provider: for all price changes since its last successful poll if it has a history (at
    first, or if the last poll was dated by a clock that was ahead, for the last BEFORE_MS); else for the present
    prices."""
    if not isinstance(provider, ProvidesPriceHistory):
        return lambda: _polled(provider, provider.prices)
    with installation.store.read() as tx:
        known_ms = tx.last_good_poll_ms(provider.name)
    now_ms = installation.clock.now_ms()
    since_ms = now_ms - BEFORE_MS if known_ms is None or known_ms > now_ms else known_ms
    return lambda: _polled(provider, lambda: provider.price_history(since_ms))


def _polled(provider: Provider, prices: Callable[[], Sequence[PricePoint]]) -> Polled:
    """Prices first: most providers list the offers for which they returned prices. If an offer is not listed, because
    its region answered only one of the two requests, its price is left out."""
    found = prices()
    offers = provider.offers()
    listed = {offer.id for offer in offers}
    return offers, [point for point in found if point.offer_id in listed], _quotas(provider)


def _quotas(provider: Provider) -> Sequence[Quota] | None:
    """Read separately from prices: an account may have permission to read one but not the other."""
    if not (isinstance(provider, LimitsByQuota) and provider.quotas_limit_plans):
        return None
    try:
        return provider.quotas()
    except ProviderError:
        return None


def _closed(provider: Provider) -> list[Closed]:
    return list(provider.closed()) if isinstance(provider, NamesClosed) else []


def record(
    installation: Installation, leadership: Leadership | None, provider: Provider, answer: Answer[Polled]
) -> int:
    """Store the result of a poll. Returns how many prices changed, plus one if quotas changed. Raises
    NotLeaderError."""
    started = answer.asked_ms
    try:
        offers, prices, quotas = answer.result()
    except ProviderError as error:
        with installation.store.write(leadership) as tx:
            tx.record_poll(provider.name, started, installation.clock.now_ms(), 0, 0, str(error))
            if not error.retryable:
                tx.set_closed(provider.name, _closed(provider) or [refused("", error)])
        return 0
    with installation.store.read() as tx:
        listed = tx.offers([provider.name])
        known = {point.offer_id: point for point in tx.newest_prices([provider.name])}
        judge_of = partial(Judge, unconfirmed=_unconfirmed(tx), implausible=_implausible(tx), anchors=Anchors())
    with installation.store.write(leadership) as tx:
        named = {offer.id for offer in offers}
        suspect = suspicion(tx, provider.name, "", "", named, started, ENABLED_INTERVAL_S)
        if {offer.id for offer in listed} != named:
            tx.put_offers(provider.name, offers, whole=not suspect)
        changed = 0
        if any(_is_new(known.get(point.offer_id), point, started) for point in prices):
            changed = _judge(tx, provider.name, installation.clock.now_ms(), offers, prices, known, judge_of)
        tx.record_poll(provider.name, started, installation.clock.now_ms(), len(offers), changed, None, suspect=suspect)
        tx.set_closed(provider.name, _closed(provider))
        changed += quotas is not None and tx.set_quotas(provider.name, list(quotas), started)
    return changed


def _judge(
    tx: Tx,
    name: str,
    now_ms: int,
    offers: Sequence[Offer],
    prices: Sequence[PricePoint],
    known: Mapping[str, PricePoint],
    judge_of: Callable[[list[tuple[Offer, PricePoint]]], Judge],
) -> int:
    """Store which of a provider's prices are payable and which are flagged. Returns how many changed."""
    judge = judge_of([(offer, known[offer.id]) for offer in offers if offer.id in known])
    judged = judge.judge(offers, prices, name)
    changed = tx.add_prices(judged.payable)
    sound = {each.offer_id for each in prices}
    tx.put_flags(name, "", now_ms, [stored(each) for each in judged.flagged], sound=sound)
    return changed


def _is_new(known: PricePoint | None, point: PricePoint, now_ms: int) -> bool:
    if known is None or known.observed_at_ms > now_ms:  # by a clock that was ahead
        return True
    return (known.effective_at_ms, known.nano_usd_per_hour) != (point.effective_at_ms, point.nano_usd_per_hour)


def _unconfirmed(tx: Tx) -> dict[str, PricePoint]:
    """Outlier prices that wait for a second report, by offer."""
    return {
        each.subject: PricePoint(
            each.subject, each.nano_usd_per_hour, each.effective_at_ms, each.opened_ms, each.source
        )
        for each in tx.open_flags(Flag.OUTLIER.value, limit=MOST_FLAGS)
        if each.nano_usd_per_hour is not None and each.effective_at_ms is not None
    }


def _implausible(tx: Tx) -> dict[str, dict[str, int]]:
    """Implausible prices that wait for a second source, by offer and source, in nano-USD per hour."""
    reported: dict[str, dict[str, int]] = {}
    for each in tx.open_flags(Flag.IMPLAUSIBLE.value, limit=MOST_FLAGS):
        reported.setdefault(each.subject, {})[each.source] = each.nano_usd_per_hour or 0
    return reported
