"""Place: asks the policy where jobs should run, and stores the resulting migrations.

Due when a job waits, a machine is lost or has a preemption notice, a price changed, and daily; engine.migration.turns
decides whose turn it is. It stores an intent: a migration with its token and a run in state `provisioning`, in one
transaction with the plan.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from orchestrator.engine.billing import spending_limits
from orchestrator.engine.billing.group_budget import with_group_order
from orchestrator.engine.compartment import Compartment, concerns_all, contained, contained_writes, not_its_own
from orchestrator.engine.context import ACTOR, Context
from orchestrator.engine.inputs import snapshot
from orchestrator.engine.jobs import predecessors
from orchestrator.engine.jobs.left_behind import pauses_left_behind
from orchestrator.engine.jobs.pausing import pause
from orchestrator.engine.jobs.priorities import ahead, in_order, priorities
from orchestrator.engine.jobs.reserved import at_its_turn, is_known, why_later
from orchestrator.engine.migration import lateness
from orchestrator.engine.migration.intent import is_asked, may_change_place, open_migration, under_way
from orchestrator.engine.migration.limits import check_limits, keep_a_place, within_limits
from orchestrator.engine.migration.startable import WAIT_EVERY_WALL_S, may_be_placed
from orchestrator.engine.migration.turns import Turns
from orchestrator.errors import LimitError
from orchestrator.model import ACTION_WORDS_ON, START_UNKNOWN, Job, Placement, Plan, Reason, Run, steps_done
from orchestrator.policy import decide, expected
from orchestrator.store import Tx
from providers.offer import provider_of
from providers.shared_launch import together

UNBOOKED = "the cost of its last machine is not known yet, and so what is left of its budget"


def place(ctx: Context, turns: Turns) -> bool:
    """Decide about the jobs whose turn it is. Returns whether a migration was opened."""
    with_notice = jobs_with_notice(ctx)
    sound = {job_id: job for job_id, job in ctx.work.jobs.items() if job_id not in ctx.work.quarantined}
    able = {job_id for job_id, job in sound.items() if job.state in ("queued", "running") and is_known(ctx, job)}
    able -= {run.job_id for run in ctx.work.runs if run.end is None and ctx.may_have_ended(run)}
    in_need = {job_id for job_id in able if _needs_machine(sound[job_id], with_notice)}
    able -= {job_id for job_id in in_need & turns.due if not _is_asked(ctx, sound[job_id])}
    in_need &= able
    jobs = turns.take(able, in_need, ctx.work.jobs, with_notice)
    try:
        return _place(ctx, jobs, with_notice)
    except Exception as error:
        if concerns_all(error):  # it may be over at the next tick
            turns.ask(jobs)
        raise


def _place(ctx: Context, jobs: Sequence[str], with_notice: frozenset[str]) -> bool:
    plan = _decided(ctx, jobs, with_notice) if jobs else None
    if plan is None:
        return False
    with ctx.write() as tx:
        tx.put_forecasts({each.job_id: expected(each, plan.at_ms) for each in plan.placements}, plan.at_ms)
    for again_ms in (each.again_at_ms for each in plan.placements):
        if (
            again_ms is not None
        ):  # this plan does not include jobs on their way, and the requests of an earlier plan for them stand
            ctx.pacing["again-ms"] = min(float(again_ms), ctx.pacing.get("again-ms", float("inf")))
    contained_writes(
        ctx,
        Compartment.PLACE,
        lateness.turned(ctx, plan),
        lambda placement: placement.job_id,
        lambda tx, placement: lateness.report(ctx, tx, plan, placement),
    )
    return any(
        contained_writes(
            ctx,
            Compartment.PLACE,
            [each for each in _in_order(ctx, plan) if each.action not in ("stay", "none")],  # there is nothing to write
            lambda placement: placement.job_id,
            lambda tx, placement: _apply_one(ctx, tx, plan, placement, None),
        )
    )


def _in_order(ctx: Context, plan: Plan) -> Sequence[Placement]:
    """The placements, in the order of the jobs' precedence."""
    jobs = [ctx.work.jobs[each.job_id] for each in plan.placements if each.job_id in ctx.work.jobs]
    with ctx.installation.store.read() as tx:
        rank = {job.id: number for number, job in enumerate(in_order(ctx, tx, jobs))}
    return sorted(plan.placements, key=lambda each: rank.get(each.job_id, len(rank)))


