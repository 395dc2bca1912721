"""Observe: records once per tick what providers report about machines and what trainers report about themselves.

Runs end here: finished, failed, preempted, lost, paused, cancelled. A silent run is only suspected. It is declared lost
when its provider confirms that the machine is gone, or when its lease has expired; by then it has fenced itself. For
runs that have not taken over yet, only notices are recorded; their migration handles everything else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from orchestrator.engine.billing.checkpoints_kept import measure
from orchestrator.engine.compartment import Compartment, contained, contained_writes, one_line
from orchestrator.engine.context import ACTOR, Context
from orchestrator.engine.jobs.blame import (
    MAX_LOSSES_WITHOUT_PROGRESS,
    attached,
    contradiction,
    died_alone,
    lost_without_progress,
)
from orchestrator.engine.jobs.checkpoints import (
    OUT_OF_REACH_S,
    CheckpointsAwaited,
    CheckpointsOutOfReach,
    CheckpointUnusable,
)
from orchestrator.engine.jobs.pausing import pause, paused
from orchestrator.engine.jobs.standstill import last_loss_not_finite, report_loss, watch
from orchestrator.engine.jobs.stopped_at import stopped_at
from orchestrator.engine.machines import poll
from orchestrator.engine.machines.launched import named
from orchestrator.engine.machines.renewals import renew
from orchestrator.engine.machines.reports import MALFORMED_S, judged
from orchestrator.engine.migration import same_machine
from orchestrator.engine.migration.intent import under_way
from orchestrator.engine.migration.move import MOVING, count_failure
from orchestrator.engine.runtime import RunReport
from orchestrator.errors import SiteError
from orchestrator.model import Job, Run, RunEnd, Step
from orchestrator.perf import kind_of, on_host
from orchestrator.store import Tx
from providers.instance import EndReason, Instance

PROGRESS_EVERY_S = 0.5
RECORDED_AT_ONCE = 10  # runs in one tick, so that none takes long
PERF_EVERY_S = 3.0
MIN_STEPS_MEASURED = 10
SHORTEST_STEP_S = 1e-9
"""No program completes a step in less time. The speed that follows from such a report could not be used in plans, not
even in those of other jobs."""
IDLE_S = 300.0  # wall: a trainer sees its fence at once, and stops waiting for a successor by itself after 30 s
_BEFORE_TRAINING = ("starting", "prepared", "restored")
FINISH_S = 30.0  # wall: how long to wait for an unreadable checkpoint folder to prove that a job is done
MALFORMED_REPORTED_S = 3600.0
OUTAGE_S = 10.0  # wall; a restart of the bridge is not an outage


@dataclass(frozen=True, slots=True)
class Seen:
    """The effect of one pass of observation: whether anything changed, and whether a new decision is due because a job
    needs a machine or was measured for the first time."""

    changed: bool = False
    need_place: bool = False


def observe(ctx: Context) -> Seen:
    """Ask providers and the runtime about every run that has not ended, and record what is new."""
    jobs = ctx.work.jobs
    poll.describe(ctx)
    renew(ctx)
    ctx.reports = {}
    live = [run for run in ctx.work.runs if run.end is None]  # including quarantined jobs: they are being stopped
    started = [run.id for run in live if run.instance_id is not None]
    if started:
        try:
            reports = {run_id: masked(ctx, each) for run_id, each in ctx.runtime.reports(started).items()}
        except SiteError as error:  # it is restarting; nothing is known meanwhile
            _unavailable(ctx, live, error)
        else:
            ctx.pacing.pop("outage", None)
            ctx.pacing.pop("outage-reported", None)
            _judge(ctx, live, reports)
        _report_unwritten(ctx, live)
    need_place = _record(ctx, live)
    changed = False
    for run in live:
        look = _current if run.state in ("training", "quiesced") else _not_training_yet
        seen = contained(ctx, Compartment.OBSERVE, partial(look, ctx, jobs, run), Seen(), job_id=run.job_id)
        changed |= seen.changed
        need_place |= seen.need_place
    return Seen(changed, need_place)


def masked(ctx: Context, report: RunReport) -> RunReport:
    """The report with secret values masked in its texts, which are stored and shown to users."""
    if report.error is None and report.weights_hash is None:
        return report
    error, weights_hash = (
        text if text is None else ctx.secrets.mask(str(text)) for text in (report.error, report.weights_hash)
    )
    return replace(report, error=error, weights_hash=weights_hash)


def _judge(ctx: Context, live: Sequence[Run], reports: Mapping[str, RunReport]) -> None:
    """Set `ctx.reports`. Reports of quarantined jobs are kept as they are, since they may be the reason."""
    for run in live:
        if (report := reports.get(run.id)) is None:
            continue
        if run.job_id not in ctx.work.quarantined:
            checked = partial(_judged, ctx, run, report)
            report = contained(ctx, Compartment.JUDGE, checked, report, job_id=run.job_id)
        ctx.reports[run.id] = report
        if report.notice_s is not None:
            left_ms = round(report.notice_s * 1000 * ctx.installation.clock.factor)
            ctx.announced.setdefault(run.id, ctx.now_ms + left_ms)


def _judged(ctx: Context, run: Run, report: RunReport) -> RunReport:
    return judged(ctx.work.jobs[run.job_id], run, report)


def _unavailable(ctx: Context, live: Sequence[Run], error: SiteError) -> None:
    """Report an outage of the site once, if it lasts."""
    if ctx.waited_s("outage") < OUTAGE_S or "outage-reported" in ctx.pacing:
        return
    ctx.pacing["outage-reported"] = ctx.installation.clock.monotonic_s()
    with ctx.write() as tx:
        for run in live:
            if (job := ctx.work.jobs.get(run.job_id)) is not None:
                ctx.event(tx, "site.unavailable", str(error), job, run=run)


def _report_unwritten(ctx: Context, live: Sequence[Run]) -> None:
    """Report, once in a while, which runs' orders cannot be written."""
    troubles = ctx.runtime.unwritten([run.id for run in live if run.instance_id is not None])
    for run in live:
        if run.id in troubles and ctx.due(f"unwritten/{run.id}", MALFORMED_REPORTED_S):
            report = partial(_unwritten, ctx, run, troubles[run.id])
            contained(ctx, Compartment.OBSERVE, report, None, job_id=run.job_id)


