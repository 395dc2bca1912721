"""Revalidate: asks the policy again before each step of a migration that costs money or cannot be undone.

Before a machine is rented for a job that is not running or must leave (a first placement, a recovery): is this still
the right offer? Before each such step of a voluntary move: does it still pay? If not, the move is aborted with the
reason. Manual moves and standbys are always carried out.
"""

from __future__ import annotations

from dataclasses import replace

from orchestrator.engine.context import Context
from orchestrator.engine.inputs import snapshot
from orchestrator.engine.jobs.reserved import at_its_turn
from orchestrator.engine.migration.move import Move, abort
from orchestrator.model import VOLUNTARY, Migration, Plan, Run
from orchestrator.policy import Underway, decide

_AS_ORDERED = ("manual", "standby")


def no_longer_pays(ctx: Context, move: Move, *, ready: bool = False, restored: bool = False) -> bool:
    """Whether the move was aborted here. `ready`: the target has started; `restored`: it holds the checkpoint."""
    plan = _weighed(ctx, move, ready=ready, restored=restored)
    if plan is None or plan.placement(move.job.id).action != "stay":
        return False
    return abort(ctx, move, plan.placement(move.job.id).reason, cause="outweighed", plan=plan)


def still_pays(ctx: Context, move: Move) -> Migration | None:
    """The migration whose machine may be rented now; None if the move was aborted here. Before the first launch, it
    leaves out further offers that are no longer as good. After the launch they stay, as the token requires."""
    migration = move.migration
    plan = _weighed(ctx, move)
    if plan is None:
        return migration
    placement = plan.placement(move.job.id)
    if placement.action == "stay":
        abort(ctx, move, placement.reason, cause="outweighed", plan=plan)
        return None
    if migration.attempt:
        return migration
    return replace(migration, also=tuple(each for each in migration.also if each in placement.also))


def _weighed(ctx: Context, move: Move, *, ready: bool = False, restored: bool = False) -> Plan | None:
    """The decision about the move now: "move" or "stay". None if there is nothing to decide."""
    migration, source = move.migration, move.living_source
    if migration.reason in _AS_ORDERED:
        return None
    stays = source is not None and not _leaves(ctx, source)
    if ready and not (stays and migration.reason in VOLUNTARY):
        return None  # its machine is paid for, and the job has nowhere else to go
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
            besides=move.target.id,
        )
    running = inputs.running.get(job_id)
    if source is not None and running is None:
        return None  # the job no longer runs on its source: the step itself finds that out
    underway = Underway(migration.offer_id, migration.reason, ready, restored)
    weighed = {} if running is None else {job_id: replace(running, migrating=False, move=underway)}
    return decide(
        [at_its_turn(ctx, each) for each in inputs.demands],
        inputs.market,
        inputs.perf,
        weighed,
        limits=snapshot.limits(config),
        underway={job_id: underway},
    )


def _leaves(ctx: Context, source: Run) -> bool:
    """Whether its machine is gone or has a preemption notice."""
    instance = ctx.instance(source)
    return ctx.lost(source) or (instance is not None and instance.notice_deadline_ms is not None)
