"""Place: ask the policy where jobs should run, and write down the moves that it wants.

Runs when a job waits, a machine is lost or about to be, a price changed, or the daily decision is due. What it writes
is an intent: a migration with its token and a run in state `provisioning`, in one transaction with the plan.
Must not know: how a decision is reached, or how a migration is carried out.
"""

from __future__ import annotations

import hashlib

from orchestrator.engine import snapshot
from orchestrator.engine.context import Context
from orchestrator.model import Job, Migration, Placement, Plan, Reason, Run, Step
from orchestrator.policy import decide
from orchestrator.store import Tx

WAIT_EVERY_WALL_S = 2.0  # a job without a place is looked at again this often


def place(ctx: Context) -> bool:
    """One decision over all jobs that may be placed or moved now. Returns whether a migration was opened."""
    now = ctx.now_ms
    with ctx.world.store.read() as tx:
        candidates = _candidates(tx, now)
        if not candidates:
            return False
        doomed = frozenset(job_id for job_id in candidates if _doomed(ctx, tx, job_id))
        inputs = snapshot.inputs(tx, now, ctx.world.config, only=candidates, doomed=doomed)
    plan = decide(inputs.demands, inputs.market, inputs.perf, inputs.running, rails=snapshot.rails(ctx.world.config))
    return apply(ctx, plan)


def apply(ctx: Context, plan: Plan, *, actor: str | None = None) -> bool:
    """Open the migrations of a plan. Jobs that changed since it was made are left as they are."""
    opened = False
    with ctx.write() as tx:
        kept = False
        for placement in plan.placements:
            job = tx.job(placement.job_id)
            if placement.action in ("place", "move") and placement.offer_id is not None:
                if not kept:
                    tx.add_plan(plan)
                    kept = True
                opened |= _open(ctx, tx, job, placement, plan, actor)
            elif placement.action == "wait":
                kept = _wait(ctx, tx, job, placement, plan, kept)
    return opened


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
) -> Migration:
    """Write the intent to bring `job` up on `offer_id`: a run, and the migration that will start it."""
    now = ctx.now_ms
    generation = 1 + max((run.generation for run in tx.runs(job_id=job.id)), default=0)
    run = Run(
        id=ctx.new_id("run"),
        job_id=job.id,
        generation=generation,
        offer_id=offer_id,
        instance_id=None,
        state="provisioning",
        created_at_ms=now,
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
        step=Step.PROVISION,
        attempt=0,
        token=hashlib.sha256(f"{ctx.world.store.install_id}/{migration_id}".encode()).hexdigest()[:32],
        created_at_ms=now,
        step_at_ms=now,
        plan_id=plan_id,
        expected_saving_nano_usd=saving_nano_usd,
    )
    tx.add_run(run)
    tx.add_migration(migration)
    return migration


def _candidates(tx: Tx, now: int) -> list[str]:
    """Jobs that wait for a place and may be looked at, and running ones without an open migration."""
    found = []
    for job in tx.jobs(states=("queued", "running")):
        if tx.migrations(job_id=job.id, open=True):
            continue
        not_before = tx.job_facts(job.id).next_decision_ms
        if job.state == "queued" and not_before is not None and now < not_before:
            continue
        found.append(job.id)
    return found


def _doomed(ctx: Context, tx: Tx, job_id: str) -> bool:
    """Whether the machine of the job's current run was given notice."""
    current = snapshot.current_run(tx.runs(job_id=job_id))
    instance = ctx.instances.get(current.instance_id or "") if current is not None else None
    return instance is not None and instance.notice_deadline_ms is not None


def _open(ctx: Context, tx: Tx, job: Job, placement: Placement, plan: Plan, actor: str | None) -> bool:
    if tx.migrations(job_id=job.id, open=True) or job.state not in ("queued", "running"):
        return False
    assert placement.offer_id is not None
    runs = tx.runs(job_id=job.id)
    current = snapshot.current_run(runs)
    before = [run for run in runs if run.training_from_ms is not None]
    source = current if current is not None else max(before, key=lambda run: run.generation, default=None)
    reason = _reason(placement, source)
    migration = open_migration(
        ctx,
        tx,
        job,
        placement.offer_id,
        reason,
        source=source,
        plan_id=plan.id,
        saving_nano_usd=placement.saving_nano_usd,
    )
    tx.set_job_state(job.id, "starting" if current is None else "migrating")
    if tx.job_facts(job.id).baseline_offer_id is None and placement.baseline is not None:
        tx.set_job_facts(job.id, baseline_offer_id=placement.baseline.offer_id)
    ctx.event(
        tx,
        "plan.decided",
        f"{placement.action} on {placement.offer_id}: {placement.reason}",
        job,
        migration=migration,
        plan_id=plan.id,
        reason=reason,
        cost_nano_usd=placement.cost_nano_usd,
        saving_nano_usd=placement.saving_nano_usd,
        by=actor,
    )
    return True


def _reason(placement: Placement, source: Run | None) -> Reason:
    if source is None:
        return "first placement"
    if source.end is None:
        if placement.action == "place":
            return "notice"  # it still trains, but its machine will be taken
        return "cheaper offer" if placement.saving_nano_usd > 0 else "objective"
    if source.end == "failed":
        return "retry"
    if source.end == "paused":
        return "resume"
    return "lost"


def _wait(ctx: Context, tx: Tx, job: Job, placement: Placement, plan: Plan, kept: bool) -> bool:
    """Say once per reason why a job has no place.

    One that runs goes on: an estimate stops nobody, and engine.guard pauses it before a ceiling is really passed.
    """
    if job.state == "running":
        current = snapshot.current_run(tx.runs(job_id=job.id))
        told = tx.events(job_id=job.id, kinds=("job.doubtful",), limit=1, newest_first=True)
        if current is None or (told and told[0].run_id == current.id):
            return kept
        tx.add_plan(plan)
        ctx.event(tx, "job.doubtful", placement.reason, job, run=current, plan_id=plan.id)
        return True
    if job.state != "queued":
        return kept
    tx.set_job_facts(job.id, next_decision_ms=ctx.now_ms + int(WAIT_EVERY_WALL_S * ctx.world.clock.factor * 1000))
    last = tx.events(job_id=job.id, kinds=("job.waits",), limit=1, newest_first=True)
    if last and last[0].message == placement.reason:
        return kept
    if not kept:
        tx.add_plan(plan)
    ctx.event(tx, "job.waits", placement.reason, job, plan_id=plan.id)
    return True


def pause(ctx: Context, tx: Tx, job: Job, current: Run | None, why: str, *, actor: str) -> str:
    """Begin pausing: engine.guard lets the current run write a checkpoint and end; open migrations are given up."""
    if job.state in ("paused", "pausing"):
        return f"the job is {job.state}"
    idle = current is None and not tx.migrations(job_id=job.id, open=True)
    tx.set_job_state(job.id, "paused" if idle else "pausing")
    ctx.event(tx, "job.pausing", f"pausing: {why}", job, run=current, actor=actor)
    return "pausing"
