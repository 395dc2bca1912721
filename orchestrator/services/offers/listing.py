"""Offers: what can be rented, and for how much; for a job, in its figures and in the order of its plan.

What the enabled providers said last, from the store; and of other clouds what was collected, merged with the catalogue
that came with this version, as old as it says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from orchestrator.prices.collected import NOTHING, Collected, collected, elsewhere, may_have_collected
from orchestrator.services.offers.filters import OfferQuery, select
from orchestrator.services.offers.views import OfferGroup, OfferList, OfferRow
from providers.traits import traits_of

if TYPE_CHECKING:
    from orchestrator.config import Config
    from orchestrator.installation import Installation
    from orchestrator.model import JobSpec

Grouping = Literal["gpu", "region", "cloud"]

_ALL = OfferQuery()


def offers(
    config: Config,
    installation: Callable[[], Installation],
    query: OfferQuery = _ALL,
    *,
    now_ms: int,
    spec: JobSpec | None = None,
    group_by: Grouping | None = None,
    limit: int | None = None,
) -> OfferList:
    """Every offer that matches, cheapest per hour first and those without a price last; with `spec` those that the job
    can use, as a plan of it ranks them: a filter hides offers, and changes neither figures nor order.

    `installation` is opened only if it may have such an offer or knows of the job. `now_ms` is the real time, by which
    the catalogue ages. Raises UsageError when a filter leaves nothing, InfeasibleError when no offer that matches fits
    the job.
    """
    own = [
        name
        for name in config.providers.enabled
        if query.asks(name, simulated_gpus_only=traits_of(name).only_simulated_gpus)
    ]
    at_ms = now_ms
    heard = collected(installation()) if own or spec is not None or may_have_collected(config) else NOTHING
    rows = list(_elsewhere(now_ms, config.providers.enabled, heard))
    if own:
        opened = installation()
        at_ms = opened.clock.now_ms()
        rows += _enabled(opened, at_ms)
    found = select(rows, query)
    if spec is not None:
        from orchestrator.services.offers.ranking import rank_for_job

        ranked = rank_for_job(spec, found, installation(), now_ms, heard)
        found, source, unfit = list(ranked.rows), ranked.throughput_source, ranked.unfit
        found.sort(key=lambda row: not row.simulated)
    else:
        source, unfit = "", ()
        found.sort(key=_order)
    shown = found if limit is None else _head(found, limit)
    return OfferList(
        at_ms=at_ms,
        offers=tuple(shown) if group_by is None else (),
        simulated=any(row.simulated for row in found),
        count=len(found),
        groups=_groups(found, group_by, limit) if group_by is not None else (),
        not_enabled=tuple(sorted({row.provider for row in found if not row.enabled})),
        job=None if spec is None else spec.name,
        throughput_source=source,
        unfit=unfit,
    )


def _order(row: OfferRow) -> tuple[bool, bool, int, str]:
    return not row.simulated, row.nano_usd_per_hour is None, row.nano_usd_per_hour or 0, row.id


def _head(rows: Sequence[OfferRow], limit: int) -> list[OfferRow]:
    """The first of the simulated offers and the first of the real ones."""
    return [
        row for simulated in (True, False) for row in [each for each in rows if each.simulated is simulated][:limit]
    ]


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
    """What is known of clouds that are not enabled."""
    for each in elsewhere(heard, enabled):
        age_s, simulated = max(now_ms - each.known_ms, 0) / 1000, each.offer.simulated
        yield OfferRow.of(each.offer, each.price, age_s=age_s, source=each.source, simulated=simulated, enabled=False)


def _enabled(installation: Installation, now_ms: int) -> list[OfferRow]:
    """What the enabled providers offer, as collected; asked for again when that is long ago."""
    from orchestrator.services.jobs.current import simulated
    from orchestrator.services.jobs.plan import freshen

    freshen(installation)
    now_ms = max(now_ms, installation.clock.now_ms())
    with installation.store.read() as tx:
        prices = {point.offer_id: point for point in tx.payable_as_of(now_ms)}
        heard = {(each.provider, each.region, each.spot): each.until_ms for each in tx.polled()}
        rows = []
        for offer in tx.offers(installation.providers):
            price, until_ms = prices.get(offer.id), heard.get((offer.provider, offer.region, offer.spot))
            rows.append(
                OfferRow.of(
                    offer,
                    price,
                    age_s=None if until_ms is None else (now_ms - until_ms) / 1000,
                    source="" if price is None else price.source,
                    simulated=offer.simulated or simulated(installation, offer.id),
                    enabled=True,
                )
            )
    return rows
