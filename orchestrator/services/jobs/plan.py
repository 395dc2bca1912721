"""Plans: what Tradewind would do with jobs now, without doing it."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from orchestrator.engine.billing.group_budget import with_group_order
from orchestrator.engine.inputs.snapshot import as_configured, inputs, limits, profiled_bytes
from orchestrator.engine.inputs.snapshot import perf as perf_book
from orchestrator.engine.machines.collect import collect
from orchestrator.engine.migration.standby import best_standby, standby_cost
from orchestrator.errors import UsageError
from orchestrator.installation import Installation
from orchestrator.jobfile import refuse_unsupported_fields
from orchestrator.market import Market
from orchestrator.model import Alternative, Job, JobSpec, Placement, Plan, new_id
from orchestrator.perf import PerfBook
from orchestrator.policy import (
    NOT_MEASURED,
    Demand,
    MoveLimits,
    compare,
    decide,
    trace,
)
from orchestrator.services.jobs.cautions import cautions
from orchestrator.services.jobs.enabling import SIMULATED, could_enable, enabling, unknown
from orchestrator.services.jobs.feasible import hopeless, lacks_money
from orchestrator.services.jobs.objective import objectives
from orchestrator.services.jobs.project_money import costs_of, short_projects
from orchestrator.services.jobs.quotas import worth_of_quotas
from orchestrator.services.jobs.room import full_limits, wants_of
from orchestrator.services.rentable import Enabling, NotRentable
from orchestrator.services.secrets.submission import missing_secrets
from orchestrator.services.views import Choice, Decision, PlanView, Standby
from orchestrator.store import PollRecord, Tx
from providers.clock import Clock, SystemClock
from providers.offer import Offer, provider_of
from providers.registry import without_provider
from providers.shared_launch import together

_WALL = SystemClock()
STALE_AFTER_S = 300.0  # older prices are polled again before they are used or shown
KEPT_CHOICES = 30


def preview(
    installation: Installation,
    specs: Sequence[JobSpec],
    *,
    all_jobs: bool = False,
    anywhere: bool | None = False,
    traced: bool = False,
    wall: Clock = _WALL,
) -> PlanView:
    """The plan for jobs that are not submitted yet, or for all submitted jobs that have not ended.

    With `anywhere`, it uses the catalogue's offers, including clouds that are not enabled, and says what enabling each
    cloud would save. None: it uses them only if no enabled provider can ever run one of the jobs, whatever its budget,
    and a cloud of the catalogue can, or could with more money. The age of the catalogue is measured by the clock
    `wall`. With `traced`, each decision says how it was made. Raises SpecError if a job uses a feature that is not
    supported yet.
    """
    if not specs and (anywhere or not all_jobs):
        raise UsageError("no jobs to plan", hint="name a job file, or use --all")
    for spec in specs:
        refuse_unsupported_fields(spec, spec.name)
    view = _preview(installation, specs, all_jobs=all_jobs, anywhere=anywhere, traced=traced, wall=wall)
    return replace(view, missing_secrets=missing_secrets(specs), cautions=cautions(specs))


def _preview(
    installation: Installation,
    specs: Sequence[JobSpec],
    *,
    all_jobs: bool,
    anywhere: bool | None,
    traced: bool,
    wall: Clock,
) -> PlanView:
    if not anywhere:
        freshen(installation)
    now = installation.clock.now_ms()
    new = tuple(Job(new_id("job", now, random.SystemRandom()), spec, "", now, "queued") for spec in specs)
    if not anywhere:
        view = planned(
            installation, new, only=None if all_jobs else [job.id for job in new], compared=True, traced=traced
        )
        if anywhere is False or not new or all(lacks_money(view, decided) for decided in hopeless(view)):
            return view
    elsewhere = catalogue_plan(installation, new, wall.now_ms(), traced=traced, compared=bool(anywhere))
    if anywhere:
        return elsewhere
    if all(decided.offer_id is not None or lacks_money(elsewhere, decided) for decided in elsewhere.decisions):
        return replace(elsewhere, not_rentable=view.not_rentable, no_offers=view.no_offers)
    return view


def catalogue_plan(
    installation: Installation, new: Sequence[Job], now: int, *, traced: bool = False, compared: bool = False
) -> PlanView:
    """Where new jobs would run if the clouds of the catalogue were enabled, at the real time `now` (epoch ms). Such a
    plan cannot be submitted. With `compared`, it says what enabling each of them would save."""
    from orchestrator.prices.collected import collected
    from orchestrator.services.catalog.market import catalogue_limits, catalogue_market, more_regions

    new = [replace(job, submitted_at_ms=now) for job in new]
    market = catalogue_market(now, without=installation.providers, heard=collected(installation))
    with installation.store.read() as tx:
        perf = perf_book(tx, installation.clock.now_ms(), [job.id for job in new])
    config = installation.config
    demands = [
        as_configured(Demand(job, job.spec.train.steps, checkpoint_bytes=profiled_bytes(perf, job)), config)
        for job in new
    ]
    limits = catalogue_limits(installation.config)
    plan = decide(demands, market, perf, {}, limits=limits, complete=True)
    placements = {placement.job_id: placement for placement in plan.placements}
    shown = {each.offer_id for p in plan.placements for each in (*p.alternatives, p.baseline) if each is not None}
    offers = {id: market.offer(row) for id in shown if (row := market.row(id)) is not None}
    decisions = tuple(
        _compared(
            decision(demand.job, placements[demand.job.id], offers, demand.job.spec.objective.name),
            demand,
            market,
            perf,
            limits,
        )
        for demand in demands
    )
    if traced:
        decisions = tuple(
            replace(each, trace=trace(demand, market, perf, None, limits=limits))
            for each, demand in zip(decisions, demands, strict=True)
        )
    chosen = {provider_of(decided.offer_id) for decided in decisions if decided.offer_id is not None}
    ages = [each.price_age_s for decided in decisions for each in decided.choices if each.role in ("choose", "next")]
    unrentable = without_provider(chosen)
    instead = could_enable(demands, market, perf, limits) if unrentable else None
    why_unknown: str = ""
    savings: tuple[Enabling, ...] = ()
    if compared:
        more = more_regions(now, installation.config, installation.providers)
        why_unknown, savings = _savings(installation, new, demands, (market, more), perf, limits)
    return PlanView(
        id=plan.id,
        at_ms=plan.at_ms,
        price_age_s=max(ages, default=None),
        simulated=False,
        decisions=decisions,
        plan=plan,
        new_jobs=(),
        anywhere=True,
        not_enabled=tuple(sorted(chosen)),
        no_provider=unrentable,
        could_enable=instead,
        enabling=savings,
        saving_unknown=why_unknown,
        outdated=_outdated(demands, plan, market, perf, limits),
    )


def _outdated(
    demands: Sequence[Demand], plan: Plan, market: Market, perf: PerfBook, limits: MoveLimits
) -> tuple[str, ...]:
    """The clouds whose prices can be collected and where a job that no offer fits would fit one if its price were not
    too old."""
    from orchestrator.prices.sources import SOURCES

    stuck = [each for each in demands if plan.placement(each.job.id).offer_id is None]
    fresh = decide(stuck, market, perf, {}, limits=replace(limits, max_price_age_s=math.inf), complete=True)
    fitting = {provider_of(a.offer_id) for each in fresh.placements for a in each.alternatives if a.feasible}
    return tuple(sorted(fitting.intersection(SOURCES)))


def _savings(
    installation: Installation,
    new: Sequence[Job],
    demands: Sequence[Demand],
    markets: tuple[Market, Market],
    perf: PerfBook,
    limits: MoveLimits,
) -> tuple[str, tuple[Enabling, ...]]:
    """The savings from enabling clouds, or why they are unknown; the `markets` are those of clouds that are not enabled
    and of further regions of enabled clouds. Simulated prices are not compared with others."""
    if all(provider.simulated for provider in installation.providers.values()):
        return SIMULATED, ()
    freshen(installation)
    here = planned(installation, new, only=[job.id for job in new])
    reason = unknown(here)
    if reason:
        return reason, ()
    clouds, more = markets
    found = enabling(here, demands, clouds, perf, limits)
    return "", (*found, *enabling(here, demands, more, perf, limits, enabled=True))


def planned(
    installation: Installation,
    new: Sequence[Job],
    *,
    only: Sequence[str] | None,
    compared: bool = False,
    traced: bool = False,
) -> PlanView:
    """The current decisions about `new` jobs and those in the store (None: all). With `compared`, also the choices of
    other objectives for new jobs, and the value of larger quotas; with `traced`, also how each decision was made."""
    now = installation.clock.now_ms()
    with installation.store.read() as tx:
        seen = inputs(tx, now, installation.config, extra=new, only=only)
        bounds = limits(installation.config)
        plan = decide(seen.demands, seen.market, seen.perf, seen.running, limits=bounds, complete=True)
        jobs = {demand.job.id: demand.job for demand in seen.demands}
        view = plan_view(installation, tx, plan, jobs, new, now)
    if not compared:
        return view
    demands = {demand.job.id: demand for demand in seen.demands}
    view = replace(view, quotas=worth_of_quotas(plan, seen.demands, seen.market, seen.perf, seen.running, bounds))
    if traced:
        view = replace(
            view,
            decisions=tuple(
                replace(each, trace=trace(demands[each.job_id], seen.market, seen.perf, running, limits=bounds))
                for each in view.decisions
                for running in (seen.running.get(each.job_id),)
            ),
        )
    fresh = {job.id for job in new}
    decisions = tuple(
        _compared(each, demands[each.job_id], seen.market, seen.perf, bounds) if each.job_id in fresh else each
        for each in view.decisions
    )
    return replace(view, decisions=decisions)


def _compared(decided: Decision, demand: Demand, market: Market, perf: PerfBook, limits: MoveLimits) -> Decision:
    compared = compare(demand, market, perf, limits=limits)
    if compared is None:
        return decided
    planned = decided.planned
    if planned is not None and planned.cost_nano_usd is not None and planned.duration_s is not None:
        compared = compared.as_planned(planned.offer_id, planned.cost_nano_usd, planned.duration_s)
    return replace(decided, front=compared.front, picks=compared.picks)


def plan_view(
    installation: Installation, tx: Tx, plan: Plan, jobs: dict[str, Job], new: Sequence[Job], now_ms: int
) -> PlanView:
    """The view of a plan; `jobs` are the jobs in it."""
    placements = [placement for placement in plan.placements if placement.job_id in jobs]
    decisions = tuple(
        replace(each, also=_also(installation, jobs[each.job_id], placement))
        for each, placement in zip(decisions_of(tx, placements, jobs), placements, strict=True)
    )
    return PlanView(
        id=plan.id,
        at_ms=plan.at_ms,
        price_age_s=price_age_s(installation, tx, now_ms),
        simulated=plan.simulated,
        decisions=decisions,
        plan=plan,
        new_jobs=tuple(new),
        not_rentable=not_rentable(tx, installation.providers),
        no_offers=tuple(name for name in sorted(installation.providers) if not _offers(tx, name)),
        short_projects=short_projects(installation, tx, costs_of(new, decisions), now_ms),
        full_limits=full_limits(installation, tx, wants_of(new, decisions), now_ms),
    )


def _also(installation: Installation, job: Job, placement: Placement) -> tuple[str, ...]:
    if placement.offer_id is None:
        return ()
    provider = installation.providers.get(provider_of(placement.offer_id))
    return together(provider, placement.offer_id, placement.also, job.spec.resources.nodes)


def not_rentable(tx: Tx, providers: Iterable[str]) -> tuple[NotRentable, ...]:
    """What is configured at these providers and cannot be rented, according to their latest answers."""
    return tuple(
        NotRentable(name, each.region, each.instance_type, each.reason, each.remedy)
        for name in sorted(providers)
        for each in tx.closed(name)
    )


def decisions_of(tx: Tx, placements: Sequence[Placement], jobs: Mapping[str, Job]) -> list[Decision]:
    """The decisions of these placements. The budget of a job includes its part of its group's budget."""
    offers, decided_by = _offers_shown(tx, placements), objectives(tx, jobs.values())
    found = [decision(jobs[each.job_id], each, offers, decided_by[each.job_id]) for each in placements]
    return [replace(each, reason=with_group_order(tx, jobs[each.job_id], each.reason)) for each in found]