def _unwritten(ctx: Context, run: Run, trouble: SiteError) -> None:
    with ctx.write() as tx:
        message = f"its machine does not receive orders: {trouble} ({trouble.hint})"
        ctx.event(tx, "site.unavailable", message, ctx.work.jobs[run.job_id], run=run)


def _not_training_yet(ctx: Context, jobs: Mapping[str, Job], run: Run) -> Seen:
    """Record a notice for a machine that is starting or waits as a standby. Its migration then abandons it
    (abandoned)."""
    instance = ctx.instance(run)
    noticed = instance is not None and _notice(ctx, jobs[run.job_id], run, instance)
    return Seen(noticed, noticed)


def _current(ctx: Context, jobs: Mapping[str, Job], run: Run) -> Seen:
    """Observe a run past its cutover."""
    job = jobs[run.job_id]
    instance = ctx.instance(run)
    report = ctx.reports.get(run.id)
    if report is not None and report.state == "finished":
        return _says_finished(ctx, job, run, report)
    if ctx.lost(run):
        return _lost(ctx, job, run, instance, report)
    noticed = instance is not None and _notice(ctx, job, run, instance)
    if report is None:
        return Seen(noticed, noticed)
    if report.state == "failed":
        alone = died_alone(ctx, run) if report.exit_status is not None else True
        if alone is None:
            return Seen(noticed, noticed)
        why = report.error or "the trainer failed"
        return _failed(ctx, job, run, report, why) if alone else _lost(ctx, job, run, ctx.instance(run), report)
    if report.state == "malformed":
        return _malformed(ctx, job, run, report, noticed)
    ctx.pacing.pop(f"malformed/{run.id}", None)
    if report.state == "checkpointed_and_stopped":
        return _checkpointed_and_stopped(ctx, job, run, report, instance)
    if report.state == "fenced" and _being_replaced(ctx, run):
        return Seen(noticed, noticed)  # fenced by its successor, whose cutover is not stored yet
    if report.state == "fenced":
        ctx.lease_ran_out(run)
    if report.state in ("fenced", "absent"):
        # engine.machines.reap ends its machine; only then is it certain that it no longer trains
        why = "it fenced itself" if report.state == "fenced" else "its trainer is gone"
        why += f" ({report.error})" if report.error else ""
        return _end(ctx, job, run, "lost", f"{why}; last step {report.step}", report)
    if report.silent_s > ctx.installation.config.lease_s:
        ctx.lease_ran_out(run)
        return _end(ctx, job, run, "lost", f"no contact for {report.silent_s:.0f} s: its lease expired", report)
    if report.silent_s > ctx.installation.config.suspect_after_s and ctx.due(f"suspect/{run.id}", 60.0):
        with ctx.write() as tx:
            ctx.event(tx, "run.suspected", f"no contact for {report.silent_s:.0f} s", job, run=run)
    if _idles(ctx, run, report):
        why = f"its machine has reported {report.state!r} for {IDLE_S:.0f} s although it has the job"
        return _end(ctx, job, run, "lost", why, report)
    if (why_not := watch(ctx, job, run, report)) is not None:
        return _failed(ctx, job, run, report, why_not)
    measure(ctx, job, run, report)
    return Seen(noticed, noticed)


