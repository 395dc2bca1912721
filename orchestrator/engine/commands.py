"""Commands: carries out users' requests to the control plane, which arrive through the store, each once.

The outcome is stored with the command, where the caller can read it; a refusal is also an event.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import takewhile

from orchestrator.engine.billing import spending_limits
from orchestrator.engine.billing.group_budget import changed_parts, over_group_budget
from orchestrator.engine.billing.larger_budget import how_to_continue
from orchestrator.engine.compartment import Compartment, contained
from orchestrator.engine.context import Context
from orchestrator.engine.inputs import snapshot
from orchestrator.engine.jobs.pausing import halted, pause
from orchestrator.engine.jobs.quarantine import lift
from orchestrator.engine.migration import manual, wasted
from orchestrator.engine.migration.intent import open_migration
from orchestrator.engine.migration.limits import check_limits
from orchestrator.engine.migration.place import apply
from orchestrator.errors import InfeasibleError, LimitError, NotFoundError, TradewindError, UsageError
from orchestrator.model import TERMINAL, Event, Job
from orchestrator.store import Command, Tx
from providers.money import NANO_USD, about_usd, at_least_usd, whole_usd

_REFUSALS: dict[str, type[TradewindError]] = {
    "refused": UsageError,
    "not found": NotFoundError,
    "infeasible": InfeasibleError,
    "over limit": LimitError,
}
"""The first words of a refused command's result, and the error that the caller gets."""
_BROKE = "failed"
MOST_NANO_USD = 10**9 * NANO_USD


def refusal(result: str, *, hint: str) -> TradewindError | None:
    """The error to raise for a command's stored result; None if the command was carried out."""
    word, colon, why = result.partition(": ")
    kind = TradewindError if word == _BROKE else _REFUSALS.get(word)
    return kind(why, hint=hint) if kind is not None and colon else None


def commands(ctx: Context) -> bool:
    """Carry out every open command that can be carried out now. Returns whether there was one."""
    return any([_carry_out(ctx, command) for command in ctx.work.commands])


def _carry_out(ctx: Context, command: Command) -> bool:
    """Carry out a command once: if it fails now, it would fail in every tick."""
    job_id = command.job_id
    answered = contained(
        ctx, Compartment.COMMAND, partial(_answer, ctx, command), None, job_id=job_id, about=command.kind
    )
    if answered is None:
        refuse = partial(_answer_broken, ctx, command)
        return contained(ctx, Compartment.ANSWER, refuse, False, job_id=job_id, about=command.kind)
    return answered


def _answer_broken(ctx: Context, command: Command) -> bool:
    found = ctx.work.quarantined.get(command.job_id or "")
    why = found.why if found is not None else "an internal error occurred; see tradewind events"
    with ctx.write() as tx:
        tx.close_command(command.id, f"{_BROKE}: {why}")
        if command.kind == "cancel" and found is not None and found.state not in TERMINAL:
            tx.set_job_state(found.job_id, "cancelling")  # its quarantine carries it out
    return True


def _answer(ctx: Context, command: Command) -> bool:
    with ctx.write() as tx:
        job = _job(ctx, tx, command)
        try:
            result = _result(ctx, tx, command, job)
        except tuple(_REFUSALS.values()) as error:  # raised before anything was written
            word = next(word for word, kind in _REFUSALS.items() if isinstance(error, kind))
            result = f"{word}: {error}"
            _report(ctx, tx, command, job, f"{command.kind} refused: {error}")
        if result is None:
            return False
        tx.close_command(command.id, result)
    return True


