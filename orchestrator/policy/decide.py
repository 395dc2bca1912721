"""decide: jobs, market, throughput and running jobs -> Plan. Pure and deterministic; the time is `market.at`.

filter (eligible.py) -> forecast (cost.py) -> rank (order.py) -> gate (gate.py) -> explain (explain.py).

Jobs are decided one by one. If their choices together exceed a quota, some jobs are decided again (sharing.py). Jobs
with equal requirements share one filter, and jobs that are equal in everything that affects the decision
(`_equality_key`) share one decision.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import chain, takewhile
from operator import attrgetter
from types import MappingProxyType

from orchestrator.market import Market
from orchestrator.model import TERMINAL, Alternative, Placement, Plan, derived_id
from orchestrator.perf import PerfBook
from orchestrator.policy import gate
from orchestrator.policy.demand import Demand, MoveLimits, Running, Underway
from orchestrator.policy.equivalent_offers import within_quotas
from orchestrator.policy.explanation import explain
from orchestrator.policy.explanation.no_room import REMEDY
from orchestrator.policy.explanation.placement import PlacementBuilder
from orchestrator.policy.probe import LONGEST_PROBE_S
from orchestrator.policy.ranking.by_deadline import choices, wait_of
from orchestrator.policy.ranking.chance import SURER
from orchestrator.policy.ranking.cost import Forecast, forecast_of
from orchestrator.policy.ranking.eligible import NONE, Filter, Filtered, Filters, RejectionReason
from orchestrator.policy.ranking.limits import lacks_money
from orchestrator.policy.ranking.order import rank, reasons_to_go
from orchestrator.policy.ranking.patience import waiting
from orchestrator.policy.room_to_move import may_have_beside
from orchestrator.policy.sharing import shared
from orchestrator.policy.trial import PROBE_S, trial
from orchestrator.policy.underway import EARLIER, weighed_again
from providers.offer import provider_of

_HANDS_OFF = TERMINAL | {"paused", "pausing", "cancelling"}
_ALTERNATIVE = attrgetter(*(field.name for field in fields(Alternative)))
_PLACEMENT = attrgetter(*(field.name for field in fields(Placement) if field.name != "alternatives"))
_UNEQUAL = ("job", "idle_s", "priority", "project_weight")
_PROGRESS = tuple(field.name for field in fields(Demand) if field.name not in _UNEQUAL)
NOTHING_UNDER_WAY: Mapping[str, Underway] = MappingProxyType({})


def decide(
    jobs: Sequence[Demand],
    market: Market,
    perf: PerfBook,
    running: Mapping[str, Running],
    *,
    limits: MoveLimits | None = None,
    underway: Mapping[str, Underway] = NOTHING_UNDER_WAY,
    complete: bool = False,
) -> Plan:
    """One placement per job, ordered by job id, with the alternatives considered and why they were not chosen.

    `running` maps job ids to where they run; jobs whose machine is gone are not in it. The actions:

    - "place": start the job, which is not running or is losing its machine.
    - "stay", "move": keep a running job where it is, or move it. For a move that has begun (`Running.move`, or
      `underway` for a job that is not running), "move" means continue it, and "stay" means abort it.
    - "wait": no offer fits, or the capacity of an offer is worth waiting for. A running job should save a checkpoint
      and release its machine.
    - "none": the job is paused, being cancelled, ended, or being moved.

    A placement lists the best offers and those closest to a fit. With `complete`, it lists every offer of a small
    market (SMALL in eligible.py), which takes twice as long and changes nothing else.
    """
    limits = limits if limits is not None else MoveLimits()
    moves = {job_id: where.move for job_id, where in running.items() if where.move is not None}
    moves |= {job_id: move for job_id, move in underway.items() if job_id not in running}
    known: dict[int, tuple[Market, Filters, dict[Hashable, Placement]]] = {}

    def placed(demand: Demand, there: Market) -> Placement:
        # Keeping the market ensures that no other object gets its id.
        if id(there) not in known:
            known[id(there)] = there, Filters(there, limits), {}
        _, filters, twins = known[id(there)]
        filtering = filters.of(demand.nodes)
        where, move = running.get(demand.job.id), moves.get(demand.job.id)
        return _place(demand, filtering, filtering.market, perf, where, move, limits, twins, complete=complete)

    alone = {demand.job.id: placed(demand, market) for demand in _alike_together(jobs)}
    demands = {demand.job.id: demand for demand in jobs}
    together = shared(alone, demands, moves, market, placed)
    placements = sorted(together.values(), key=lambda placement: placement.job_id)
    placements = list(within_quotas(placements, demands, moves, market))
    simulated = market.listing.simulated and not (market.listing.mixed and _all_real(placements, market))
    name = plan_id(market.at, market.digest, simulated, placements)
    return Plan(name, market.at, market.digest, simulated, tuple(placements))


def _alike_together(jobs: Sequence[Demand]) -> Iterator[Demand]:
    """The jobs, ordered so that jobs with equal requirements, and equal checkpoints in the same place, follow each
    other. They share results from caches that keep only a few entries. No decision depends on the order."""
    groups: dict[Hashable, list[Demand]] = {}
    for demand in sorted(jobs, key=lambda d: d.job.id):
        spec = demand.job.spec
        key = (spec.resources, spec.where, spec.capacity, demand.checkpoint_at, demand.checkpoint_bytes)
        groups.setdefault(key, []).append(demand)
    return chain.from_iterable(groups.values())


def plan_id(at_ms: int, market_digest: str, simulated: bool, placements: Sequence[Placement]) -> str:
    """The id of a plan with this content. It is a digest: if a plan was changed after it was made, its id no longer
    matches."""
    digest = hashlib.blake2b(digest_size=16)
    words: dict[int, bytes] = {}  # twins share their alternatives: each is hashed once
    for placement in placements:
        key = id(placement.alternatives)
        if key not in words:
            words[key] = repr([_ALTERNATIVE(each) for each in placement.alternatives]).encode()
        digest.update(repr(_PLACEMENT(placement)).encode())
        digest.update(words[key])
    content = repr((at_ms, market_digest, simulated, digest.digest())).encode()
    return derived_id("plan", at_ms, content)


def _all_real(placements: Sequence[Placement], market: Market) -> bool:
    chosen = {provider_of(placement.offer_id) for placement in placements if placement.offer_id is not None}
    return bool(chosen) and not chosen & market.listing.simulated_providers


def _place(
    demand: Demand,
    filtering: Filter,
    market: Market,
    perf: PerfBook,
    running: Running | None,
    move: Underway | None,
    limits: MoveLimits,
    twins: dict[Hashable, Placement],
    *,
    complete: bool,
) -> Placement:
    here = None if running is None else market.row(running.offer_id)
    filtered, forecast = considered(demand, filtering, market, perf, running, move)
    twin = _equality_key(demand, forecast, filtered) if running is None and move is None else None
    if twin is not None and twin in twins:
        return _hurrying(demand, replace(twins[twin], job_id=demand.job.id))
    ranking = rank(demand, forecast, filtered)
    builder = PlacementBuilder(demand, market, forecast, ranking, filtered, complete)
    placement = _decided(builder, running, move, here, limits)
    if placement.action in ("place", "move", "stay") and (row := market.row(placement.offer_id or "")) is not None:
        placement = replace(placement, reason=placement.reason + explain.why_too_long(demand, forecast, row))
    if twin is not None:
        twins[twin] = placement
    return _hurrying(demand, placement)


def _hurrying(demand: Demand, placement: Placement) -> Placement:
    """The placement, with the reason for a deadline that is not the job's own."""
    if not demand.hurries:
        return placement
    return replace(
        placement, reason=f"{placement.reason}; jobs after it have deadlines, so it must finish in time for them"
    )


