"""Commands: what users asked of the control plane through the store, carried out once each.

Must not know: the command line. Each outcome is written beside the command, so that whoever asked can read it.
"""

from __future__ import annotations

from orchestrator.engine import snapshot
from orchestrator.engine.context import Context
from orchestrator.engine.move import under_way
from orchestrator.engine.pausing import pause
from orchestrator.engine.place import apply, open_migration
from orchestrator.errors import NotFoundError
from orchestrator.model import TERMINAL, Job, Run
from orchestrator.policy import decide
from orchestrator.store import Command, Tx


def commands(ctx: Context) -> bool:
    """Carry out every open command. Returns whether there was one."""
    for command in ctx.work.commands:
        _carry_out(ctx, command)
    return bool(ctx.work.commands)


def _carry_out(ctx: Context, command: Command) -> None:
    with ctx.write() as tx:
        if command.kind == "apply":
            tx.close_command(command.id, _apply(ctx, tx, command))
            return
        assert command.job_id is not None
        job = tx.job(command.job_id)
        current = snapshot.current_run(tx.runs(job_id=job.id))
        if job.state in TERMINAL:
            tx.close_command(command.id, f"the job is {job.state}")
            return
        if command.kind == "pause":
            result = _pause(ctx, tx, job, current, command)
        elif command.kind == "resume":
            result = _resume(ctx, tx, job, command.actor)
        elif command.kind == "cancel":
            result = _cancel(ctx, tx, job, command.actor)
        elif command.kind == "migrate":
            result = _migrate(ctx, tx, job, current, command)
        else:
            result = f"unknown command {command.kind}"
        tx.close_command(command.id, result)


def _apply(ctx: Context, tx: Tx, command: Command) -> str:
    try:
        plan = tx.plan(str(command.args.get("plan_id")))
    except NotFoundError as error:
        return str(error)
    apply(ctx, tx, plan, actor=command.actor)
    return "applied"


def _pause(ctx: Context, tx: Tx, job: Job, current: Run | None, command: Command) -> str:
    if job.state in ("paused", "pausing", "cancelling"):
        return f"the job is {job.state}"
    pause(ctx, tx, job, current, f"asked by {command.actor}", actor=command.actor)
    return "pausing"


def _resume(ctx: Context, tx: Tx, job: Job, actor: str) -> str:
    if job.state != "paused":
        return f"the job is {job.state}, not paused"
    tx.set_job_state(job.id, "queued")
    tx.set_job_facts(job.id, next_decision_ms=None)
    ctx.event(tx, "job.resumed", "resumed", job, actor=actor)
    return "queued"


def _cancel(ctx: Context, tx: Tx, job: Job, actor: str) -> str:
    tx.set_job_state(job.id, "cancelling")
    ctx.event(tx, "job.cancelling", "cancelling", job, actor=actor)
    return "cancelling"


def _migrate(ctx: Context, tx: Tx, job: Job, current: Run | None, command: Command) -> str:
    """Move a running job to the offer that was named, or to the policy's best other one."""
    if current is None or job.state != "running":
        return f"the job is {job.state}: only a running job can be moved"
    if under_way(tx, job.id):
        return "a migration is under way already"
    wanted = command.args.get("offer_id")
    if wanted is None:
        inputs = snapshot.inputs(tx, ctx.now_ms, ctx.world.config, only=[job.id], doomed=frozenset({job.id}))
        plan = decide(
            inputs.demands, inputs.market, inputs.perf, inputs.running, rails=snapshot.rails(ctx.world.config)
        )
        placement = plan.placement(job.id)
        others = [
            alternative.offer_id
            for alternative in placement.alternatives
            if alternative.feasible and alternative.offer_id != current.offer_id
        ]
        if not others:
            return "there is no other offer that fits"
        wanted = others[0]
    elif wanted not in {offer.id for offer in tx.offers()}:
        return f"there is no offer {wanted}"
    elif wanted == current.offer_id:
        return f"it runs on {wanted} already"
    migration = open_migration(ctx, tx, job, str(wanted), "by hand", source=current)
    tx.set_job_state(job.id, "migrating")
    ctx.event(tx, "migration.asked", f"asked to move to {wanted}", job, migration=migration, actor=command.actor)
    return f"moving to {wanted}"
