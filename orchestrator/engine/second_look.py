"""Second look: before each step of a move that costs money or cannot be taken back, the policy is asked whether the
move still pays. One that does not is given up, and the reason is told.

A move by hand goes on, and so does one from a machine that is being taken away. Must not know: what pays.
"""

from __future__ import annotations

from dataclasses import replace

from orchestrator.engine import snapshot
from orchestrator.engine.context import Context
from orchestrator.engine.move import Move, abort
from orchestrator.model import VOLUNTARY
from orchestrator.policy import Underway, decide


def no_longer_pays(ctx: Context, move: Move, *, ready: bool = False, restored: bool = False) -> bool:
    """Whether the move was given up for that. `ready`: the target has started; `restored`: it holds the checkpoint."""
    migration, source = move.migration, move.living_source
    if migration.reason not in VOLUNTARY or source is None:
        return False
    instance = ctx.instance(source)
    if ctx.gone(source) or (instance is not None and instance.notice_deadline_ms is not None):
        return False
    config, job_id = ctx.world.config, move.job.id
    with ctx.world.store.read() as tx:
        inputs = snapshot.inputs(tx, ctx.now_ms, config, only=[job_id])
    running = inputs.running.get(job_id)
    if running is None:
        return False  # its source is no longer what the job runs on: the step itself finds that out
    underway = Underway(migration.offer_id, migration.reason, ready, restored)
    weighed = {job_id: replace(running, migrating=False, move=underway)}
    plan = decide(inputs.demands, inputs.market, inputs.perf, weighed, rails=snapshot.rails(config))
    placement = plan.placement(job_id)
    if placement.action != "stay":
        return False
    return abort(ctx, move, placement.reason, cause="outweighed", plan=plan)