def considered(
    demand: Demand, filtering: Filter, market: Market, perf: PerfBook, running: Running | None, move: Underway | None
) -> tuple[Filtered, Forecast]:
    """(the offers that the job may use, the forecast of the job on them)."""
    filtered = usable(demand, filtering, market, perf, running, move)
    return filtered, forecast_of(demand, filtered.pool, perf, running)


def usable(
    demand: Demand, filtering: Filter, market: Market, perf: PerfBook, running: Running | None, move: Underway | None
) -> Filtered:
    """The offers that the job may use."""
    return filtering(
        demand.job.spec,
        None if running is None or running.leaving else market.row(running.offer_id),
        shortfalls=perf.shortfalls(demand.job, market.listing.kinds),
        home=demand.home(None if running is None else running.offer_id),
        excluded=[offer_id for offer_id, _ in demand.excluded],
        reserved=demand.reserved,
        target=None if move is None else market.row(move.to),
        setup_s=demand.setup_s,
        rent=demand.rent,
    )


def _equality_key(demand: Demand, forecast: Forecast, filtered: Filtered) -> Hashable:
    """Jobs that are not running and have equal keys get equal decisions."""
    job, spec = demand.job, demand.job.spec
    return (
        (spec.resources, spec.where, spec.capacity, spec.objective, spec.budget_nano_usd, spec.checkpoint, spec.data),
        (spec.probe, spec.max_duration_s),
        (job.state, job.deadline_at_ms),
        tuple(getattr(demand, field) for field in _PROGRESS),
        demand.idle_s if filtered.awaited.size else 0.0,  # it matters only if the job may wait
        tuple(forecast.estimates.items()),
    )