def _is_asked(ctx: Context, job: Job) -> bool:
    """Whether there is no need to wait for its checkpoints: they determine the generation of the next run."""
    return contained(ctx, Compartment.PLACE, partial(is_asked, ctx, job), False, job_id=job.id)


def _decided(ctx: Context, jobs: Sequence[str], with_notice: frozenset[str]) -> Plan | None:
    """One plan for those of these jobs that may be placed or moved now; None if there are none. If planning fails, the
    jobs that also fail when planned alone are left out."""
    try:
        for job_id in jobs:
            ctx.crossing(Compartment.DECIDE.value, job_id)
        plan = _plan(ctx, jobs, with_notice)
        for job_id in jobs:
            ctx.crossed(Compartment.DECIDE.value, job_id)
        return plan
    except Exception as error:
        if not_its_own(error):
            raise
        _plan(ctx, (), with_notice)  # if this also fails, no job is at fault
        sound = [
            job_id
            for job_id in jobs
            if contained(
                ctx,
                Compartment.DECIDE,
                partial(_decides, ctx, job_id, with_notice),
                False,
                job_id=job_id,
            )
        ]
        if len(sound) == len(jobs):
            raise
    return _plan(ctx, sound, with_notice, alone=True)


def _decides(ctx: Context, job_id: str, with_notice: frozenset[str]) -> bool:
    _plan(ctx, [job_id], with_notice, alone=True)
    return True


def _plan(ctx: Context, jobs: Sequence[str], with_notice: frozenset[str], *, alone: bool = False) -> Plan | None:
    """A plan for these jobs and, unless `alone`, for the waiting jobs that come before one of them; None if none may be
    placed."""
    now, config = ctx.now_ms, ctx.installation.config
    with ctx.installation.store.read() as tx:
        waiting = tx.jobs_of(jobs, unreadable=snapshot.left_out)
        facts, moves = tx.job_facts_of(jobs), tx.migrations_of(jobs, open=True)
        free = [job for job in waiting if may_be_placed(ctx, job, facts[job.id], moves[job.id])]
        moved = ctx.installation.has_former_root(tx)
    free = [job for job in free if not _waits(ctx, job, moved=moved)]
    chosen = [job.id for job in free]
    if not alone:
        chosen += _ahead(ctx, free, moved=moved)
    if jobs and not chosen:
        return None
    with ctx.installation.store.read() as tx:
        inputs = snapshot.inputs(
            tx,
            now,
            config,
            only=chosen,
            with_notice=with_notice,
            markets=ctx.markets,
            speeds=ctx.speeds,
            used=ctx.used_offers,
        )
    demands = [at_its_turn(ctx, each) for each in inputs.demands]
    return decide(demands, inputs.market, inputs.perf, inputs.running, limits=snapshot.limits(config))


def _ahead(ctx: Context, chosen: Sequence[Job], *, moved: bool) -> list[str]:
    """The waiting jobs that come before one of these. They are considered even if they were considered a moment ago."""
    with ctx.installation.store.read() as tx:
        first = ahead(ctx, tx, chosen)
        ids = [job.id for job in first]
        facts, moves = tx.job_facts_of(ids), tx.migrations_of(ids, open=True)
    soon_ms = ctx.now_ms + WAIT_EVERY_WALL_S * ctx.installation.clock.factor * 1000
    return [
        job.id
        for job in first
        if (facts[job.id].next_decision_ms or 0) <= soon_ms
        and not may_change_place(moves[job.id])
        and _is_asked(ctx, job)
        and not _waits(ctx, job, moved=moved)
    ]


def _waits(ctx: Context, job: Job, *, moved: bool) -> bool:
    """Whether a job waits for other jobs, for its secrets or, if `store_root` was `moved`, for its files in the former
    one."""
    return _waits_for_others(ctx, job) or _waits_for_secrets(ctx, job.id) or (moved and pauses_left_behind(ctx, job))


def apply(ctx: Context, tx: Tx, plan: Plan, *, actor: str | None = None) -> bool:
    """Open the migrations of a plan. Jobs that changed since it was made are skipped."""
    return any([_apply_one(ctx, tx, plan, placement, actor) for placement in plan.placements])


def _apply_one(ctx: Context, tx: Tx, plan: Plan, placement: Placement, actor: str | None) -> bool:
    job = tx.job(placement.job_id)
    if placement.action in ("place", "move") and placement.offer_id is not None:
        return _open(ctx, tx, job, placement, plan, actor)
    if placement.action == "wait":
        _wait(ctx, tx, job, placement, plan)
    return False