def _offers_shown(tx: Tx, placements: Sequence[Placement]) -> dict[str, Offer]:
    """The offers that the decisions about these placements show, by id."""
    shown = {each.offer_id for placement in placements for each in placement.alternatives[:KEPT_CHOICES]}
    shown |= {placement.baseline.offer_id for placement in placements if placement.baseline is not None}
    shown |= {placement.awaited.offer_id for placement in placements if placement.awaited is not None}
    return tx.offers_of(shown)


def decision(job: Job, placement: Placement, offers: dict[str, Offer], objective: str) -> Decision:
    """One placement, with its alternatives as ranked choices; `objective` as in services.jobs.objective."""
    choices = [
        _choice(_role(placement, alternative), alternative, offers.get(alternative.offer_id))
        for alternative in placement.alternatives[:KEPT_CHOICES]
    ]
    if placement.awaited is not None:
        choices.insert(0, _choice("await", placement.awaited, offers.get(placement.awaited.offer_id)))
    if placement.baseline is not None:
        choices.append(_choice("baseline", placement.baseline, offers.get(placement.baseline.offer_id)))
    return Decision(
        job_id=job.id,
        name=job.name,
        objective=objective,
        deadline_at_ms=job.deadline_at_ms,
        budget_nano_usd=job.spec.budget_nano_usd,
        action=placement.action,
        offer_id=placement.offer_id,
        reason=placement.reason,
        cost_nano_usd=placement.cost_nano_usd,
        finish_at_ms=placement.finish_at_ms,
        saving_nano_usd=placement.saving_nano_usd,
        steps_per_s=placement.throughput.value if placement.throughput is not None else None,
        throughput_source=placement.throughput.provenance if placement.throughput is not None else NOT_MEASURED,
        would_move_below_nano_usd_per_hour=placement.would_move_below_nano_usd_per_hour,
        choices=tuple(choices),
        count=placement.considered or len(placement.alternatives),
        standby=_standby(placement) if job.spec.standby == "warm" else None,
        parts=placement.parts,
        expected_losses=placement.expected_losses,
        hazard_source=placement.hazard_source,
        kept_up_to_nano_usd_per_hour=placement.kept_up_to_nano_usd_per_hour,
        rejected=placement.rejected,
        probe=placement.probe,
        chance=placement.chance,
        evidence=placement.evidence,
        nodes=job.spec.resources.nodes,
    )