def _decided(
    builder: PlacementBuilder, running: Running | None, move: Underway | None, here: int | None, limits: MoveLimits
) -> Placement:
    demand, market, forecast, ranking = builder.demand, builder.market, builder.forecast, builder.ranking
    current = builder.filtered.current
    if demand.job.state in _HANDS_OFF:
        return builder.placement("none", None, f"the job is {demand.job.state}")
    if running is not None and running.migrating:
        under_way = builder.placement("none", current, "a move is in progress")
        return replace(under_way, offer_id=running.offer_id)
    if move is not None:
        return weighed_again(builder, move, here, limits)
    if running is not None and not running.leaving and (here is None or not market.priced[here]):
        stay = builder.placement("stay", None, "its offer is no longer listed or has no price")
        return replace(stay, offer_id=running.offer_id)
    if ranking.mode == "infeasible":
        wait = builder.placement("wait", None, explain.why_waiting(demand, market, forecast, ranking, builder.filtered))
        short = running is None and ranking.counts[RejectionReason.BUDGET] > 0
        return replace(wait, lacks_money=short and lacks_money(demand, forecast.perf, builder.filtered))
    if running is not None and current is not None:
        return _stay_or_move(builder, running, current, limits)
    best = int(ranking.order[0])
    if running is None:
        by_deadline = choices(demand, forecast, ranking, builder.filtered, limits)
        if by_deadline:
            awaited = wait_of(by_deadline, forecast, builder.filtered)
            best = by_deadline[0].row if by_deadline[0].row is not None else best
        else:
            awaited = waiting(demand, forecast, ranking, builder.filtered)
        if awaited is not None:
            return builder.waiting(awaited)
    tried = None
    if running is None and not demand.started and demand.checkpoint_at is None:
        tried = trial(demand, market, forecast.perf, forecast, ranking)
        if tried is not None and tried.row is not None:
            return builder.placement("place", tried.row, f"a probe: {tried.probe.reason}", probe=tried.probe)
    below = up_to = None
    if ranking.mode == "safe" and len(ranking.order) > 1 and forecast.speed_known:
        rival = int(ranking.order[1])
        by = reasons_to_go(demand.job.spec.objective, ranking, rival)[-1]
        below = gate.price_worth_choosing(by, forecast, ranking, rival, best)
        up_to = gate.price_worth_choosing(by, forecast, ranking, best, rival)
    reason = explain.why_chosen(demand, market, forecast, ranking, best, None)
    probe = None if tried is None else tried.probe
    return builder.placement("place", best, reason, threshold=below, kept_up_to=up_to, probe=probe)