def _malformed(ctx: Context, job: Job, run: Run, report: RunReport, noticed: bool) -> Seen:
    """Report invalid reports once; if they continue for MALFORMED_S, fail the run."""
    for_s = ctx.waited_s(f"malformed/{run.id}")
    if ctx.due(f"malformed-reported/{run.id}", MALFORMED_REPORTED_S):
        with ctx.write() as tx:
            ctx.event(tx, "run.malformed", f"its reports are not valid: {report.error}", job, run=run)
    if for_s > MALFORMED_S:
        why = f"its reports were not valid for {MALFORMED_S:.0f} s: {report.error}"
        return _failed(ctx, job, run, report, why)
    return Seen(noticed, noticed)


def _idles(ctx: Context, run: Run, report: RunReport) -> bool:
    """Whether a run that owns the job has reported for IDLE_S that it is not training yet, or waits for a successor
    that will not start. Its machine costs money and does no work, even if its reports are true."""
    replaced = any(move.source_run_id == run.id for move in ctx.work.migrations)
    if report.state not in _BEFORE_TRAINING and (report.state != "quiesced" or replaced):
        ctx.pacing.pop(f"idle/{run.id}", None)
        return False
    return ctx.waited_s(f"idle/{run.id}") > IDLE_S


def _being_replaced(ctx: Context, run: Run) -> bool:
    return any(move.source_run_id == run.id and move.step is Step.CUTOVER for move in ctx.work.migrations)


def _notice(ctx: Context, job: Job, run: Run, instance: Instance) -> bool:
    """Record a preemption notice once. Returns whether it is new."""
    if instance.notice_deadline_ms is None or (recorded := f"noticed/{run.id}") in ctx.pacing:
        return False
    with ctx.installation.store.read() as tx:
        if any(event.run_id == run.id for event in tx.events(job_id=job.id, kinds=("instance.notice",))):
            ctx.pacing[recorded] = ctx.installation.clock.monotonic_s()  # by an earlier control plane
            return False
    left_s = max(0.0, (instance.notice_deadline_ms - ctx.now_ms) / 1000)  # the clocks may differ
    when = f"will be preempted in {left_s:.0f} market seconds" if left_s >= 1.5 else "is being preempted"
    with ctx.write() as tx:
        tx.add_availability(run.offer_id, ctx.now_ms, "notice", run.id, "")
        ctx.event(
            tx,
            "instance.notice",
            f"{run.offer_id} {when}",
            job,
            run=run,
            left_s=left_s,
        )
    ctx.pacing[recorded] = ctx.installation.clock.monotonic_s()
    return True


def _record(ctx: Context, runs: Sequence[Run]) -> bool:
    """Record progress at most every half second and throughput every few seconds. Returns whether a new decision is due
    because a run was measured for the first time."""
    reported = [
        (run, report)
        for run in runs
        if run.state in ("training", "quiesced")
        and (report := ctx.reports.get(run.id)) is not None
        and report.state not in ("silent", "absent", "malformed")
    ]
    fresh = ctx.few_due("progress", reported, lambda each: each[0].id, PROGRESS_EVERY_S, RECORDED_AT_ONCE)
    return any(
        contained_writes(
            ctx,
            Compartment.RECORD,
            fresh,
            lambda each: each[0].job_id,
            lambda tx, each: _record_one(ctx, tx, *each),
        )
    )