def _result(ctx: Context, tx: Tx, command: Command, job: Job | None) -> str | None:
    """The command's outcome; None if it has to wait. Raises one of _REFUSALS."""
    if command.damage:
        raise UsageError(f"the command cannot be read: {command.damage}")
    if command.kind == "apply":
        apply(ctx, tx, tx.plan(str(command.args.get("plan_id"))), actor=command.actor)
        return "applied"
    if command.kind == "group-budget":
        return _group_budget(ctx, tx, command)
    if job is None:
        raise UsageError(f"{command.kind} needs a job")
    if command.kind == "resume" and job.state in TERMINAL and (why := lift(tx, job.id)) is not None:
        ctx.event(tx, "job.released", f"released from quarantine ({why})", job, actor=command.actor)
        return job.state
    if job.state in TERMINAL or (job.state == "cancelling" and command.kind != "cancel"):
        raise UsageError(f"{job.name} is {job.state}")
    if command.kind == "pause":
        return _pause(ctx, tx, job, command)
    if command.kind == "resume":
        return _resume(ctx, tx, job, command.actor)
    if command.kind == "cancel":
        return _cancel(ctx, tx, job, command.actor)
    if command.kind == "budget":
        return _budget(ctx, tx, job, command)
    if command.kind == "migrate":
        return _migrate(ctx, tx, job, command)
    raise UsageError(f"unknown command {command.kind}")


def _pause(ctx: Context, tx: Tx, job: Job, command: Command) -> str:
    before = takewhile(lambda each: each.id != command.id, tx.open_commands())
    earlier = [each for each in before if each.kind == "resume" and each.job_id == job.id]
    stopped = halted(tx, job)
    if stopped and not earlier:
        raise UsageError(f"{job.name} is already {job.state}")
    for each in earlier:
        tx.close_command(each.id, f"refused: a later command paused {job.name} again")
    if not stopped:
        current = snapshot.current_run(tx.runs(job_id=job.id))
        pause(ctx, tx, job, current, f"requested by {command.actor}", actor=command.actor)
    return "pausing"


def _resume(ctx: Context, tx: Tx, job: Job, actor: str) -> str | None:
    """Queue a paused job. While the job is still pausing, the command waits."""
    if job.state == "pausing":
        return None
    if job.state != "paused":
        raise UsageError(f"{job.name} is {job.state}, not paused")
    tx.set_job_state(job.id, "queued")
    tx.set_job_facts(job.id, next_decision_ms=None)
    broke = lift(tx, job.id)
    ctx.event(tx, "job.resumed", f"resumed after quarantine: {broke}" if broke else "resumed", job, actor=actor)
    return "queued"


def _cancel(ctx: Context, tx: Tx, job: Job, actor: str) -> str:
    if job.state != "cancelling":  # otherwise it was requested before
        tx.set_job_state(job.id, "cancelling")
        ctx.event(tx, "job.cancelling", "cancelling", job, actor=actor)
    return "cancelling"


def _budget(ctx: Context, tx: Tx, job: Job, command: Command) -> str:
    """Set the budget. A job that was paused for its budget continues when it is resumed."""
    wanted = _amount(command)
    if (why := over_group_budget(tx, job, wanted)) is not None:
        raise UsageError(why)
    before = job.spec.budget_nano_usd
    if before is None or wanted < before:
        _require_enough_to_end(ctx, tx, job, wanted)
    return _set_budget(ctx, tx, job, wanted, command.actor)


def _group_budget(ctx: Context, tx: Tx, command: Command) -> str:
    """Set the budget of a group, and the budgets of those of its jobs that change with it."""
    group, wanted = tx.group(str(command.args.get("group_id"))), _amount(command)
    was = "none before" if group.budget_nano_usd is None else f"before: {whole_usd(group.budget_nano_usd)}"
    message = f"the budget of group {group.name} is now {whole_usd(wanted)} ({was})"
    changed = changed_parts(tx, group, wanted, partial(spending_limits.to_end_nano_usd, ctx.installation))
    for job, part in changed:
        _require_enough_to_end(ctx, tx, job, part)
    tx.set_group_budget(group.id, wanted)
    for job, part in changed:
        _set_budget(ctx, tx, job, part, command.actor)
    data = {"group_id": group.id, "before_nano_usd": group.budget_nano_usd, "nano_usd": wanted}
    tx.add_event(
        Event(
            ctx.new_id("ev"),
            ctx.now_ms,
            "group.budget",
            message,
            command.actor,
            data=data,
            project=group.project,
            owner=group.owner,
        )
    )
    return message


