"""Lists offers with their prices; for a job, with its figures and in the order of its plan.

Offers of enabled providers come from the store; those of other clouds from collected prices and the catalogue.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from orchestrator.errors import UsageError
from orchestrator.prices.collected import NOTHING, Collected, collected, elsewhere, may_have_collected
from orchestrator.services.offers.filters import OfferQuery, select
from orchestrator.services.offers.views import PARTS, OfferGroup, OfferList, OfferRow
from orchestrator.services.paging import Cursors, checked_limit
from providers.registry import without_provider
from providers.traits import traits_of

if TYPE_CHECKING:
    from orchestrator.config import Config
    from orchestrator.installation import Installation
    from orchestrator.model import JobSpec

Grouping = Literal["gpu", "region", "cloud"]

_ALL = OfferQuery()


_Last = tuple[tuple[float, ...], str]  # sort key of an offer (smaller comes first), and its id


@dataclass(frozen=True, slots=True)
class _Place:
    """The end of a page: the market time and real time of its prices, and the last offer of each part up to it."""

    at_ms: int
    now_ms: int
    simulated: _Last | None
    enabled: _Last | None
    elsewhere: _Last | None


_CURSORS = Cursors("offers", _Place)


def offers(
    config: Config,
    installation: Callable[[], Installation],
    query: OfferQuery = _ALL,
    *,
    now_ms: int,
    spec: JobSpec | None = None,
    group_by: Grouping | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> OfferList:
    """The matching offers, cheapest per hour first and those without a price last; with `spec`, those that the job can
    use, ranked as in its plan: a filter hides offers but changes neither figures nor order.

    The list has three parts: simulated offers, those of enabled providers, and those of clouds that are not enabled.
    `limit` applies to each part; `cursor` continues a listing at the prices of its first
    page. `installation` is opened only if it may have a matching offer or if the job needs it. `now_ms` is real time,
    used for the age of catalogue prices. Raises UsageError if no offer matches and for an invalid limit, cursor or
    grouping, InfeasibleError if no matching offer fits the job.
    """
    if group_by is not None and group_by not in get_args(Grouping):
        known = ", ".join(get_args(Grouping))
        raise UsageError(f"{group_by!r:.80} is not a way to group offers", hint=f"one of {known}")
    most, filters = checked_limit(limit), {"query": query, "job": spec, "group_by": group_by}
    last = _CURSORS.read(cursor, filters)
    own = [
        name
        for name in config.providers.enabled
        if query.asks(name, simulated_gpus_only=traits_of(name).only_simulated_gpus)
    ]
    at_ms = market_ms = now_ms = now_ms if last is None else last.now_ms
    heard = NOTHING
    if own or spec is not None or may_have_collected(config):
        heard = collected(installation(), None if last is None else now_ms)
    rows = list(_elsewhere(now_ms, config.providers.enabled, heard))
    if own or spec is not None:
        if own and last is None:
            _freshen(installation())
        market_ms = installation().clock.now_ms() if last is None else last.at_ms
    if own:
        at_ms = market_ms
        rows += _enabled(installation(), market_ms)
    found = select(rows, query)
    placed = [(_by_price(row), row) for row in found]
    source, unfit = "", tuple[tuple[str, int], ...]()
    if spec is not None:
        from orchestrator.services.offers.ranking import rank_for_job

        ranked = rank_for_job(spec, found, installation(), now_ms, heard, at_ms=market_ms)
        source, unfit = ranked.throughput_source, ranked.unfit
        placed = [((standing, row.id), row) for standing, row in zip(ranked.standings, ranked.rows, strict=True)]
    placed.sort(key=lambda each: (not each[1].simulated, each[0]))
    found = [row for _, row in placed]
    page, ends, more = _page(placed, last, most)
    not_enabled = {row.provider for row in found if not row.enabled}
    return OfferList(
        at_ms=at_ms,
        offers=tuple(page) if group_by is None else (),
        simulated=any(row.simulated for row in found),
        count=len(found),
        groups=_groups(found, group_by, limit) if group_by is not None else (),
        not_enabled=tuple(sorted(not_enabled)),
        no_provider=without_provider(not_enabled),
        job=None if spec is None else spec.name,
        throughput_source=source,
        unfit=unfit,
        next_cursor=_CURSORS.write(_Place(market_ms, now_ms, *ends), filters) if more and group_by is None else None,
    )


def _by_price(row: OfferRow) -> _Last:
    return (float(row.nano_usd_per_hour is None), float(row.nano_usd_per_hour or 0)), row.id


def _page(
    placed: Sequence[tuple[_Last, OfferRow]], last: _Place | None, most: int | None
) -> tuple[list[OfferRow], list[_Last | None], bool]:
    """The next offers of each part, the last of each, and whether there are more."""
    page: list[OfferRow] = []
    ends: list[_Last | None] = []
    more = False
    for part in PARTS:
        end: _Last | None = None if last is None else getattr(last, part)
        to_come = [each for each in placed if each[1].part == part and (end is None or each[0] > end)]
        page += [row for _, row in to_come[:most]]
        ends.append(to_come[:most][-1][0] if to_come else end)
        more = more or (most is not None and len(to_come) > most)
    return page, ends, more


def _groups(rows: Sequence[OfferRow], group_by: Grouping, limit: int | None) -> tuple[OfferGroup, ...]:
    members: dict[tuple[bool, str], list[OfferRow]] = {}
    for row in rows:
        name = {
            "gpu": "no GPU" if row.gpu is None else f"{row.gpu}:{row.gpu_count}",
            "region": f"{row.provider}/{row.region}",
            "cloud": row.provider,
        }[group_by]
        members.setdefault((row.simulated, name), []).append(row)
    groups = [OfferGroup(name, len(found), found[0]) for (_, name), found in members.items()]
    return tuple(groups[:limit])


def _elsewhere(now_ms: int, enabled: Collection[str], heard: Collected) -> Iterator[OfferRow]:
    """Offers of clouds that are not enabled."""
    for each in elsewhere(heard, enabled):
        age_s, simulated = max(now_ms - each.known_ms, 0) / 1000, each.offer.simulated
        yield OfferRow.of(each.offer, each.price, age_s=age_s, source=each.source, simulated=simulated, enabled=False)


def _freshen(installation: Installation) -> None:
    """Polls the enabled providers if their prices are old."""
    from orchestrator.services.jobs.plan import freshen

    freshen(installation)


def _enabled(installation: Installation, at_ms: int) -> list[OfferRow]:
    """The offers of enabled providers, at the prices known at `at_ms` (market time)."""
    from orchestrator.services.jobs.current import simulated

    with installation.store.read() as tx:
        prices = {point.offer_id: point for point in tx.payable_as_of(at_ms)}
        heard = {(each.provider, each.region, each.spot): each.until_ms for each in tx.polled()}
        rows = []
        for offer in tx.offers(installation.providers):
            price, until_ms = prices.get(offer.id), heard.get((offer.provider, offer.region, offer.spot))
            rows.append(
                OfferRow.of(
                    offer,
                    price,
                    age_s=None if until_ms is None else max(at_ms - until_ms, 0) / 1000,
                    source="" if price is None else price.source,
                    simulated=offer.simulated or simulated(installation, offer.id),
                    enabled=True,
                )
            )
    return rows