def jobs_in_need(ctx: Context) -> frozenset[str]:
    """Jobs that have no machine, or are about to lose theirs."""
    with_notice = jobs_with_notice(ctx)
    return frozenset(job_id for job_id, job in ctx.work.jobs.items() if _needs_machine(job, with_notice))


def _needs_machine(job: Job, with_notice: Collection[str]) -> bool:
    return job.state == "queued" or (job.state == "running" and job.id in with_notice)


def jobs_with_notice(ctx: Context) -> frozenset[str]:
    """Jobs that train on a machine for which the provider has given a preemption notice."""
    with_notice = {
        key for key, each in ctx.instances.items() if each is not None and each.notice_deadline_ms is not None
    }
    return frozenset(
        run.job_id
        for run in ctx.work.runs
        if run.state in ("training", "quiesced")
        and (run.id in ctx.announced or not with_notice.isdisjoint(run.instance_ids))
        and (instance := ctx.instance(run)) is not None
        and instance.notice_deadline_ms is not None
    )


def _waits_for_secrets(ctx: Context, job_id: str) -> bool:
    """Whether a secret is missing without which the job cannot start. Reported once, for a running job once per run.

    The job waits: nothing is rented for it, and no retry is used up.
    """
    job = ctx.work.jobs.get(job_id)  # a job newer than this tick is checked when its migration is opened
    missing = ctx.secrets.missing(job, ctx.typed_name) if job is not None else None
    if job is None or missing is None:
        return False
    with ctx.write() as tx:
        current = snapshot.current_run(tx.runs(job_id=job.id))
        reported = tx.events(job_id=job.id, kinds=("job.missing_secrets",), limit=1, newest_first=True)
        if job.state == "queued":
            _hold(ctx, tx, job, missing)
        elif current is not None and not (reported and reported[0].run_id == current.id):
            message = f"keeps training, but cannot restart elsewhere: it {missing}"
            ctx.event(tx, "job.missing_secrets", message, job, run=current)
    return True


def _waits_for_others(ctx: Context, job: Job) -> bool:
    """Whether other jobs must finish before this one. The job fails if one of them never will."""
    if not job.after or job.state != "queued":
        return False
    with ctx.write() as tx:
        if (why := predecessors.lost(tx, job)) is not None:
            predecessors.fail(ctx, tx, job, why)
            return True
        if (why := predecessors.waits_for(tx, job)) is not None:
            _hold(ctx, tx, job, why)
            return True
    return False


def _open(ctx: Context, tx: Tx, job: Job, placement: Placement, plan: Plan, actor: str | None) -> bool:
    if under_way(tx, job.id) or job.state not in ("queued", "running"):
        return False
    assert placement.offer_id is not None
    if (others := predecessors.waits_for(tx, job)) is not None:  # a plan that a user applies does not know
        _hold(ctx, tx, job, others, plan)
        return False
    if (missing := ctx.secrets.missing(job, ctx.typed_name)) is not None:
        _hold(ctx, tx, job, missing, plan)
        return False
    runs = tx.runs(job_id=job.id)
    current, before = snapshot.current_run(runs), [run for run in runs if run.training_from_ms is not None]
    standing = priorities(ctx, tx, [job])[job.id], bool(before)
    try:
        check_limits(ctx, tx, job, placement.offer_id, standing=standing)
    except LimitError as error:
        if job.state == "queued":
            keep_a_place(ctx, job, placement.offer_id, standing)
        _hold(ctx, tx, job, f"{error}: {error.hint}", plan)
        return False
    leaves = None if placement.action == "place" else current  # otherwise its machine is being taken away
    if (refusal := spending_limits.refuses(ctx, job, placement.offer_id, leaves)) is not None:
        if job.state == "queued" and not tx.runs(job_id=job.id, unsettled=True):
            tx.add_plan(plan)
            pause(
                ctx, tx, job, None, f"{refusal}, then tradewind resume {tx.typed_name(job.id, job.name)}", actor=ACTOR
            )
        else:
            _hold(ctx, tx, job, refusal if job.state == "running" else UNBOOKED, plan)
        return False
    tx.add_plan(plan, acted_on=[job.id])
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
        also=_also(ctx, tx, job, placement),
    )
    tx.set_job_state(job.id, "starting" if current is None else "migrating")
    if tx.job_facts(job.id).baseline_offer_id is None and placement.baseline is not None:
        tx.set_job_facts(job.id, baseline_offer_id=placement.baseline.offer_id)
    ctx.event(
        tx,
        "plan.decided",
        f"{ACTION_WORDS_ON[placement.action]} {placement.offer_id}: {placement.reason}",
        job,
        migration=migration,
        plan_id=plan.id,
        reason=reason,
        cost_nano_usd=placement.cost_nano_usd,
        saving_nano_usd=placement.saving_nano_usd,
        by=actor,
    )
    return True


