"""Standby: keeps a prepared trainer on a second machine, ready to take over when the job loses its machine.

A migration of reason "standby" starts it like any other run, and then waits. Promoting it ends that migration and opens
one for the recovery, which continues at the same checkpoint with the same run, under a generation newer than all
others. So planned moves and standbys do not conflict.
"""

from __future__ import annotations

from functools import partial

from orchestrator.engine.billing.spending_limits import refuses_second
from orchestrator.engine.compartment import Compartment, contained
from orchestrator.engine.context import Context
from orchestrator.engine.inputs import snapshot
from orchestrator.engine.migration import wasted
from orchestrator.engine.migration.intent import open_migration
from orchestrator.engine.migration.limits import LAST, check_limits
from orchestrator.engine.migration.move import MAX_PAUSE_S, given_up_in_a_row, waits
from orchestrator.engine.migration.place import jobs_with_notice
from orchestrator.engine.migration.startable import may_be_placed
from orchestrator.errors import LimitError
from orchestrator.model import Alternative, Job, Migration, Placement, Reason, Run, Step
from orchestrator.policy import decide
from orchestrator.store import Tx
from providers.money import MS_PER_HOUR
from providers.offer import location_of

KEEP_EVERY_S = 0.5


def stand_by(ctx: Context) -> bool:
    """Promote the standbys of jobs that lost their machine or soon will, and start missing standbys."""
    if not any(job.spec.standby == "warm" for job in ctx.work.jobs.values()):
        return False
    return promote(ctx) | ensure(ctx)


def promote(ctx: Context) -> bool:
    """Move each job that needs a machine to its standby at once, regardless of prices: it can move again later."""
    standbys = {standby.job_id: standby for standby in ctx.work.migrations if waits(standby)}
    ready = {
        job_id: standby
        for job_id, standby in standbys.items()
        if (report := ctx.reports.get(standby.target_run_id)) is not None and report.state == "prepared"
    }
    with_notice = jobs_with_notice(ctx)
    in_need = [
        job for job in ctx.work.jobs.values() if job.id in ready and (job.state == "queued" or job.id in with_notice)
    ]
    if not in_need:
        return False
    taken = False
    for job in in_need:
        taken |= contained(
            ctx,
            Compartment.PROMOTE_STANDBY,
            partial(_promote, ctx, job, ready[job.id]),
            False,
            job_id=job.id,
        )
    return taken


def _promote(ctx: Context, job: Job, standby: Migration) -> bool:
    with ctx.write() as tx:
        source = _newest(tx.runs(job_id=job.id))
        if (
            not may_be_placed(ctx, tx.job(job.id), tx.job_facts(job.id), tx.migrations(job_id=job.id, open=True))
            or ctx.secrets.missing(job) is not None
            or not tx.advance(standby.id, standby.step, Step.DONE)
        ):
            return False
        reason = _reason(source)
        migration = open_migration(ctx, tx, job, standby.offer_id, reason, source=source, standby=standby)
        tx.set_job_state(job.id, "migrating" if source is not None and source.end is None else "starting")
        message = f"{reason}: the standby on {standby.offer_id} takes over"
        run = tx.run(standby.target_run_id)
        ctx.event(tx, "standby.promoted", message, job, run=run, migration=migration)
    return True


def ensure(ctx: Context) -> bool:
    """Start a standby for every running job that asks for one and has none."""
    kept = {migration.job_id for migration in ctx.work.migrations if migration.reason == "standby"}
    opened = False
    for job in ctx.work.jobs.values():
        if job.spec.standby == "warm" and job.state == "running" and job.id not in kept:
            opened |= contained(
                ctx,
                Compartment.ENSURE_STANDBY,
                partial(_ensure, ctx, job),
                False,
                job_id=job.id,
            )
    return opened


def best_standby(placement: Placement, beside: str) -> Alternative | None:
    """The best standby for a run on the offer `beside`: in another zone if any fits, else on another machine."""
    fitting = [alternative for alternative in placement.alternatives if alternative.feasible]
    elsewhere = [alternative for alternative in fitting if location_of(alternative.offer_id) != location_of(beside)]
    return next(iter(elsewhere or fitting), None)


def standby_cost(placement: Placement, standby: Alternative) -> int | None:
    """The cost of `standby` at its present price for as long as the plan expects the job to train, in nano-USD; None if
    the plan chose no offer."""
    own = next((each for each in placement.alternatives if each.offer_id == placement.offer_id), None)
    if own is None or own.duration_s is None:
        return None
    return int(standby.nano_usd_per_hour * own.duration_s * 1000) // MS_PER_HOUR


def _ensure(ctx: Context, job: Job) -> bool:
    with ctx.installation.store.read() as tx:
        given_up = given_up_in_a_row(tx, job, standby=True)
        machines = len(wasted.in_a_row(tx, job.id, "standby.wasted"))
    if machines >= wasted.MOST_IN_A_ROW:
        return False  # it continues without one
    pause_s = max(min(MAX_PAUSE_S, KEEP_EVERY_S * 2.0**given_up), wasted.back_off_s(machines))
    return ctx.due(f"standby/{job.id}", pause_s) and _open(ctx, job)


def _open(ctx: Context, job: Job) -> bool:
    if (missing := ctx.secrets.missing(job, ctx.typed_name)) is not None:
        with ctx.write() as tx:
            _report_none(ctx, tx, job, f"no standby: it {missing}")
        return False
    with ctx.installation.store.read() as tx:
        current = snapshot.current_run(tx.runs(job_id=job.id))
        if current is None:
            return False
        inputs = snapshot.inputs(
            tx,
            ctx.now_ms,
            ctx.installation.config,
            only=[job.id],
            with_notice=frozenset({job.id}),
            markets=ctx.markets,
            speeds=ctx.speeds,
            used=ctx.used_offers,
        )
    if not inputs.demands:
        return False  # the job was paused or ended since this tick began
    plan = decide(
        inputs.demands, inputs.market, inputs.perf, inputs.running, limits=snapshot.limits(ctx.installation.config)
    )
    placement = plan.placement(job.id)
    standby = best_standby(placement, current.offer_id)
    to_come = 0 if standby is None else (placement.cost_nano_usd or 0) + (standby_cost(placement, standby) or 0)
    refused = standby and refuses_second(ctx, job, current, standby.offer_id, to_come)
    with ctx.write() as tx:
        if standby is None:
            _report_none(ctx, tx, job, "no standby: no offer fits at present")
            return False
        if refused:
            _report_none(ctx, tx, job, f"no standby: {refused}")
            return False
        try:
            check_limits(ctx, tx, job, standby.offer_id, standing=LAST)
        except LimitError as error:
            _report_none(ctx, tx, job, f"no standby: {error}")
            return False
        migration = open_migration(ctx, tx, job, standby.offer_id, "standby", source=None)
        ctx.event(tx, "standby.decided", f"starting a standby on {standby.offer_id}", job, migration=migration)
    return True


def _report_none(ctx: Context, tx: Tx, job: Job, why: str) -> None:
    """Record why there is no standby, once per reason in a row."""
    reported = tx.events(job_id=job.id, kinds=("standby.waits", "standby.decided"), limit=1, newest_first=True)
    if not reported or reported[0].message != why:
        ctx.event(tx, "standby.waits", why, job)


def _newest(runs: list[Run]) -> Run | None:
    trained = [run for run in runs if run.training_from_ms is not None]
    return max(trained, key=lambda run: run.generation, default=None)


def _reason(source: Run | None) -> Reason:
    if source is not None and source.end is None:
        return "notice"
    return "retry" if source is not None and source.end == "failed" else "lost"