def _stay_or_move(builder: PlacementBuilder, running: Running, current: int, limits: MoveLimits) -> Placement:
    demand, market, forecast, ranking = builder.demand, builder.market, builder.forecast, builder.ranking
    objective = demand.job.spec.objective
    room = may_have_beside(demand, market, current, ranking.order)
    able, barred = ranking.order[room], frozenset(ranking.order[~room].tolist())
    best, first = int(able[0]) if able.size else current, int(ranking.order[0])
    ruled_out = ranking.rejection_reasons[current] != NONE
    held = ""
    probe_until_ms = _probe_until_ms(builder, running, current)
    on_probe = probe_until_ms is not None and market.at < probe_until_ms
    tried = None
    if not on_probe and running.came_by != "manual" and running.migrations_today + 1 < limits.max_migrations_per_day:
        tried = trial(demand, market, forecast.perf, forecast, ranking)
        if tried is not None and tried.row is not None:
            return builder.placement("move", tried.row, f"a probe: {tried.probe.reason}", probe=tried.probe)
    if first != current and ranking.mode == "safe" and not ruled_out:
        held = gate.held_back(running, market.at, limits, probe_until_ms=probe_until_ms)

    def pays(go: int) -> bool:
        """Whether the job would move to a row that ranks before its present row."""
        if ruled_out:
            return True  # it misses a limit that the better offer keeps: no gate
        if ranking.mode == "safe":
            any_of = () if held else reasons_to_go(objective, ranking, go)
            return any(gate.worth_moving(by, forecast, current, go, limits) for by in any_of)
        if ranking.mode == "likely":
            return ranking.odds(go) > ranking.odds(current) + SURER
        return ranking.seconds(go) <= EARLIER * ranking.seconds(current)

    def why_barred(go: int) -> str:
        """Why the limits prevent a move to a better row; empty if they do not."""
        return explain.why_barred(demand, market, forecast, ranking, go, current) if go in barred and pays(go) else ""

    options: Iterable[int] = () if best == current else (best,)
    if ranking.mode == "safe":
        options = takewhile(lambda row: row != current, able.tolist())
    target = next((go for go in options if pays(go)), None)
    if target is not None:
        reason = explain.why_chosen(demand, market, forecast, ranking, target, current)
        return builder.placement("move", target, reason, why_barred=why_barred)
    ahead = takewhile(lambda row: row != current, ranking.order.tolist()) if barred and not held else ()
    missed = next(((go, why) for go in ahead if (why := why_barred(go))), None)
    if missed is not None:
        reason = f"{market.ids[missed[0]]} {missed[1]}; {REMEDY}"
        if ruled_out:
            why = explain.why_rejected(demand, market, forecast, ranking, current)
            reason = f"its current offer is ruled out: {why}; {reason}"
    elif first == current or ranking.mode != "safe":
        reason = explain.why_chosen(demand, market, forecast, ranking, current, None)
    else:
        reason = f"{market.ids[first]} {explain.why_not_moved(demand, forecast, ranking, first, current, held)}"
    again_at_ms = probe_until_ms if on_probe else None
    if held and not on_probe and market.at < (settled_ms := gate.settled_ms(running, limits)):
        again_at_ms = settled_ms  # until then, no voluntary move is allowed
    if demand.job.deadline_at_ms is not None and forecast.measurable[forecast.pool.at(current)]:
        latest_ms = running.since_ms + round(1000 * LONGEST_PROBE_S)  # measuring a slow program may take this long
        again_at_ms = latest_ms if again_at_ms is None else min(again_at_ms, latest_ms)
    threshold = None
    others = able[able != current]
    if ranking.mode == "safe" and others.size:
        go = int(others[0])
        by = reasons_to_go(objective, ranking, go)[-1]
        threshold = gate.price_worth_moving(by, forecast, current, go, limits)
    return builder.placement(
        "stay",
        current,
        reason,
        held=held,
        why_barred=why_barred,
        threshold=threshold,
        probe=None if tried is None else tried.probe,
        again_at_ms=again_at_ms,
    )


def _probe_until_ms(builder: PlacementBuilder, running: Running, current: int) -> int | None:
    """The market time (ms) when the job's present probe ends; None if it is not on a probe. A probe lasts
    PROBE_MINUTES, or up to MOST_PROBES times as long if the job is not measured sooner."""
    if running.came_by != "probe":
        return None
    job, listing = builder.demand.job, builder.market.listing
    measured = builder.forecast.perf.measured(job, listing.kinds[int(listing.kind[current])])
    return running.since_ms + round(1000 * (PROBE_S if measured else LONGEST_PROBE_S))