def _also(ctx: Context, tx: Tx, job: Job, placement: Placement) -> tuple[str, ...]:
    """The further offers that the launch may use, as far as one call can, within all limits."""
    offer_id, nodes = placement.offer_id or "", job.spec.resources.nodes
    provider = ctx.installation.providers.get(provider_of(offer_id))
    able = within_limits(ctx, tx, job, together(provider, offer_id, placement.also, nodes))
    return tuple(each for each in able if spending_limits.refuses(ctx, job, each) is None)


def _reason(placement: Placement, source: Run | None) -> Reason:
    probing = placement.probe is not None and placement.probe.offer_id == placement.offer_id
    if probing and (source is None or source.end is None):
        return "probe"
    if source is None:
        return "first placement"
    if source.end is None:
        if placement.action == "place":
            return "notice"  # it still trains, but its machine is being taken away
        return "cheaper offer" if placement.saving_nano_usd > 0 else "objective"
    if source.end == "failed":
        return "retry"
    if source.end == "paused":
        return "resume"
    return "lost"


def _wait(ctx: Context, tx: Tx, job: Job, placement: Placement, plan: Plan) -> None:
    """Report once per reason why a job has no machine; pause a queued job that cannot start without a larger budget.

    That pause waits until all machines of the job are booked, so that the budget it names includes them. A running job
    continues: an estimate never stops a job. engine.jobs.stopping pauses it before it exceeds a limit.
    """
    reason = with_group_order(tx, job, placement.reason)
    short = job.state == "queued" and placement.lacks_money
    if job.state == "running":
        current = snapshot.current_run(tx.runs(job_id=job.id))
        if current is not None and not lateness.is_stuck(tx, job, current.id):
            tx.add_plan(plan)
            ctx.event(tx, lateness.AT_RISK, reason, job, run=current, plan_id=plan.id)
    elif short and tx.runs(job_id=job.id, unsettled=True):
        _hold(ctx, tx, job, UNBOOKED, plan)
    elif short:
        began = tx.total_nano_usd(job_id=job.id) > 0 or steps_done(tx.runs(job_id=job.id)) > 0  # as Demand.started
        order = "" if began else spending_limits.larger_budget_now(ctx, tx, job)[1]
        order = spending_limits.with_project_order(ctx, tx, job, order and f"; to set it: {order}")
        tx.add_plan(plan)
        again = f"then tradewind resume {tx.typed_name(job.id, job.name)}"
        pause(ctx, tx, job, None, f"{reason}{order}, {again}", actor=ACTOR)
    elif job.state == "queued":
        _report_waiting(ctx, tx, job, why_later(ctx, job) or reason, plan, placement.again_at_ms)


def _hold(ctx: Context, tx: Tx, job: Job, reason: str, plan: Plan | None = None) -> None:
    """Report once why a job waits for something other than an offer. Meanwhile it has no forecast."""
    if job.state == "queued":
        tx.put_forecasts({job.id: START_UNKNOWN}, ctx.now_ms)
    _report_waiting(ctx, tx, job, reason, plan)


def _report_waiting(
    ctx: Context, tx: Tx, job: Job, reason: str, plan: Plan | None = None, again_at_ms: int | None = None
) -> None:
    """Record why a job waits, unless that is already its newest event. The part after the semicolon (the offer that
    comes closest) changes by the minute and is not compared. A queued job is considered again after WAIT_EVERY_WALL_S,
    or at `again_at_ms` (market time) if that is sooner."""
    if job.state == "queued":
        next_ms = ctx.now_ms + int(WAIT_EVERY_WALL_S * ctx.installation.clock.factor * 1000)
        tx.set_job_facts(job.id, next_decision_ms=next_ms if again_at_ms is None else min(next_ms, again_at_ms))
    last = tx.events(job_id=job.id, limit=1, newest_first=True)
    if not last or last[0].kind != "job.waits" or last[0].message.partition(";")[0] != reason.partition(";")[0]:
        if plan is not None:
            tx.add_plan(plan)
        ctx.event(tx, "job.waits", reason, job, plan_id=plan.id if plan is not None else None)
