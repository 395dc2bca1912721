"""Standstill: runs that make no step, or steps without sense: told of once, and given up when it lasts too long.

A step does not come, a save does not end, the program does not begin to train, or does not end. For how long is
measured beside the run, on its own machine: time that it spends restoring, quiesced or waiting does not count, nor does
any in which this control plane slept.
"""

from __future__ import annotations

from orchestrator.engine.context import Context
from orchestrator.engine.runtime import RunReport
from orchestrator.errors import SiteError
from orchestrator.model import Job, Run

STALLED, NOT_FINITE = "run.stalled", "run.loss_not_finite"
LOOK_EVERY_S = 10.0
_STILL = {
    "begin": "it has not begun to train for {still_s:.0f} s",
    "step": "no step after step {step} for {still_s:.0f} s",
    "save": "the save after step {step} has not ended for {still_s:.0f} s",
    "end": "its program has not ended for {still_s:.0f} s after its last step, {step}",
}


def watch(ctx: Context, job: Job, run: Run, report: RunReport) -> str | None:
    """Tell of a run that stands still or diverges. Returns why it must be given up, None while it may go on."""
    diverged = report.not_finite_step is not None and ctx.due(f"diverged/{run.id}", LOOK_EVERY_S)
    if diverged and not _told(ctx, job, run, NOT_FINITE):
        message = f"the loss of step {report.not_finite_step} is not a number, or infinite; training goes on"
        with ctx.write() as tx:
            ctx.event(tx, NOT_FINITE, message, job, run=run, step=report.not_finite_step)
    told_s, fail_s = _limits_s(ctx, job, report)
    if report.state != "training" or report.still_s <= told_s:
        return None
    still = _STILL[report.awaited].format(step=report.step, still_s=report.still_s)
    if report.still_s > fail_s and _told(ctx, job, run, STALLED, step=report.step, awaited=report.awaited):
        return f"stood still: {still}; its log shows where each thread was (more time: train.stall_after)"
    if not ctx.due(f"stalled/{run.id}", LOOK_EVERY_S):
        return None
    if not _told(ctx, job, run, STALLED, step=report.step, awaited=report.awaited):
        try:
            ctx.runtime.stacks(run.id)
        except SiteError:
            return None  # asked, and told of, a little later
        usual_s = _usual_s(report)
        usually = f" (usually {usual_s:.3g} s)" if usual_s else ""
        message = f"{still}{usually}; its log shows where each thread is"
        with ctx.write() as tx:
            ctx.event(
                tx, STALLED, message, job, run=run, step=report.step, awaited=report.awaited, still_s=report.still_s
            )
    return None


def _limits_s(ctx: Context, job: Job, report: RunReport) -> tuple[float, float]:
    """Wall seconds after which a run that stands still is told of, with its stacks, and after which it has failed."""
    stalls, wanted_s = ctx.installation.config.stalls, job.spec.train.stall_after_s
    if report.awaited in ("begin", "end"):
        told_s, fail_s = stalls.outside_after_s, stalls.outside_fail_after_s
    else:
        told_s, fail_s = max(stalls.after_s, stalls.after_steps * (_usual_s(report) or 0.0)), stalls.fail_after_s
    if wanted_s is None:
        return told_s, max(told_s, fail_s)
    fail_s = wanted_s / ctx.installation.clock.factor
    return min(told_s, fail_s / 2), fail_s


def _usual_s(report: RunReport) -> float | None:
    return {"step": report.step_wall_s, "save": report.save_wall_s}.get(report.awaited)


def _told(ctx: Context, job: Job, run: Run, kind: str, **known: object) -> bool:
    """Whether the newest event of the kind is of this run, and of this."""
    with ctx.installation.store.read() as tx:
        reported = tx.events(job_id=job.id, kinds=(kind,), limit=1, newest_first=True)
    return bool(reported) and reported[0].run_id == run.id and known.items() <= reported[0].data.items()