def freshen(installation: Installation) -> None:
    """Polls the providers if prices are old, as no control plane may have been running; or if a provider had no offers,
    as a setting may have been corrected since."""
    with installation.store.read() as tx:
        nothing = not all(_offers(tx, name) for name in installation.providers)
        age_s = price_age_s(installation, tx, installation.clock.now_ms())
    if age_s is None or age_s > STALE_AFTER_S or nothing:
        collect(installation)


def price_age_s(installation: Installation, tx: Tx, now_ms: int) -> float | None:
    """Market seconds since the oldest of the providers' last answers; None if a provider has never answered."""
    ages = []
    for name in installation.providers:
        last = _last_answer(tx, name)
        if last is None:
            return None
        ages.append((now_ms - last.finished_ms) / 1000)
    return max(ages, default=None)


def _offers(tx: Tx, provider: str) -> int:
    """The number of offers in a provider's last answer; 0 if it has never answered."""
    last = _last_answer(tx, provider)
    return 0 if last is None else last.offers_seen


def _last_answer(tx: Tx, provider: str) -> PollRecord | None:
    good = (poll for poll in tx.polls(provider, 50) if poll.error is None)
    return max(good, key=lambda poll: poll.finished_ms, default=None)


def _standby(placement: Placement) -> Standby | None:
    """The cost of a standby at its current price, for as long as the job is expected to train."""
    if placement.offer_id is None:
        return None
    standby = best_standby(placement, placement.offer_id)
    cost = None if standby is None else standby_cost(placement, standby)
    return None if standby is None or cost is None else Standby(standby.offer_id, standby.nano_usd_per_hour, cost)


def _role(placement: Placement, alternative: Alternative) -> str:
    if alternative.offer_id == placement.offer_id:
        return "stay" if placement.action == "stay" else "choose"
    return "next" if alternative.feasible else "no"


def _choice(role: str, alternative: Alternative, offer: Offer | None) -> Choice:
    return Choice(
        role=role,  # type: ignore[arg-type]
        offer_id=alternative.offer_id,
        gpu="cpu" if offer is None or offer.gpu is None else f"{offer.gpu_count}x{offer.gpu}",
        spot=alternative.offer_id.endswith("/spot"),
        nano_usd_per_hour=alternative.nano_usd_per_hour,
        price_age_s=alternative.price_age_s,
        nano_usd_per_step=alternative.nano_usd_per_step,
        duration_s=alternative.duration_s,
        cost_nano_usd=alternative.cost_nano_usd,
        cost_low_nano_usd=alternative.cost_low_nano_usd,
        cost_high_nano_usd=alternative.cost_high_nano_usd,
        reason=alternative.reason,
        duration_low_s=alternative.duration_low_s,
        duration_high_s=alternative.duration_high_s,
        relative_speed=alternative.relative_speed,
    )
