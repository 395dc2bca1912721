"""Move: a migration with its job and runs, as the steps use it, and how a migration is aborted.

Until its fence exists, a migration can be aborted at any step: the source keeps training, and engine.machines.reap
releases the target's machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import dropwhile

from orchestrator.engine.context import Context
from orchestrator.engine.migration import same_machine, wasted
from orchestrator.errors import SiteError
from orchestrator.model import Job, JobState, Migration, Plan, Run, RunState, Step
from orchestrator.store import Tx
from providers.money import about_usd

MOVING: tuple[JobState, ...] = ("starting", "migrating")
MAY_HAVE_STANDBY: tuple[JobState, ...] = ("queued", "starting", "running", "migrating")  # may have a standby
MAX_PAUSE_S = 60.0
MOST_IN_SHORT = 240
_TRACEBACK = "Traceback (most recent call last)"


@dataclass(frozen=True, slots=True)
class Move:
    """A migration, its job, and its source and target runs; `source` is None for a first placement."""

    migration: Migration
    job: Job
    source: Run | None
    target: Run

    @property
    def living_source(self) -> Run | None:
        """The source, unless it has ended."""
        return self.source if self.source is not None and self.source.end is None else None


def load(tx: Tx, migration: Migration) -> Move:
    """Read everything that a migration touches from the store."""
    source = tx.run(migration.source_run_id) if migration.source_run_id else None
    return Move(migration, tx.job(migration.job_id), source, tx.run(migration.target_run_id))


def waits(migration: Migration) -> bool:
    """Whether it has started a standby that now waits to be promoted."""
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
    """Record that the present step is done. `passed_over` names a checkpoint that was found damaged."""
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
    cause: wasted.Cause | None = None,
    failed: bool = False,
    at_once: bool = False,
    refused: bool = False,
    permanent: bool = False,
    plan: Plan | None = None,
) -> bool:
    """Abort a migration. Returns False if it cannot be aborted or was already. Raises CheckpointUnusable.

    `failed`: the job's own code is at fault, which uses up a retry unless the source keeps training; `permanent` if
    another attempt would fail the same way. `at_once`: the job may be placed elsewhere immediately; otherwise it waits,
    longer with each abort in a row. With a `cause` (any reason other than a user's decision or a spending limit), a
    rented machine counts as wasted. Unless the launch was `refused`, a machine may exist: the run ends, but stays in
    the state `provisioning` until engine.machines.reap has found out. A `plan` that argues against the move is stored
    with the event.

    At CUTOVER another control plane, paused since it last looked, may be about to write the fence. So the generation is
    voided before the move is aborted, which fails (False) if the target already owns the job.
    """
    migration, job, source, target = move.migration, move.job, move.living_source, move.target
    if migration.step is Step.CUTOVER:
        void = voided(ctx, move)
        if not void and source is not None and job.state in MOVING:
            return False  # the target owns the job: the next tick finds that out and continues
    why_in_short = in_short(why)
    free = same_machine.free(ctx, job, target) if failed and source is None else same_machine.Free()
    if free is None:
        return False  # its provider is being asked
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
        message = _outcome(move, why_in_short, at_once=at_once)
        ctx.event(tx, "migration.aborted", message, job, run=target, migration=migration, plan_id=plan_id)
        number = 0
        if cause is not None and not (failed and source is None):  # otherwise its retries count it
            number = _count_wasted(ctx, tx, move, cause, why_in_short)
        if migration.reason == "standby":
            pass  # the job itself has not changed
        elif job.state in MOVING and source is not None:
            tx.set_job_state(job.id, "running")
        elif job.state in MOVING and failed:
            count_failure(ctx, tx, job, target, why, permanent=permanent, again_ms=free.from_ms)
        elif job.state in MOVING and number >= wasted.MOST_IN_A_ROW:
            wasted.pause_job(ctx, tx, job, target)
        elif job.state in MOVING:
            pause_s = 0.0 if at_once else min(MAX_PAUSE_S, 0.25 * 2.0 ** given_up_in_a_row(tx, job))
            pause_s = max(pause_s, wasted.back_off_s(number))
            tx.set_job_state(job.id, "queued")
            tx.set_job_facts(job.id, next_decision_ms=_later(ctx, pause_s))
    if source is not None:
        _quietly(lambda: ctx.runtime.resume(source.id))
    _quietly(lambda: ctx.runtime.kill(target.id))
    return True


def _outcome(move: Move, why: str, *, at_once: bool) -> str:
    """The event's text: what was aborted, why, and what happens next."""
    offer_id, source = move.target.offer_id, move.living_source
    if move.migration.reason == "standby":
        return f"standby not started on {offer_id}: {why}"
    if source is not None:
        return f"move cancelled: {why}" + (f"; stays on {source.offer_id}" if move.job.state in MOVING else "")
    return f"not started on {offer_id}: {why}" + (
        "; trying the next offer" if at_once and move.job.state in MOVING else ""
    )


def _count_wasted(ctx: Context, tx: Tx, move: Move, cause: wasted.Cause, why: str) -> int:
    """Record a wasted machine. Returns how many in a row; 0 if no machine was rented, or for a standby that was
    ready."""
    if move.target.instance_id is None or move.target.machine_from_ms is not None or waits(move.migration):
        return 0
    kind: wasted.WasteKind = "placement.wasted" if move.living_source is None else "move.wasted"
    if move.migration.reason == "standby":
        kind = "standby.wasted"
    return wasted.count(ctx, tx, move.job, move.target, move.migration, kind, cause, why)


def voided(ctx: Context, move: Move) -> bool:
    """Make sure that the target can never take over. False if it has. Raises CheckpointUnusable."""
    root, generation = ctx.checkpoint_root(move.job), move.migration.generation
    return ctx.catalog(f"void/{move.migration.id}").void(root, move.job.id, generation)


def count_failure(
    ctx: Context, tx: Tx, job: Job, run: Run, error: str, *, permanent: bool = False, again_ms: int | None = None
) -> None:
    """Count a run that failed through its job's own fault: retry, or fail the job when no retry is left.

    The next attempt starts on the same machine if that is free (`again_ms`, see engine.migration.same_machine);
    otherwise the job is queued after a growing pause. A `permanent` failure ends the job at once, unless it has trained
    before on another machine. A job that is being cancelled or paused is not retried.
    """
    runs = tx.runs(job_id=job.id)
    permanent = permanent and not any(each.last_step for each in runs)
    failures = tx.job_facts(job.id).failures + 1
    tx.set_job_facts(job.id, failures=failures, error=error)
    if permanent or failures > job.spec.retries:
        if job.state != "cancelling":
            tx.set_job_state(job.id, "failed")
            tx.set_job_facts(job.id, finished_at_ms=ctx.now_ms)
        spent = wasted.spent_nano_usd(tx, [each.id for each in runs], ctx.now_ms)
        tries = f"after {failures} attempt{'s' if failures > 1 else ''}"
        after = f"{tries} (another would fail the same way)" if permanent else tries
        message = f"failed {after}; {about_usd(spent)} spent so far: {in_short(error)}"
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
    """The message for a failure that is retried; `retries` are attempts beyond the first."""
    return f"attempt {failures} of {job.spec.retries + 1} failed: {in_short(error)}"


def given_up_in_a_row(tx: Tx, job: Job, *, standby: bool = False) -> int:
    """How many of the job's latest migrations (or its standbys') were aborted in a row."""
    count = 0
    for migration in reversed(tx.migrations(job_id=job.id, open=False)):
        if (migration.reason == "standby") is standby:
            if migration.step is not Step.ABORTED:
                break
            count += 1
    return count


def in_short(error: str) -> str:
    """The last line of a text; for a traceback, the last exception with all lines of its message. In one line of at
    most MOST_IN_SHORT characters."""
    lines = [line for line in error.splitlines() if line.strip()] or ["unknown error"]
    begins = max((number for number, line in enumerate(lines) if _TRACEBACK in line), default=None)
    if begins is None:
        return lines[-1].strip()
    raised = [*dropwhile(lambda line: line.startswith(" "), lines[begins + 1 :])] or lines[-1:]
    said = " ".join(" ".join(raised).split())
    return said if len(said) <= MOST_IN_SHORT else f"{said[: MOST_IN_SHORT - 4]} ..."


def _later(ctx: Context, wall_s: float) -> int:
    return ctx.now_ms + int(wall_s * ctx.installation.clock.factor * 1000)


def _quietly(call: Callable[[], None]) -> None:
    """Call a run that may be gone. A failure does no harm: quiescing expires, and machines end anyway."""
    try:
        call()
    except SiteError:
        return
