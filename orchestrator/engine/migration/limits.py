"""Limits: what the whole installation may rent at once ([limits] in tradewind.toml), and what the jobs of each project
may rent ([projects.NAME]). When room is short, jobs of a higher priority come first, then jobs that have trained and
need a machine again, then new jobs, then standbys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf

from orchestrator.config.raising import raising
from orchestrator.engine.billing.project_budget import budget_of, over_project_budget
from orchestrator.engine.context import Context, Standing
from orchestrator.engine.inputs.rent_limits import Limits, limits_of, rent_limits
from orchestrator.engine.jobs.reserved import is_later
from orchestrator.engine.migration.rented import rented
from orchestrator.errors import LimitError
from orchestrator.model import Job
from orchestrator.store import Tx
from providers.money import format_usd

KEPT_S = 20.0
"""Wall seconds for which a place is reserved for a job that was refused one. The job asks again sooner, if it still
can."""
FIRST: Standing = (inf, True)
"""The standing of a launch that was already decided or ordered."""
LAST: Standing = (-inf, False)
"""The standing of a standby."""


@dataclass(frozen=True, slots=True)
class _Room:
    """What is rented within some limits: machines, and the most that they cost (nano-USD per hour). `prices` of offers;
    `first`: jobs for which places are reserved, with the cost of their machines and why they come first; `own`: the
    machines of the job itself, and their rate."""

    limits: Limits
    machines: int
    rate: int
    prices: Mapping[str, int]
    first: tuple[tuple[Job, int, str], ...]
    own: tuple[int, int]


def check_limits(
    ctx: Context, tx: Tx, job: Job, offer_id: str, *, besides: str | None = None, standing: Standing = FIRST
) -> None:
    """Check the limits of the installation and of the job's project before the job rents its machines there. The run
    `besides` does not count; places reserved for jobs of a higher `standing` do. Raises LimitError if a limit would be
    exceeded."""
    for each in _rooms(ctx, tx, job, [offer_id], besides, standing):
        _check(each, job, offer_id)
    _check_budget(ctx, tx, job, offer_id, besides)


def within_limits(
    ctx: Context, tx: Tx, job: Job, offers: Sequence[str], *, besides: str | None = None
) -> tuple[str, ...]:
    """The offers among these on which the job may rent machines without exceeding a limit; each considered alone."""
    if not offers:
        return ()
    rooms, found = list(_rooms(ctx, tx, job, offers, besides, FIRST)), list[str]()
    for offer_id in offers:
        with suppress(LimitError):
            for each in rooms:
                _check(each, job, offer_id)
            _check_budget(ctx, tx, job, offer_id, besides)
            found.append(offer_id)
    return tuple(found)


def _rooms(
    ctx: Context, tx: Tx, job: Job, offers: Sequence[str], besides: str | None, standing: Standing
) -> Iterator[_Room]:
    """Within the limits of the installation, and of the job's project if it has any."""
    config = ctx.installation.config
    kept = {job_id: offer for job_id, offer in _kept(ctx, standing).items() if job_id != job.id}
    now = rented(tx, ctx.now_ms, config, [*offers, *kept.values()], besides)
    wants = [
        (ctx.work.jobs[job_id], now.prices.get(offer, 0), _why_first(ctx.places[job_id][2], standing))
        for job_id, offer in kept.items()
    ]

    def within(limits: Limits, first: Sequence[tuple[Job, int, str]], own: tuple[int, int] = (0, 0)) -> _Room:
        # a job that needs more than the limits can ever allow does not hold up others
        waiting = tuple(
            (each, price, why)
            for each, price, why in first
            if rent_limits(config, each.project).allow(_nodes(each), _nodes(each) * price)
        )
        return _Room(limits, *now.within(limits), now.prices, waiting, own)

    def held_up(each: Job) -> bool:
        """Whether a job has no room in its project. Such a job does not hold up jobs of other projects."""
        try:
            for own in list(limits_of(config, each.project))[1:]:
                _check(within(own, ()), each, kept[each.id])
            _check_budget(ctx, tx, each, kept[each.id], None)
        except LimitError:
            return True
        return False

    everybody, *own = limits_of(config, job.project)
    mine = now.of_job(job.id)
    yield within(everybody, [each for each in wants if not held_up(each[0])], mine)
    for limits in own:
        yield within(limits, [each for each in wants if each[0].project == job.project], mine)


def _why_first(its: Standing, other: Standing) -> str:
    return "which has a higher priority" if its[0] > other[0] > -inf else "which has trained before"


def _check(room: _Room, job: Job, offer_id: str) -> None:
    limits, first, nodes = room.limits, room.first, _nodes(job)
    comes_first = f", and {first[0][0].name}, {first[0][2]}, comes first" if first else ""
    if room.machines + sum(_nodes(each) for each, _, _ in first) + nodes > limits.machines:
        wanted, up = "" if nodes == 1 else f", and {nodes} more are needed", room.machines
        raise LimitError(
            f"{limits.name}.max_instances is reached ({up} of {limits.machines} machines{wanted}{comes_first})",
            hint=raising(f"{limits.name}.max_instances") + ", or wait" * (nodes + room.own[0] <= limits.machines),
        )
    own = nodes * room.prices.get(offer_id, 0)
    rate = room.rate + own
    if rate + sum(_nodes(each) * price for each, price, _ in first) > limits.nano_usd:
        much = f"{format_usd(rate)}/h, more than {limits.name}.max_usd_per_hour ({limits.usd:g})"
        reached = f"{limits.name}.max_usd_per_hour is reached{comes_first}"
        used = f"; {format_usd(room.rate)}/h of it is used" if room.rate else ""
        raise LimitError(
            f"this would cost {much}{used}" if rate > limits.nano_usd else reached,
            hint=raising(f"{limits.name}.max_usd_per_hour") + ", or wait" * (own + room.own[1] <= limits.nano_usd),
        )


def _check_budget(ctx: Context, tx: Tx, job: Job, offer_id: str, besides: str | None) -> None:
    if budget_of(ctx, job.project) is None:
        return
    if any(map(ctx.unheard, ctx.work.runs_of_project(job.project))):
        unknown = f"the cost of a machine of project {job.project} is not known yet, and so what is left of its budget"
        raise LimitError(unknown, hint="Tradewind waits for its provider")
    if (why := over_project_budget(ctx, tx, job, offer_id, besides)) is not None:
        raise LimitError(why, hint=raising(f"projects.{job.project}.budget"))


def keep_a_place(ctx: Context, job: Job, offer_id: str, standing: Standing) -> None:
    """Put this job, which was refused a machine of this offer, before jobs of a lower standing."""
    ctx.places[job.id] = (ctx.installation.clock.monotonic_s(), offer_id, standing)


def _kept(ctx: Context, standing: Standing) -> dict[str, str]:
    """The jobs of a higher standing for which a place is reserved, with its offer. Forgets jobs that no longer need
    one, or whose turn there has passed to others."""
    now_s, jobs = ctx.installation.clock.monotonic_s(), ctx.work.jobs
    wanted = {job_id for job_id in ctx.places if job_id in jobs and jobs[job_id].state == "queued"}
    ctx.places = {
        job_id: (at_s, offer_id, own)
        for job_id, (at_s, offer_id, own) in ctx.places.items()
        if now_s - at_s < KEPT_S and job_id in wanted and not is_later(ctx, jobs[job_id])
    }
    return {job_id: offer_id for job_id, (_, offer_id, own) in ctx.places.items() if own > standing}


def _nodes(job: Job) -> int:
    return job.spec.resources.nodes
