"""Standstill: runs that make no step, or steps without sense: told of once, and given up when it lasts too long.

How long a run stands still is measured beside it, on its own machine, and only while a step is due: time that it spends
restoring, holding or saving does not count, nor does any in which this control plane slept. Must not know: how a run is
given up.
"""

from __future__ import annotations

from orchestrator.engine.context import Context
from orchestrator.engine.runtime import RunReport
from orchestrator.errors import SiteError
from orchestrator.model import Job, Run

STALLED, NOT_FINITE = "run.stalled", "run.loss_not_finite"
LOOK_EVERY_S = 10.0


def watch(ctx: Context, job: Job, run: Run, report: RunReport) -> str | None:
    """Tell of a run that stands still or diverges. Returns why it must be given up, None while it may go on."""
    diverged = report.not_finite_step is not None and ctx.due(f"diverged/{run.id}", LOOK_EVERY_S)
    if diverged and not _told(ctx, job, run, NOT_FINITE):
        message = f"the loss of step {report.not_finite_step} is not a number, or infinite; training goes on"
        with ctx.write() as tx:
            ctx.event(tx, NOT_FINITE, message, job, run=run, step=report.not_finite_step)
    if report.state != "training" or report.still_s <= _patience_s(ctx, report):
        return None
    still = f"no step after step {report.step} for {report.still_s:.0f} s"
    if report.still_s > max(_patience_s(ctx, report), ctx.world.config.stalls.fail_after_s):
        return f"stood still: {still}; its log shows where each thread was"
    if ctx.due(f"stalled/{run.id}", LOOK_EVERY_S) and not _told(ctx, job, run, STALLED, report.step):
        try:
            ctx.runtime.stacks(run.id)
        except SiteError:
            return None  # asked, and told of, a little later
        usually = f" (usually {report.step_wall_s:.3g} s)" if report.step_wall_s else ""
        message = f"{still}{usually}; its log shows where each thread is"
        with ctx.write() as tx:
            ctx.event(tx, STALLED, message, job, run=run, step=report.step, still_s=report.still_s)
    return None


def _patience_s(ctx: Context, report: RunReport) -> float:
    stalls = ctx.world.config.stalls
    return max(stalls.after_s, stalls.after_steps * (report.step_wall_s or 0.0))


def _told(ctx: Context, job: Job, run: Run, kind: str, step: int | None = None) -> bool:
    with ctx.world.store.read() as tx:
        told = tx.events(job_id=job.id, kinds=(kind,), limit=1, newest_first=True)
    return bool(told) and told[0].run_id == run.id and step in (None, told[0].data.get("step"))