def _record_one(ctx: Context, tx: Tx, run: Run, report: RunReport) -> bool:
    if report.step > run.last_step:
        recorded = f"total/{run.id}"
        _progress(tx, run, report, total_known=ctx.pacing.get(recorded) == report.total_steps)
        if report.total_steps is not None:
            ctx.pacing[recorded] = report.total_steps
    measured = report.step - int(ctx.pacing.get(f"measured/{run.id}", report.start_step))
    if (
        report.step_wall_s is None
        or report.step_wall_s < SHORTEST_STEP_S
        or measured < MIN_STEPS_MEASURED
        or report.state != "training"
        or not ctx.due(f"perf/{run.id}", PERF_EVERY_S)
    ):
        return False
    first = f"measured/{run.id}" not in ctx.pacing
    ctx.pacing[f"measured/{run.id}"] = report.step
    if (offer := tx.offer(run.offer_id)) is not None:
        known = not first or bool(tx.perf_marks([run.job_id]))
        per_market_s = 1.0 / (report.step_wall_s * ctx.installation.clock.factor)
        tx.add_perf(run.job_id, offer.gpu, max(1, offer.gpu_count), per_market_s, measured, ctx.now_ms)
        if not known:
            return True  # until now it could not be forecast
    return first and ctx.work.jobs[run.job_id].spec.probe and _may_be_tried(tx)


def _may_be_tried(tx: Tx) -> bool:
    """Whether the market has more than one kind of accelerator. Otherwise a probe would have nothing to compare."""
    kinds = {kind_of(gpu, count) for gpu, count in tx.kinds_listed()}
    return sum(not on_host(kind) for kind in kinds) > 1


def _progress(tx: Tx, run: Run, report: RunReport, *, total_known: bool = False) -> None:
    """Record a run's progress. Steps never decrease, no matter what a run reports later. `total_known`: its total
    number of steps is already stored."""
    if report.state == "malformed":
        return
    last_step = max(report.step, run.start_step, run.last_step)
    tx.update_run(
        run.id,
        last_step=last_step,
        saved_step=run.saved_step if report.manifest is None else min(report.manifest_step, last_step),
        last_loss=report.loss,
        step_wall_s=report.step_wall_s,
        save_wall_s=report.save_wall_s,
        useful_s=report.useful_s,
        checkpoint_s=report.checkpoint_s,
    )
    if report.total_steps is not None and not total_known:
        tx.set_job_facts(run.job_id, total_steps=report.total_steps)


def _says_finished(ctx: Context, job: Job, run: Run, report: RunReport) -> Seen:
    """Check a run's claim to have finished against its steps and checkpoints."""
    try:
        wrong = contradiction(ctx, job, run, report)
    except CheckpointsAwaited:
        return Seen()
    except CheckpointUnusable as error:
        limit_s = OUT_OF_REACH_S if isinstance(error, CheckpointsOutOfReach) else FINISH_S
        if ctx.waited_s(f"finish/{run.id}") < limit_s:
            return Seen()
        wrong = f"it reports that it finished at step {report.step}, but {one_line(error)}"
    return _finished(ctx, job, run, report) if wrong is None else _failed(ctx, job, run, report, wrong)


def _finished(ctx: Context, job: Job, run: Run, report: RunReport) -> Seen:
    now = ctx.now_ms
    how = f"finished at step {report.step}"
    if report.stopped_early:
        how += f" of {job.spec.train.steps or report.total_steps}: its program called stop()"
    elif not attached(run, report):
        how = "finished: its program ended (it never called attach())"
    if report.not_finite_step is not None and report.loss is None:
        how += f"; {last_loss_not_finite(report.not_finite_step)}"
    report_loss(ctx, job, run, report)
    with ctx.write() as tx:
        _progress(tx, run, report)
        tx.update_run(run.id, state="ended", end="finished", training_to_ms=now)
        tx.set_job_facts(job.id, weights_hash=report.weights_hash, finished_at_ms=now)
        tx.set_job_state(job.id, "finished")
        late = job.deadline_at_ms is not None and now > job.deadline_at_ms
        ctx.event(
            tx,
            "job.finished",
            how + (" (after its deadline)" if late else ""),
            job,
            run=run,
            step=report.step,
            loss=report.loss,
        )
    return Seen(changed=True)


