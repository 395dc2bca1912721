"""Steps: the stored steps that start a job's next run and end the one before it.

    provision > ready > checkpoint > transfer > restore > verify > cutover > release > done

Each step is one function (engine.migration.bring_up, engine.migration.handover) that records its end with a guarded
update; any of them may be repeated after a crash. Until cutover a migration can be aborted, and the source keeps
training; after the fence it only goes forward. A first placement and a recovery are migrations whose source does not
exist or is already gone.
"""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.engine.compartment import one_line
from orchestrator.engine.context import Context
from orchestrator.engine.jobs.checkpoints import (
    OUT_OF_REACH_S,
    CheckpointDamaged,
    CheckpointsAwaited,
    CheckpointsOutOfReach,
    CheckpointUnusable,
)
from orchestrator.engine.migration import bring_up, handover
from orchestrator.engine.migration.move import MAY_HAVE_STANDBY, MOVING, Move, abort, load
from orchestrator.model import Migration, Step

BLOCKED_EVERY_S = 60.0

_STEPS: dict[Step, Callable[[Context, Move], bool]] = {
    Step.PROVISION: bring_up.provision,
    Step.READY: bring_up.ready,
    Step.CHECKPOINT: handover.checkpoint,
    Step.TRANSFER: handover.transfer,
    Step.RESTORE: handover.restore,
    Step.VERIFY: handover.verify,
    Step.CUTOVER: handover.cutover,
    Step.RELEASE: handover.release,
}


def advance(ctx: Context, migration: Migration) -> bool:
    """Carry a migration forward by at most one step. Returns whether anything changed.

    Raises SiteError, and CheckpointDamaged if the migration can neither continue nor be aborted until a user repairs
    the damage.
    """
    with ctx.installation.store.read() as tx:
        move = load(tx, migration)
    before_cutover = migration.step not in (Step.CUTOVER, Step.RELEASE)
    if before_cutover and move.job.state not in (MAY_HAVE_STANDBY if migration.reason == "standby" else MOVING):
        return abort(ctx, move, f"the job is {move.job.state}")
    try:
        return _STEPS[migration.step](ctx, move)
    except CheckpointDamaged:
        raise
    except CheckpointsAwaited:
        return False
    except CheckpointsOutOfReach as error:
        if before_cutover and move.living_source is not None:  # which continues to train
            return abort(ctx, move, one_line(error), cause="checkpoint")
        if before_cutover and ctx.waited_s(f"out-of-reach/{migration.id}") > OUT_OF_REACH_S:
            return abort(ctx, move, one_line(error), cause="checkpoint")
        return _blocked(ctx, move, error)
    except CheckpointUnusable as error:
        if not before_cutover:  # the fence may exist, so it cannot be aborted: try again
            return _blocked(ctx, move, error)
        return abort(ctx, move, one_line(error), failed=True)


def _blocked(ctx: Context, move: Move, error: CheckpointUnusable) -> bool:
    """Report, from time to time, why a migration waits."""
    migration = move.migration
    if ctx.due(f"blocked/{migration.id}", BLOCKED_EVERY_S):
        with ctx.write() as tx:
            ctx.event(tx, "migration.blocked", one_line(error), move.job, run=move.target, migration=migration)
    return False
