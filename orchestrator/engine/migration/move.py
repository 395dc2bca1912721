"""Move: one migration with what it moves, as its steps see it; and how one is given up.

Until its fence exists a migration can be given up at any step: the source trains on, the target's machine is released
by engine.machines.reap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.engine.context import Context
from orchestrator.engine.migration import in_vain, same_machine
from orchestrator.errors import SiteError
from orchestrator.model import Job, JobState, Migration, Plan, Run, RunState, Step
from orchestrator.store import Tx
from providers.money import format_usd

MOVING: tuple[JobState, ...] = ("starting", "migrating")
MAY_HAVE_STANDBY: tuple[JobState, ...] = ("queued", "starting", "running", "migrating")  # may have a standby
MAX_PAUSE_S = 60.0


@dataclass(frozen=True, slots=True)
class Move:
    """A migration, its job, and the runs between which it goes; `source` is None for a first placement."""

    migration: Migration
    job: Job
    source: Run | None
    target: Run

    @property
    def living_source(self) -> Run | None:
        """The source, unless it has ended."""
        return self.source if self.source is not None and self.source.end is None else None


def load(tx: Tx, migration: Migration) -> Move:
    """The present state of everything that a migration touches."""
    source = tx.run(migration.source_run_id) if migration.source_run_id else None
    return Move(migration, tx.job(migration.job_id), source, tx.run(migration.target_run_id))


def waits(migration: Migration) -> bool:
    """Whether it has brought up a standby and has nothing left to do until that is taken."""
    return migration.reason == "standby" and migration.step is Step.CHECKPOINT


def step(
    ctx: Context,
    move: Move,
    to: Step,
    message: str,
    *,
    manifest: str | None = None,
    state: RunState | None = None,
    passed_over: str | None = None,
) -> bool:
    """Record that the present step is done. `passed_over`: a checkpoint that was found damaged at it."""
    migration = move.migration
    with ctx.write() as tx:
        if tx.advance(migration.id, migration.step, to, manifest=manifest or migration.manifest):
            if state is not None:
                tx.update_run(move.target.id, state=state)
            kind = f"migration.{migration.step.value}"
            data = {} if passed_over is None else {"passed_over": passed_over}
            ctx.event(tx, kind, message, move.job, run=move.target, migration=migration, **data)
    return True


def abort(
    ctx: Context,
    move: Move,
    why: str,
    *,
    cause: in_vain.Cause | None = None,
    failed: bool = False,
    at_once: bool = False,
    refused: bool = False,
    permanent: bool = False,
    plan: Plan | None = None,
) -> bool:
    """Give a migration up.

    `failed`: the job's own code is to blame, which counts against its retries unless its source trains on, and is
    `permanent` if it will always be. `at_once`:
    the job may be placed elsewhere right away; otherwise it waits, the longer the more often it was in vain. With a
    `cause` (any but a user's or a ceiling's wish) a machine that was rented for it counts as in vain. Unless its
    launch was `refused`, one that was ever asked for may have made a machine: its run ends, but stays in the state
    `provisioning` until engine.machines.reap has found out. The `plan` that speaks against it is kept with the event.

    At CUTOVER another control plane may be about to fence, asleep since it last looked: the generation is made void
    before the move is given up. Returns False when it owns the job already. Raises CheckpointUnusable.
    """
    migration, job, source, target = move.migration, move.job, move.living_source, move.target
    if migration.step is Step.CUTOVER:
        void = ctx.checkpoints.void(ctx.checkpoint_root(job), job.id, migration.generation)
        if not void and source is not None and job.state in MOVING:
            return False  # the target owns the job: there is only forward, which the next tick finds out
    last_line = _last_line(why)
    again_ms = same_machine.free_from_ms(ctx, job, target) if failed and source is None else None
    with ctx.write() as tx:
        if not tx.advance(migration.id, migration.step, Step.ABORTED, error=why):
            return False
        unknown = migration.step is Step.PROVISION and migration.attempt > 0 and not refused
        tx.update_run(
            target.id,
            state="provisioning" if unknown else "ended",
            end="failed" if failed else "aborted",
            training_to_ms=ctx.now_ms,
        )
        if source is not None:
            tx.update_run(source.id, state="training")
        plan_id = None if plan is None else plan.id
        if plan is not None:
            tx.add_plan(plan, acted_on=[job.id])
        said = (
            f"move cancelled: {last_line}"
            if source is not None
            else f"not started on {migration.offer_id}: {last_line}"
        )
        ctx.event(tx, "migration.aborted", said, job, run=target, migration=migration, plan_id=plan_id)
        number = 0
        if cause is not None and not (failed and source is None):  # or its retries would count it, too
            number = _count_in_vain(ctx, tx, move, cause, last_line)
        if migration.reason == "standby":
            pass  # the job is where it was
        elif job.state in MOVING and source is not None:
            tx.set_job_state(job.id, "running")
        elif job.state in MOVING and failed:
            count_failure(ctx, tx, job, target, why, permanent=permanent, again_ms=again_ms)
        elif job.state in MOVING and number >= in_vain.MOST_IN_A_ROW:
            in_vain.give_up(ctx, tx, job, target)
        elif job.state in MOVING:
            pause_s = 0.0 if at_once else min(MAX_PAUSE_S, 0.25 * 2.0 ** given_up_in_a_row(tx, job))
            pause_s = max(pause_s, in_vain.back_off_s(number))
            tx.set_job_state(job.id, "queued")
            tx.set_job_facts(job.id, next_decision_ms=_later(ctx, pause_s))
    if source is not None:
        _quietly(lambda: ctx.runtime.resume(source.id))
    _quietly(lambda: ctx.runtime.kill(target.id))
    return True


def _count_in_vain(ctx: Context, tx: Tx, move: Move, cause: in_vain.Cause, why: str) -> int:
    """How many machines in a row that makes; 0 if none was rented for it, or a standby that was up and waited."""
    if move.target.instance_id is None or move.target.machine_from_ms is not None or waits(move.migration):
        return 0
    kind: in_vain.FailureKind = "placement.in_vain" if move.living_source is None else "move.in_vain"
    if move.migration.reason == "standby":
        kind = "standby.in_vain"
    return in_vain.count(ctx, tx, move.job, move.target, move.migration, kind, cause, why)


def count_failure(
    ctx: Context, tx: Tx, job: Job, run: Run, error: str, *, permanent: bool = False, again_ms: int | None = None
) -> None:
    """A run failed by its job's own doing: try that again, or fail it for want of retries.

    The next attempt begins on the same machine if that is free (`again_ms`: engine.migration.same_machine), else the
    job is queued after a growing pause. A `permanent` failure is the job's last, unless the job has trained before, on
    another machine. A job that is being cancelled or paused is not tried again.
    """
    runs = tx.runs(job_id=job.id)
    permanent = permanent and not any(each.last_step for each in runs)
    failures = tx.job_facts(job.id).failures + 1
    tx.set_job_facts(job.id, failures=failures, error=error)
    if permanent or failures > job.spec.retries:
        if job.state != "cancelling":
            tx.set_job_state(job.id, "failed")
            tx.set_job_facts(job.id, finished_at_ms=ctx.now_ms)
        spent = in_vain.spent_nano_usd(tx, [each.id for each in runs], ctx.now_ms)
        tries = f"after {failures} attempt{'s' if failures > 1 else ''}"
        after = f"{tries}, for another would fail alike" if permanent else tries
        message = f"failed {after}; {format_usd(spent, 4)} spent: {_last_line(error)}"
        ctx.event(tx, "job.failed", message, job, run=run, failures=failures, spent_nano_usd=spent, traceback=error)
        return
    ctx.event(tx, "run.failed", attempt_failed(job, failures, error), job, run=run, failures=failures)
    if again_ms is not None:
        same_machine.try_again(ctx, tx, job, run, again_ms)
        return
    if job.state not in ("cancelling", "pausing"):
        tx.set_job_state(job.id, "queued")
    tx.set_job_facts(job.id, next_decision_ms=_later(ctx, min(MAX_PAUSE_S, 2.0**failures)))


def attempt_failed(job: Job, failures: int, error: str) -> str:
    """What every surface says of a failure that is tried again; `retries` are attempts beyond the first."""
    return f"attempt {failures} of {job.spec.retries + 1} failed: {_last_line(error)}"


def given_up_in_a_row(tx: Tx, job: Job, *, standby: bool = False) -> int:
    """How many of the job's latest migrations, or of those of its standbys, were given up in a row."""
    count = 0
    for migration in reversed(tx.migrations(job_id=job.id, open=False)):
        if (migration.reason == "standby") is standby:
            if migration.step is not Step.ABORTED:
                break
            count += 1
    return count


def _last_line(error: str) -> str:
    return error.strip().splitlines()[-1] if error.strip() else "unknown error"


def _later(ctx: Context, wall_s: float) -> int:
    return ctx.now_ms + int(wall_s * ctx.installation.clock.factor * 1000)


def _quietly(call: Callable[[], None]) -> None:
    """A courtesy to a run that may be gone: its failure changes nothing, since holds expire and instances end."""
    try:
        call()
    except SiteError:
        return
