"""Intent: the run and the migration that are stored before a job is started anywhere.

The migration's token makes every repetition of a launch the same request.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from orchestrator.engine.context import Context
from orchestrator.engine.jobs.background_catalog import BackgroundCatalog
from orchestrator.engine.jobs.checkpoints import CheckpointDamaged, CheckpointsAwaited, CheckpointUnusable
from orchestrator.model import Job, Member, Migration, Reason, Run, Step
from orchestrator.store import Tx


def under_way(tx: Tx, job_id: str) -> bool:
    """Whether a migration of this job may still change where it runs."""
    return may_change_place(tx.migrations(job_id=job_id, open=True))


def may_change_place(open_ones: Iterable[Migration]) -> bool:
    """Whether one of a job's open migrations may still change where it runs. A migration that only releases its source,
    or that brings up a standby, cannot."""
    return any(each.step is not Step.RELEASE and each.reason != "standby" for each in open_ones)


def open_migration(
    ctx: Context,
    tx: Tx,
    job: Job,
    offer_id: str,
    reason: Reason,
    *,
    source: Run | None,
    plan_id: str | None = None,
    saving_nano_usd: int = 0,
    standby: Migration | None = None,
    after: Run | None = None,
    also: tuple[str, ...] = (),
) -> Migration:
    """Write the intent to bring `job` up on `offer_id`: a run, and the migration that will start it.

    A `standby`'s run is already up: it becomes the newest, and the migration begins where the standby waited. A run
    that comes `after` another on the same machine is billed from the end of the other's bill, and has its checkpoints;
    nothing is launched. `saving_nano_usd` is the plan's expected saving; `also`: see Migration. Raises
    CheckpointDamaged.
    """
    now = ctx.now_ms
    generation = 1 + max(taken(ctx, job), *(run.generation for run in tx.runs(job_id=job.id)), 0)
    _catalog(ctx, job).forget(ctx.checkpoint_root(job), job.id)  # the next run asks again
    first = Step.PROVISION if after is None else Step.READY
    run = Run(
        id=ctx.new_id("run") if standby is None else standby.target_run_id,
        job_id=job.id,
        generation=generation,
        offer_id=offer_id,
        instance_id=None if after is None else after.instance_id,
        state="provisioning",
        created_at_ms=now,
        billed_from_ms=None if after is None else after.billed_to_ms,
        machine_from_ms=None if after is None else after.machine_billed_from_ms,
        moved_from=None if after is None else after.moved_from,
        moved_bytes=None if after is None else after.moved_bytes,
        kept_bytes=None if after is None else after.kept_bytes,
        members=gang(job.spec.resources.nodes),
    )
    migration_id = ctx.new_id("mig")
    migration = Migration(
        id=migration_id,
        job_id=job.id,
        source_run_id=source.id if source is not None else None,
        target_run_id=run.id,
        offer_id=offer_id,
        generation=generation,
        reason=reason,
        step=first if standby is None else standby.step,
        attempt=0,
        token=hashlib.sha256(f"{ctx.installation.store.install_id}/{migration_id}".encode()).hexdigest()[:32],
        created_at_ms=now,
        step_at_ms=now,
        plan_id=plan_id,
        expected_saving_nano_usd=saving_nano_usd,
        also=also,
    )
    if standby is None:
        tx.add_run(run)
    else:
        tx.update_run(run.id, generation=generation, created_at_ms=now)
    tx.add_migration(migration)
    return migration


def gang(nodes: int) -> tuple[Member, ...]:
    """The machines of a run before they are rented; empty for a run on one machine."""
    return (Member(),) * nodes if nodes > 1 else ()


def taken(ctx: Context, job: Job) -> int:
    """The newest generation in the job's checkpoints, 0 if their store has not answered yet: this may be called in a
    transaction and does not wait. It is newer than all runs if the store was restored from a backup.

    Raises CheckpointDamaged: a job that cannot be handed over should not get a machine.
    """
    try:
        return newest_generation(ctx, job)
    except CheckpointDamaged:
        raise
    except CheckpointUnusable:
        return 0  # temporarily out of reach: the migration reports it if that lasts


def is_asked(ctx: Context, job: Job) -> bool:
    """Whether there is no need to wait for a job's checkpoints: `taken` knows the answer, or their store did not
    answer. Queries the store if that has not been done. Raises CheckpointDamaged."""
    try:
        newest_generation(ctx, job)
    except CheckpointsAwaited:
        return False
    except CheckpointDamaged:
        raise
    except CheckpointUnusable:
        return True
    return True


def newest_generation(ctx: Context, job: Job) -> int:
    """The newest generation in the job's checkpoints, 0 if it has none. Raises CheckpointUnusable."""
    return _catalog(ctx, job).taken(ctx.checkpoint_root(job), job.id)


def _catalog(ctx: Context, job: Job) -> BackgroundCatalog:
    return ctx.catalog(f"taken/{job.id}")