def _amount(command: Command) -> int:
    wanted = command.args.get("nano_usd")
    if type(wanted) is not int or not 0 < wanted <= MOST_NANO_USD:
        raise UsageError("a budget must be more than 0 and at most 1,000,000,000 USD")
    return wanted


def _set_budget(ctx: Context, tx: Tx, job: Job, wanted: int, actor: str) -> str:
    spent = _require_more_than_spent(ctx, tx, job, wanted)
    before = tx.job(job.id).spec.budget_nano_usd
    tx.set_budget(job.id, wanted)
    tx.set_job_facts(job.id, next_decision_ms=None)
    was = "none before" if before is None else f"before: {whole_usd(before)}"
    message = f"the budget is now {whole_usd(wanted)} ({was}; {about_usd(spent)} spent so far)"
    message += how_to_continue(ctx.installation, tx, job, wanted)
    ctx.event(tx, "job.budget", message, job, actor=actor, before_nano_usd=before, nano_usd=wanted)
    return message


def _require_enough_to_end(ctx: Context, tx: Tx, job: Job, wanted: int) -> None:
    """Raises UsageError unless the budget `wanted` covers the amount that a job has spent and the end of its
    machines."""
    _require_more_than_spent(ctx, tx, job, wanted)
    now = spending_limits.spending(ctx, replace(job, spec=replace(job.spec, budget_nano_usd=wanted)), None)
    if now.used_up(wanted):
        least = at_least_usd(now.spent + now.to_end)
        raise UsageError(f"{job.name} needs more than {least} to cover its spending and to end its machines")


def _require_more_than_spent(ctx: Context, tx: Tx, job: Job, wanted: int) -> int:
    """The amount that a job has spent, in nano-USD. Raises UsageError unless the budget `wanted` exceeds it."""
    spent = wasted.spent_nano_usd(tx, [run.id for run in tx.runs(job_id=job.id)], ctx.now_ms)
    if wanted <= spent:
        raise UsageError(f"{job.name} has already spent {about_usd(spent)}; its budget must be more than that")
    return spent


def _migrate(ctx: Context, tx: Tx, job: Job, command: Command) -> str:
    """Move a running job to the named offer, or to the policy's best other offer."""
    now, config = ctx.now_ms, ctx.installation.config
    current = manual.movable(tx, job)
    if (missing := ctx.secrets.missing(job, ctx.typed_name)) is not None:
        raise UsageError(f"{job.name} {missing}")
    named = command.args.get("offer_id")
    if named is None:
        wanted = manual.best_other(tx, now, config, job, current)
    else:
        wanted = str(named)
        manual.check_target(tx, now, config, job, current, wanted)
    check_limits(ctx, tx, job, wanted)
    if (why := spending_limits.refuses(ctx, job, wanted, current)) is not None:
        raise LimitError(why)
    migration = open_migration(ctx, tx, job, wanted, "manual", source=current)
    tx.set_job_state(job.id, "migrating")
    ctx.event(tx, "migration.asked", f"move to {wanted} requested", job, migration=migration, actor=command.actor)
    return f"moving to {wanted}"


def _job(ctx: Context, tx: Tx, command: Command) -> Job | None:
    if command.job_id is None:
        return None
    return tx.outline(command.job_id) if command.job_id in ctx.work.quarantined else tx.job(command.job_id)


def _report(ctx: Context, tx: Tx, command: Command, job: Job | None, message: str) -> None:
    if job is not None:
        ctx.event(tx, "command.refused", message, job, actor=command.actor)
    else:
        tx.add_event(Event(ctx.new_id("ev"), ctx.now_ms, "command.refused", message, command.actor))
