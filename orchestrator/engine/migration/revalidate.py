"""Revalidate: asks the policy again before each step of a migration that costs money or cannot be undone.

Before a machine is rented for a job that runs nowhere or must leave (a first placement, a recovery): is this still the
right offer? Before each such step of a voluntary move: does it still pay? If not, the move is aborted with the reason.
Manual moves and standbys are always carried out.
"""

from __future__ import annotations

from dataclasses import replace

from orchestrator.engine.context import Context
from orchestrator.engine.inputs import snapshot
from orchestrator.engine.migration.move import Move, abort
from orchestrator.model import VOLUNTARY, Run
from orchestrator.policy import Underway, decide

_AS_ORDERED = ("manual", "standby")


def no_longer_pays(ctx: Context, move: Move, *, ready: bool = False, restored: bool = False) -> bool:
    """Whether the move was aborted here. `ready`: the target has started; `restored`: it holds the checkpoint."""
    migration, source = move.migration, move.living_source
    if migration.reason in _AS_ORDERED:
        return False
    stays = source is not None and not _leaves(ctx, source)
    if ready and not (stays and migration.reason in VOLUNTARY):
        return False  # its machine is paid for, and there is nowhere else to go
    config, job_id = ctx.installation.config, move.job.id
    with_notice = frozenset() if stays else frozenset({job_id})
    with ctx.installation.store.read() as tx:
        inputs = snapshot.inputs(
            tx,
            ctx.now_ms,
            config,
            only=[job_id],
            with_notice=with_notice,
            markets=ctx.markets,
            speeds=ctx.speeds,
            used=ctx.used_offers,
        )
    running = inputs.running.get(job_id)
    if source is not None and running is None:
        return False  # its source is no longer what the job runs on: the step itself finds that out
    underway = Underway(migration.offer_id, migration.reason, ready, restored)
    weighed = {} if running is None else {job_id: replace(running, migrating=False, move=underway)}
    plan = decide(
        inputs.demands,
        inputs.market,
        inputs.perf,
        weighed,
        limits=snapshot.limits(config),
        underway={job_id: underway},
    )
    placement = plan.placement(job_id)
    if placement.action != "stay":
        return False
    return abort(ctx, move, placement.reason, cause="outweighed", plan=plan)


def _leaves(ctx: Context, source: Run) -> bool:
    """Whether its machine is gone or was given notice."""
    instance = ctx.instance(source)
    return ctx.lost(source) or (instance is not None and instance.notice_deadline_ms is not None)
