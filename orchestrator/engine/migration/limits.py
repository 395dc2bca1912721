"""Limits: what the whole installation may rent at once ([limits] in tradewind.toml), and who comes first if that is
little: a job that trained before and needs a machine again, then new jobs and standbys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from orchestrator.engine.context import Context
from orchestrator.engine.jobs.reserved import is_later
from orchestrator.errors import LimitError
from orchestrator.model import Job, Run
from orchestrator.store import Tx
from providers.money import NANO_USD, format_usd

KEPT_S = 20.0
"""Wall seconds for which a place is kept for a job that was refused one. It asks again sooner, if it still can."""


@dataclass(frozen=True, slots=True)
class _Rented:
    """What is rented: machines, and at most how much they cost (nano-USD per hour). `prices` of offers; `first`: jobs
    for which places are kept, with what a machine costs them."""

    machines: int
    rate: int
    prices: Mapping[str, int]
    first: tuple[tuple[Job, int], ...]


def check_limits(
    ctx: Context, tx: Tx, offer_id: str, *, nodes: int, besides: str | None = None, yields: bool = False
) -> None:
    """Check the installation's limits before `nodes` machines more are rented; the run `besides` does not count. With
    `yields`, what is kept for other jobs does. Raises LimitError if a limit would be passed."""
    _check(ctx, _rented(ctx, tx, [offer_id], besides, yields=yields), offer_id, nodes)


def within_limits(
    ctx: Context, tx: Tx, offers: Sequence[str], *, nodes: int, besides: str | None = None
) -> tuple[str, ...]:
    """Those of these offers of which `nodes` machines more would pass no limit; each by itself."""
    if not offers:
        return ()
    rented, found = _rented(ctx, tx, offers, besides), list[str]()
    for each in offers:
        with suppress(LimitError):
            _check(ctx, rented, each, nodes)
            found.append(each)
    return tuple(found)


def _rented(ctx: Context, tx: Tx, offers: Sequence[str], besides: str | None, *, yields: bool = False) -> _Rented:
    limits = ctx.installation.config.limits
    hidden: list[str] = []  # unreadable runs may have a machine, too
    up = [run for run in tx.unsettled_runs(lambda job_id, _error: hidden.append(job_id)) if run.id != besides]
    kept = _kept(ctx) if yields else {}
    others = _wanted(tx, up)
    named = {*offers, *kept.values(), *(each for run in up for each in (run.offer_id, *others.get(run.id, ())))}
    prices = {point.offer_id: point.nano_usd_per_hour for point in tx.payable_as_of(ctx.now_ms, named)}
    most = limits.max_usd_per_hour * NANO_USD
    first = tuple(
        (each, price)
        for each, price in ((ctx.work.jobs[job_id], prices.get(offer, 0)) for job_id, offer in kept.items())
        if each.spec.resources.nodes <= limits.max_instances and each.spec.resources.nodes * price <= most
    )  # a job that wants more than the limits can ever allow does not hold up others
    dearest = {run.id: max(prices.get(each, 0) for each in (run.offer_id, *others.get(run.id, ()))) for run in up}
    rate = sum(_machines_left(run) * dearest[run.id] for run in up)
    return _Rented(sum(map(_machines_left, up)) + len(hidden), rate, prices, first)


def _check(ctx: Context, rented: _Rented, offer_id: str, nodes: int) -> None:
    limits, first = ctx.installation.config.limits, rented.first
    comes_first = f", and {first[0][0].name}, which trained before, comes first" if first else ""
    if rented.machines + sum(job.spec.resources.nodes for job, _ in first) + nodes > limits.max_instances:
        wanted, up = "" if nodes == 1 else f", and {nodes} more are wanted", rented.machines
        raise LimitError(
            f"limits.max_instances is reached ({up} of {limits.max_instances} machines{wanted}{comes_first})",
            hint="raise limits.max_instances in tradewind.toml, or wait",
        )
    most = limits.max_usd_per_hour * NANO_USD
    rate = rented.rate + nodes * rented.prices.get(offer_id, 0)
    if rate + sum(job.spec.resources.nodes * price for job, price in first) > most:
        much = f"{format_usd(rate)}/h, more than limits.max_usd_per_hour ({limits.max_usd_per_hour:g})"
        raise LimitError(
            f"this would cost {much}" if rate > most else f"limits.max_usd_per_hour is reached{comes_first}",
            hint="raise limits.max_usd_per_hour in tradewind.toml, or wait",
        )


def keep_a_place(ctx: Context, job: Job, offer_id: str) -> None:
    """Let this job, which trained before and was refused a machine of this offer, come before new ones."""
    ctx.places[job.id] = (ctx.installation.clock.monotonic_s(), offer_id)


def _kept(ctx: Context) -> dict[str, str]:
    """The jobs for which a place is kept, with the offer on which they want it. Forgets those that need it no more, or
    whose turn there has passed to others."""
    now_s, jobs = ctx.installation.clock.monotonic_s(), ctx.work.jobs
    wanted = {job_id for job_id in ctx.places if job_id in jobs and jobs[job_id].state == "queued"}
    ctx.places = {
        job_id: (at_s, offer_id)
        for job_id, (at_s, offer_id) in ctx.places.items()
        if now_s - at_s < KEPT_S and job_id in wanted and not is_later(ctx, jobs[job_id])
    }
    return {job_id: offer_id for job_id, (_, offer_id) in ctx.places.items()}


def _wanted(tx: Tx, up: Sequence[Run]) -> dict[str, tuple[str, ...]]:
    """By run, the further offers of a launch that is under way: it may land on the dearest."""
    waiting = {run.job_id: run.id for run in up if run.instance_id is None}
    moves = tx.migrations_of(list(waiting), open=True) if waiting else {}
    return {move.target_run_id: move.also for each in moves.values() for move in each if move.also}


def _machines_left(run: Run) -> int:
    """How many machines of a run are or may be up."""
    return sum(each.billed_to_ms is None for each in run.machines)