def _failed(ctx: Context, job: Job, run: Run, report: RunReport, why: str) -> Seen:
    free = same_machine.free(ctx, job, run)
    if free is None:
        return Seen()  # waiting for its provider's answer
    with ctx.write() as tx:
        _progress(tx, run, report)
        tx.update_run(run.id, state="ended", end="failed", training_to_ms=ctx.now_ms)
        count_failure(ctx, tx, job, run, why, permanent=report.permanent, again_ms=free.from_ms)
    return Seen(changed=True, need_place=True)


def _checkpointed_and_stopped(ctx: Context, job: Job, run: Run, report: RunReport, instance: Instance | None) -> Seen:
    """The run saved a checkpoint and ended, on request or because its machine is being taken away."""
    if job.state == "pausing":
        with ctx.write() as tx:
            _progress(tx, run, report)
            tx.update_run(run.id, state="ended", end="paused", training_to_ms=ctx.now_ms)
            own = "without a checkpoint; what its program saved in $TRADEWIND_CHECKPOINT_DIR is kept"  # never attached
            paused(ctx, tx, job, run, f"at step {report.step} with a checkpoint" if report.manifest else own)
        return Seen(changed=True)
    noticed = instance is not None and instance.notice_deadline_ms is not None
    why: RunEnd = "preempted" if noticed else "lost"
    return _end(ctx, job, run, why, f"ended with a checkpoint at step {report.step}", report)


def _lost(ctx: Context, job: Job, run: Run, instance: Instance | None, report: RunReport | None) -> Seen:
    why = instance.end_reason if instance is not None else None
    reason, step = why.value if why else "gone", max(run.last_step, report.step if report else 0)
    what = run.offer_id
    if run.nodes > 1:
        gone = named([each for each in run.instance_ids if ctx.is_gone(each)])
        what = f"of its {run.nodes} machines ({run.offer_id}), {gone or 'one'}"
    return _end(
        ctx,
        job,
        run,
        "preempted" if why is EndReason.PREEMPTED else "lost",
        f"{what} is gone ({reason}); last known step: {step}",
        report,
        blame_offer=why is not EndReason.EXPIRED,  # no control plane renewed it
    )


def _end(
    ctx: Context,
    job: Job,
    run: Run,
    end: RunEnd,
    message: str,
    report: RunReport | None,
    *,
    blame_offer: bool = True,
) -> Seen:
    now = ctx.now_ms
    judged = end == "lost" and blame_offer and job.state in ("running", *MOVING)
    try:
        no_progress = judged and _no_progress(ctx, job, run)
    except CheckpointsAwaited:
        return Seen()
    with ctx.write() as tx:
        if report is not None and report.step > 0:
            _progress(tx, run, report)
        tx.update_run(run.id, state="ended", end=end, training_to_ms=now)
        if blame_offer and not no_progress:
            tx.add_availability(run.offer_id, now, "lost", run.id, end)
        if job.state in ("running", *MOVING) and not under_way(tx, job.id):
            tx.set_job_state(job.id, "queued")
        ctx.event(tx, f"run.{end}", message, job, run=run)
        if no_progress:
            _count_no_progress(ctx, tx, job, run, message)
        if job.state == "pausing":
            paused(ctx, tx, job, run, stopped_at(tx, job))
    return Seen(changed=True, need_place=True)


def _count_no_progress(ctx: Context, tx: Tx, job: Job, run: Run, message: str) -> None:
    """Count losses without progress like a failure. If no retries are left, the job pauses instead of failing, since it
    may not be at fault."""
    why = (
        f"lost at least {MAX_LOSSES_WITHOUT_PROGRESS} machines in a row without getting past step {run.start_step}: "
        f"{message}"
    )
    if tx.job_facts(job.id).failures < job.spec.retries:
        count_failure(ctx, tx, job, run, why)
    else:
        name = tx.typed_name(job.id, job.name)
        remedy = f"Check `tradewind logs {name}`, or allow other offers (where, capacity)"
        pause(ctx, tx, job, None, f"{why}. {remedy}. Then run: tradewind resume {name}", actor=ACTOR)


def _no_progress(ctx: Context, job: Job, run: Run) -> bool:
    try:
        return lost_without_progress(ctx, job, run)
    except CheckpointsAwaited:
        raise
    except CheckpointUnusable:
        return False  # its progress is not known
