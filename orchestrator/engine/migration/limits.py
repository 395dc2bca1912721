"""Limits: what the whole installation may rent at once ([limits] in tradewind.toml), and what the jobs of each project
may ([projects.NAME]); and who comes first if that is little: jobs of a higher priority, then a job that trained before
and needs a machine again, then new jobs, and then standbys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf

from orchestrator.engine.billing.project_budget import over_project_budget
from orchestrator.engine.context import Context, Standing
from orchestrator.engine.jobs.reserved import is_later
from orchestrator.errors import LimitError
from orchestrator.model import Job, Run
from orchestrator.store import Tx
from providers.money import NANO_USD, format_usd

KEPT_S = 20.0
"""Wall seconds for which a place is kept for a job that was refused one. It asks again sooner, if it still can."""
FIRST: Standing = (inf, True)
"""The standing of a launch that was decided or ordered before."""
LAST: Standing = (-inf, False)
"""That of a standby."""


@dataclass(frozen=True, slots=True)
class _Limits:
    """The limits of the installation (`name` "limits") or of a project; inf: none. `nano_usd` is per hour."""

    name: str
    machines: float
    usd: float
    project: str | None = None

    @property
    def nano_usd(self) -> float:
        return self.usd * NANO_USD

    def allow(self, job: Job, price: int) -> bool:
        """Whether a job may ever have machines at this price each."""
        nodes = job.spec.resources.nodes
        return nodes <= self.machines and nodes * price <= self.nano_usd


@dataclass(frozen=True, slots=True)
class _Rented:
    """What is rented within some limits: machines, and at most how much they cost (nano-USD per hour). `prices` of
    offers; `first`: jobs for which places are kept, with what a machine costs them and why they come first."""

    limits: _Limits
    machines: int
    rate: int
    prices: Mapping[str, int]
    first: tuple[tuple[Job, int, str], ...]


def check_limits(
    ctx: Context, tx: Tx, job: Job, offer_id: str, *, besides: str | None = None, standing: Standing = FIRST
) -> None:
    """Check the limits of the installation and of the job's project before the job rents its machines there; the run
    `besides` does not count. What is kept for jobs of a higher `standing` does. Raises LimitError if a limit would be
    passed."""
    for each in _rented(ctx, tx, job, [offer_id], besides, standing):
        _check(each, job, offer_id)
    _check_budget(ctx, tx, job, offer_id, besides)


def within_limits(
    ctx: Context, tx: Tx, job: Job, offers: Sequence[str], *, besides: str | None = None
) -> tuple[str, ...]:
    """Those of these offers on which the job may rent machines without passing a limit; each by itself."""
    if not offers:
        return ()
    rented, found = list(_rented(ctx, tx, job, offers, besides, FIRST)), list[str]()
    for offer_id in offers:
        with suppress(LimitError):
            for each in rented:
                _check(each, job, offer_id)
            _check_budget(ctx, tx, job, offer_id, besides)
            found.append(offer_id)
    return tuple(found)


def _rented(
    ctx: Context, tx: Tx, job: Job, offers: Sequence[str], besides: str | None, standing: Standing
) -> Iterator[_Rented]:
    """Within the limits of the installation, and of the job's project if it has any."""
    hidden: list[str] = []  # unreadable runs may have a machine, too
    up = [run for run in tx.unsettled_runs(lambda job_id, _error: hidden.append(job_id)) if run.id != besides]
    kept = {job_id: offer for job_id, offer in _kept(ctx, standing).items() if job_id != job.id}
    others = _wanted(tx, up)
    named = {*offers, *kept.values(), *(each for run in up for each in (run.offer_id, *others.get(run.id, ())))}
    prices = {point.offer_id: point.nano_usd_per_hour for point in tx.payable_as_of(ctx.now_ms, named)}
    dearest = {run.id: max(prices.get(each, 0) for each in (run.offer_id, *others.get(run.id, ()))) for run in up}
    wants = [
        (ctx.work.jobs[job_id], prices.get(offer, 0), _why_first(ctx.places[job_id][2], standing))
        for job_id, offer in kept.items()
    ]
    of = {}
    if ctx.installation.config.projects.tables:
        of = {each.id: each.project for each in tx.outlines_of({*hidden, *(run.job_id for run in up)})}

    def within(limits: _Limits, first: Sequence[tuple[Job, int, str]]) -> _Rented:
        mine = [run for run in up if limits.project is None or of.get(run.job_id) == limits.project]
        unread = [each for each in hidden if limits.project is None or of.get(each) in (limits.project, None, "")]
        rate = sum(_machines_left(run) * dearest[run.id] for run in mine)
        # a job that wants more than the limits can ever allow does not hold up others
        waiting = tuple(each for each in first if limits.allow(each[0], each[1]))
        return _Rented(limits, sum(map(_machines_left, mine)) + len(unread), rate, prices, waiting)

    def held_up(each: Job) -> bool:
        """Whether a job has no room in its project: it does not hold up the jobs of others."""
        limits = _of_project(ctx, each.project)
        try:
            if limits is not None:
                _check(within(limits, ()), each, kept[each.id])
            _check_budget(ctx, tx, each, kept[each.id], None)
        except LimitError:
            return True
        return False

    whole = ctx.installation.config.limits
    everybody = _Limits("limits", whole.max_instances, whole.max_usd_per_hour)
    yield within(everybody, [each for each in wants if not held_up(each[0])])
    if (limits := _of_project(ctx, job.project)) is not None:
        yield within(limits, [each for each in wants if each[0].project == job.project])


