"""Migration: the persisted steps that bring a job's next run up and let the one before it go.

    provision > ready > checkpoint > transfer > restore > verify > cutover > release > done

Each step is carried out by one function (engine.migration.bring_up, engine.migration.handover) that records it with a
guarded update; any of them may be repeated after a crash. Until cutover a migration can be given up and the source
trains on; from the fence on it only goes forward. The first placement and a recovery are migrations whose source does
not exist or is already gone.
"""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.engine.compartment import said
from orchestrator.engine.context import Context
from orchestrator.engine.jobs.checkpoints import CheckpointDamaged, CheckpointUnusable
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

    Raises SiteError, and CheckpointDamaged: neither forward nor back makes sense until somebody has repaired it.
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
    except CheckpointUnusable as error:
        if not before_cutover:  # the fence may exist, so there may be no way back: asked again
            if ctx.due(f"blocked/{migration.id}", BLOCKED_EVERY_S):
                with ctx.write() as tx:
                    ctx.event(tx, "migration.blocked", said(error), move.job, run=move.target, migration=migration)
            return False
        return abort(ctx, move, said(error), failed=True)
