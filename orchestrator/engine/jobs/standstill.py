"""Standstill: reports runs that make no progress or have no finite loss, and fails them after too long.

A run makes no progress if the next step or a save does not end, or the program does not start training or does not
exit. The time is measured on the run's machine: it excludes time spent restoring, quiesced or waiting, and time in
which this control plane was paused.
"""

from __future__ import annotations

from orchestrator.engine.context import Context
from orchestrator.engine.runtime import RunReport
from orchestrator.errors import SiteError
from orchestrator.model import Job, Run

STALLED, NOT_FINITE = "run.stalled", "run.loss_not_finite"
LOOK_EVERY_S = 10.0
_STILL = {
    "begin": "it has not started training for {still_s:.0f} s",
    "step": "no progress after step {step} for {still_s:.0f} s",
    "save": "the save after step {step} has not finished for {still_s:.0f} s",
    "end": "its program has not exited for {still_s:.0f} s after its last step, {step}",
}


def watch(ctx: Context, job: Job, run: Run, report: RunReport) -> str | None:
    """Report a run that stalls or diverges. Returns why it must be failed; None while it may continue."""
    if report.not_finite_step is not None and ctx.due(f"diverged/{run.id}", LOOK_EVERY_S):
        report_loss(ctx, job, run, report)
    report_s, fail_s = _limits_s(ctx, job, report)
    if report.state != "training" or report.still_s <= report_s:
        return None
    still = _STILL[report.awaited].format(step=report.step, still_s=report.still_s)
    if report.still_s > fail_s and _reported(ctx, job, run, STALLED, step=report.step, awaited=report.awaited):
        return f"stalled: {still}; its log shows the stack of each thread (to allow more time, set train.stall_after)"
    if not ctx.due(f"stalled/{run.id}", LOOK_EVERY_S):
        return None
    if not _reported(ctx, job, run, STALLED, step=report.step, awaited=report.awaited):
        try:
            ctx.runtime.stacks(run.id)
        except SiteError:
            return None  # requested again, and reported, a little later
        usual_s = _usual_s(report)
        usually = f" (usually {usual_s:.3g} s)" if usual_s else ""
        message = f"{still}{usually}; its log shows the stack of each thread"
        with ctx.write() as tx:
            ctx.event(
                tx, STALLED, message, job, run=run, step=report.step, awaited=report.awaited, still_s=report.still_s
            )
    return None


def report_loss(ctx: Context, job: Job, run: Run, report: RunReport) -> None:
    """Report once that a loss of a run is NaN or infinite."""
    if report.not_finite_step is None or _reported(ctx, job, run, NOT_FINITE):
        return
    goes_on = "; training continues" if report.state == "training" else ""
    message = f"the loss at step {report.not_finite_step} is NaN or infinite{goes_on}"
    with ctx.write() as tx:
        ctx.event(tx, NOT_FINITE, message, job, run=run, step=report.not_finite_step)


def last_loss_not_finite(first_step: object) -> str:
    """The message for a run whose last loss is NaN or infinite. `first_step`: the first step of the run with such a
    loss."""
    return f"its last loss was NaN or infinite, first at step {first_step}"


def _limits_s(ctx: Context, job: Job, report: RunReport) -> tuple[float, float]:
    """Wall seconds after which a stalled run is reported, with its stacks, and after which it fails."""
    stalls, wanted_s = ctx.installation.config.stalls, job.spec.train.stall_after_s
    if report.awaited in ("begin", "end"):
        report_s, fail_s = stalls.outside_after_s, stalls.outside_fail_after_s
    else:
        report_s, fail_s = max(stalls.after_s, stalls.after_steps * (_usual_s(report) or 0.0)), stalls.fail_after_s
    if wanted_s is None:
        return report_s, max(report_s, fail_s)
    fail_s = wanted_s / ctx.installation.clock.factor
    return min(report_s, fail_s / 2), fail_s


def _usual_s(report: RunReport) -> float | None:
    return {"step": report.step_wall_s, "save": report.save_wall_s}.get(report.awaited)


def _reported(ctx: Context, job: Job, run: Run, kind: str, **known: object) -> bool:
    """Whether the job's newest event of this kind is about this run and has this data."""
    with ctx.installation.store.read() as tx:
        reported = tx.events(job_id=job.id, kinds=(kind,), limit=1, newest_first=True)
    return bool(reported) and reported[0].run_id == run.id and known.items() <= reported[0].data.items()