def _why_first(its: Standing, other: Standing) -> str:
    return "which has a higher priority" if its[0] > other[0] > -inf else "which trained before"


def _of_project(ctx: Context, name: str) -> _Limits | None:
    own = ctx.installation.config.projects.of(name)
    if own.max_instances is None and own.max_usd_per_hour is None:
        return None
    machines = inf if own.max_instances is None else own.max_instances
    return _Limits(
        f"projects.{name}", machines, inf if own.max_usd_per_hour is None else own.max_usd_per_hour, project=name
    )


def _check(rented: _Rented, job: Job, offer_id: str) -> None:
    limits, first, nodes = rented.limits, rented.first, job.spec.resources.nodes
    comes_first = f", and {first[0][0].name}, {first[0][2]}, comes first" if first else ""
    if rented.machines + sum(each.spec.resources.nodes for each, _, _ in first) + nodes > limits.machines:
        wanted, up = "" if nodes == 1 else f", and {nodes} more are wanted", rented.machines
        raise LimitError(
            f"{limits.name}.max_instances is reached ({up} of {limits.machines} machines{wanted}{comes_first})",
            hint=f"raise {limits.name}.max_instances in tradewind.toml, or wait",
        )
    rate = rented.rate + nodes * rented.prices.get(offer_id, 0)
    if rate + sum(each.spec.resources.nodes * price for each, price, _ in first) > limits.nano_usd:
        much = f"{format_usd(rate)}/h, more than {limits.name}.max_usd_per_hour ({limits.usd:g})"
        reached = f"{limits.name}.max_usd_per_hour is reached{comes_first}"
        used = f"; {format_usd(rented.rate)}/h of it is used" if rented.rate else ""
        raise LimitError(
            f"this would cost {much}{used}" if rate > limits.nano_usd else reached,
            hint=f"raise {limits.name}.max_usd_per_hour in tradewind.toml, or wait",
        )


def _check_budget(ctx: Context, tx: Tx, job: Job, offer_id: str, besides: str | None) -> None:
    if (why := over_project_budget(ctx, tx, job, offer_id, besides)) is not None:
        raise LimitError(why, hint=f"raise projects.{job.project}.budget in tradewind.toml")


def keep_a_place(ctx: Context, job: Job, offer_id: str, standing: Standing) -> None:
    """Let this job, which was refused a machine of this offer, come before those of a lower standing."""
    ctx.places[job.id] = (ctx.installation.clock.monotonic_s(), offer_id, standing)


def _kept(ctx: Context, standing: Standing) -> dict[str, str]:
    """The jobs of a higher standing for which a place is kept, with the offer on which they want it. Forgets those that
    need it no more, or whose turn there has passed to others."""
    now_s, jobs = ctx.installation.clock.monotonic_s(), ctx.work.jobs
    wanted = {job_id for job_id in ctx.places if job_id in jobs and jobs[job_id].state == "queued"}
    ctx.places = {
        job_id: (at_s, offer_id, own)
        for job_id, (at_s, offer_id, own) in ctx.places.items()
        if now_s - at_s < KEPT_S and job_id in wanted and not is_later(ctx, jobs[job_id])
    }
    return {job_id: offer_id for job_id, (_, offer_id, own) in ctx.places.items() if own > standing}


def _wanted(tx: Tx, up: Sequence[Run]) -> dict[str, tuple[str, ...]]:
    """By run, the further offers of a launch that is under way: it may land on the dearest."""
    waiting = {run.job_id: run.id for run in up if run.instance_id is None}
    moves = tx.migrations_of(list(waiting), open=True) if waiting else {}
    return {move.target_run_id: move.also for each in moves.values() for move in each if move.also}


def _machines_left(run: Run) -> int:
    """How many machines of a run are or may be up."""
    return sum(each.billed_to_ms is None for each in run.machines)
