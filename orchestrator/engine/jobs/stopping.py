"""Stopping: carries pauses, cancellations and spending limits to their end, which takes more than one tick.

Near the end of its budget, or of its project's budget, a job is asked to save a checkpoint and pause; when the money
for waiting is used up, it is ended at its last checkpoint at once. At its max_duration it fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from orchestrator.engine.billing import project_budget
from orchestrator.engine.billing.spending_limits import Spending, spending, trained_s, why_paused
from orchestrator.engine.compartment import Compartment, contained
from orchestrator.engine.context import ACTOR, Context
from orchestrator.engine.inputs import snapshot
from orchestrator.engine.inputs.reserves import LOOK_EVERY_S, STOP_TIMEOUT_WALL_S
from orchestrator.engine.jobs.checkpoints import CheckpointUnusable
from orchestrator.engine.jobs.pausing import pause, paused
from orchestrator.engine.jobs.stopped_at import stopped_at
from orchestrator.engine.migration.move import abort, load
from orchestrator.errors import SiteError
from orchestrator.model import Job, Run, Step

STOP_EVERY_S = 2.0
LONGEST_LOOK_S = 10.0  # a longer gap between two checks counts as an exception


def stop_as_asked(ctx: Context) -> bool:
    """Complete pauses and cancellations; stop jobs before they exceed a spending limit."""
    changed = False
    look_s = _look_s(ctx)
    projects: dict[str, Spending | None] = {}
    migrating = {migration.job_id for migration in ctx.work.migrations if migration.step is not Step.RELEASE}
    runs = ctx.work.runs_by_job()
    for job in ctx.work.jobs.values():
        if job.state == "queued":  # it has nothing to stop, and there may be thousands
            continue
        changed |= contained(
            ctx,
            Compartment.STOPPING,
            partial(_stop_as_asked, ctx, job, runs.get(job.id, ()), job.id in migrating, look_s, projects),
            False,
            job_id=job.id,
        )
    return changed


def _stop_as_asked(
    ctx: Context, job: Job, runs: Sequence[Run], migrating: bool, look_s: float, projects: dict[str, Spending | None]
) -> bool:
    current = snapshot.current_run(runs)
    if job.state == "cancelling":
        return _cancelling(ctx, job, current, migrating)
    if job.state in ("starting", "running", "migrating", "pausing"):
        if _limits(ctx, job, current, runs, look_s, projects):
            return True
        if job.state == "pausing":
            return _pausing(ctx, job, current, migrating)
    return False


def _look_s(ctx: Context) -> float:
    """Wall seconds until the next check, estimated from the last one."""
    now = ctx.installation.clock.monotonic_s()
    since = now - ctx.pacing.get("stopping", now)
    ctx.pacing["stopping"] = now
    return max(LOOK_EVERY_S, min(since, LONGEST_LOOK_S))


def _cancelling(ctx: Context, job: Job, current: Run | None, migrating: bool) -> bool:
    if migrating:
        return False  # engine.migration.steps aborts it, or finishes it if it is past its fence
    now = ctx.now_ms
    with ctx.write() as tx:
        if current is not None:
            tx.update_run(current.id, state="ended", end="cancelled", training_to_ms=now)
        tx.set_job_state(job.id, "cancelled")
        tx.set_job_facts(job.id, finished_at_ms=now)
        ctx.event(tx, "job.cancelled", "cancelled", job, run=current)
    return True


def _pausing(ctx: Context, job: Job, current: Run | None, migrating: bool) -> bool:
    if migrating:
        return False
    if current is None:
        with ctx.write() as tx:
            paused(ctx, tx, job, None, stopped_at(tx, job))
        return True
    _ask_to_stop(ctx, current)
    if ctx.waited_s(f"pausing/{current.id}") > STOP_TIMEOUT_WALL_S:
        _end_now(ctx, job, current, "it did not stop when asked")
        return True
    return False


def _ask_to_stop(ctx: Context, current: Run) -> None:
    if ctx.due(f"stop/{current.id}", STOP_EVERY_S):
        try:
            ctx.runtime.stop(current.id)
        except SiteError:
            ctx.pacing.pop(f"stop/{current.id}")  # the next tick asks again


def _end_now(ctx: Context, job: Job, current: Run | None, because: str, why: str | None = None) -> None:
    """Pause without asking the trainer: the job keeps its last checkpoint, and all its machines are ended. `because`
    says why the job is not given time to save one."""
    with ctx.write() as tx:
        if current is not None:
            tx.update_run(current.id, state="ended", end="paused", training_to_ms=ctx.now_ms)
        stopped = stopped_at(tx, job)
        paused(ctx, tx, job, current, f"{stopped} ({because})", why=why)
    for migration in ctx.work.migrations:
        if migration.job_id == job.id and migration.step is not Step.RELEASE:
            with ctx.installation.store.read() as tx:
                move = load(tx, migration)
            with suppress(CheckpointUnusable):  # engine.migration.steps tries again
                abort(ctx, move, "the job is paused")


def _limits(
    ctx: Context,
    job: Job,
    current: Run | None,
    runs: Sequence[Run],
    look_s: float,
    projects: dict[str, Spending | None],
) -> bool:
    """Whether a spending limit stopped the job. A budget is not checked before the provider has described machines that
    were there before this control plane: until then the spending is not known. `projects` has the results for projects
    in this tick: one check is enough for all jobs of a project."""
    spec, whole = job.spec, project_budget.budget_of(ctx, job.project)
    if spec.budget_nano_usd is None and spec.max_duration_s is None and whole is None:
        return False
    if not ctx.due(f"limits/{job.id}", LOOK_EVERY_S):
        return False
    if spec.max_duration_s is not None and job.state != "pausing" and _overran(ctx, job, current, spec.max_duration_s):
        return True
    if (budget := spec.budget_nano_usd) is not None and not any(map(ctx.unheard, runs)):
        now = spending(ctx, job, current, look_s)
        if _near_budget(ctx, job, current, budget, now, "its", partial(why_paused, ctx, job, current, now)):
            return True
    if whole is None:
        return False
    if job.project not in projects:
        projects[job.project] = _known_spending(ctx, job.project, whole, look_s)
    if (of_all := projects[job.project]) is None:
        return False
    why = partial(project_budget.why_paused, ctx, job, whole, of_all)
    return _near_budget(ctx, job, current, whole, of_all, "its project's", why)


def _known_spending(ctx: Context, project: str, budget: int, look_s: float) -> Spending | None:
    """The spending of a project; None while it is not known, as for a job in `_limits`."""
    if any(map(ctx.unheard, ctx.work.runs_of_project(project))):
        return None
    with ctx.installation.store.read() as tx:
        return project_budget.project_spending(ctx, tx, project, budget, look_s)


def _near_budget(
    ctx: Context, job: Job, current: Run | None, budget: int, now: Spending, whose: str, explained: Callable[[], str]
) -> bool:
    if now.used_up(budget):
        _end_now(ctx, job, current, f"{whose} budget does not cover waiting for another checkpoint", explained())
        return True
    if now.too_little_for_two(budget) and _end_standby(ctx, job, whose):
        return True
    if job.state != "pausing" and now.nearly_used_up(budget):
        why = explained()
        with ctx.write() as tx:
            pause(ctx, tx, job, current, why, actor=ACTOR)
        if current is not None:
            _ask_to_stop(ctx, current)
        return True
    return False


def _end_standby(ctx: Context, job: Job, whose: str) -> bool:
    """End the standby: continuing without it is better than pausing."""
    standbys = [each for each in ctx.work.migrations if each.job_id == job.id and each.reason == "standby"]
    for migration in standbys:
        with ctx.installation.store.read() as tx:
            move = load(tx, migration)
        abort(ctx, move, f"the rest of {whose} budget does not cover two machines")
    return bool(standbys)


def _overran(ctx: Context, job: Job, current: Run | None, longest_s: float) -> bool:
    """Fail a job that has trained for its max_duration (seconds); open migrations are aborted."""
    now = ctx.now_ms
    with ctx.installation.store.read() as tx:
        trained = trained_s(tx.runs(job_id=job.id), now)
    if trained < longest_s:
        return False
    why = f"it has trained for {trained:.0f} s, and its max_duration is {longest_s:.0f} s; its last checkpoint is kept"
    with ctx.write() as tx:
        if current is not None:
            tx.update_run(current.id, state="ended", end="failed", training_to_ms=now)
        tx.set_job_state(job.id, "failed")
        tx.set_job_facts(job.id, error=why, finished_at_ms=now)
        ctx.event(tx, "job.failed", f"failed: {why}", job, run=current)
    return True
