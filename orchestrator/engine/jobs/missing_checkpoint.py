"""A job's newest checkpoint is missing: its folder was deleted, or is not mounted.

Without it, work would be repeated. So the job is paused, and the user can put the checkpoints back. If the user resumes
the job without them, it continues from the newest checkpoint that is left. If there is none of any step, perhaps there
never was one, so the message names the command that starts the job from step 0.
"""

from __future__ import annotations

from orchestrator.engine.context import ACTOR, Context
from orchestrator.engine.jobs.checkpoints import Newest
from orchestrator.engine.jobs.pausing import pause
from orchestrator.model import Job, latest_trained


def pauses_without(ctx: Context, job: Job, newest: Newest) -> bool:
    """Pause the job if `newest`, the best checkpoint found, is older than the newest one that the job reported. Returns
    whether it is paused. Damaged checkpoints do not count as missing: the catalog reports them."""
    if newest.damaged:
        return False
    left = 0 if newest.found is None else newest.found.step
    with ctx.write() as tx:
        latest = latest_trained(tx.runs(job_id=job.id))
        if latest is None or latest.saved_step is None or latest.saved_step <= left:
            return False
        name = tx.typed_name(job.id, job.name)
        why = f"its checkpoint of step {latest.saved_step} is missing from {ctx.checkpoint_root(job)}"
        if newest.found is None:
            why += (
                f", which has no checkpoint of this job. To start it from step 0: tradewind resume {name}. If its "
                "checkpoints were moved away, put them back first"
            )
        else:
            why += (
                f": the newest one left is of step {left}. Put the checkpoints back, then run: tradewind resume {name} "
                f"(without them, it continues from step {left})"
            )
        tx.update_run(latest.id, saved_step=left)
        pause(ctx, tx, job, None, why, actor=ACTOR)
    return True
