"""A user's commands to the control plane: they are written to the store, and the leading control plane executes them.

Commands that make no sense are rejected at once. If a control plane runs, the caller waits a moment for its answer,
because the job may have changed in the meantime; a rejection is raised as the matching error.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from orchestrator.engine.billing.group_budget import group_remedy, over_group_budget
from orchestrator.engine.billing.larger_budget import (
    ALONE,
    Shortage,
    Together,
    how_to_continue,
    larger_budget,
    needed_to_continue,
    shortages,
)
from orchestrator.engine.billing.spending_limits import least_budget_nano_usd
from orchestrator.engine.commands import refusal
from orchestrator.engine.inputs.market_reader import MarketReader
from orchestrator.engine.inputs.snapshot import left_out
from orchestrator.engine.inputs.speeds import SpeedReader
from orchestrator.engine.jobs.pausing import halted
from orchestrator.engine.jobs.predecessors import waits_for
from orchestrator.engine.jobs.stopped_at import has_stepped
from orchestrator.engine.migration import manual
from orchestrator.errors import RowError, UsageError
from orchestrator.installation import Installation
from orchestrator.jobfile.units import BadValueError, parse_money
from orchestrator.model import TERMINAL, Job, latest_trained
from orchestrator.services.caller import Caller
from orchestrator.services.control_plane.presence import control_plane
from orchestrator.services.control_plane.project_limits import present
from orchestrator.services.offers.ids import checked_offer_id
from orchestrator.services.views import Accepted
from orchestrator.store import Command, Tx
from providers.money import NANO_USD, about_usd, whole_usd

ANSWER_WALL_S = 2.0
POLL_WALL_S = 0.05
OWN_STATE = "only data that its program saved in $TRADEWIND_CHECKPOINT_DIR is kept"


def pause(installation: Installation, ref: str, *, caller: Caller) -> Accepted:
    """Pauses a job: it saves a checkpoint and its machine is ended. Raises NotFoundError, UsageError."""
    with installation.store.write() as tx:
        job = _living(tx, ref)
        order = tx.add_command("pause", job.id, {}, caller.actor) if may_pause(tx, job, tx.open_commands()) else None
        stepped = has_stepped(tx.runs(job_id=job.id, unreadable=left_out))
        is_halted = halted(tx, job)
    if order is None:
        with installation.store.read() as tx:  # reading the market takes too long to block other writers
            first = [each.order for each in short_of_money(installation, tx, job) if each.at_once]
            hint = ", then ".join([*first, f"tradewind resume {tx.typed_name(job.id, job.name)}"])
        state = job.state if is_halted else "about to pause"
        raise UsageError(f"{job.name} is already {state}", hint=hint)
    if is_halted:  # a pending command would have resumed it
        message = f"{job.name} stays paused"
    elif job.state == "queued":
        message = f"{job.name} will pause {'at its last checkpoint' if stepped else 'before it starts'}"
    elif stepped:
        message = f"{job.name} will pause at its next step, with a checkpoint"
    else:
        message = f"{job.name} will pause; it has reported no step yet, so {OWN_STATE}"
    return _accepted(installation, order, "pause", job, message)


def resume(installation: Installation, ref: str, *, caller: Caller) -> Accepted:
    """Resume a paused job, or one that is pausing or about to pause as soon as it is paused; lifts a quarantine.

    Raises NotFoundError, UsageError; also if its budget would pause it again at once.
    """
    with installation.store.read() as tx:  # reading the market takes too long to block other writers
        short = short_of_money(installation, tx, tx.find_job(ref))
    with installation.store.write() as tx:
        job = tx.find_job(ref)
        broke = tx.job_facts(job.id).quarantine
        if broke is None:
            job = _living(tx, ref)
        is_halted, ended = halted(tx, job), job.state in TERMINAL
        if not may_resume(tx, job, tx.open_commands()) and not (broke is not None and ended):
            state = "about to resume" if is_halted else f"{job.state}, not paused"
            raise UsageError(f"{job.name} is {state}", hint="only a paused job can be resumed")
        if any(each.at_once for each in short):
            again = f"tradewind resume {tx.typed_name(job.id, job.name)}"
            raise UsageError(too_poor(job, short), hint=f"{remedies(short)}, then {again}")
        poor = "".join(
            f"; {each.budget} may pause it again{each.late}; to let it finish: {each.order}" for each in short
        )
        order = tx.add_command("resume", job.id, {}, caller.actor)
        runs = tx.runs(job_id=job.id, unreadable=left_out)
        began, stepped = any(run.training_from_ms is not None for run in runs), has_stepped(runs)
        latest = latest_trained(runs)
        without = stepped and latest is not None and latest.saved_step == 0
        others = waits_for(tx, job)
    if job.state == "pausing" or not (is_halted or ended):  # a pending command will pause it
        message = f"{job.name} resumes as soon as it is paused, on the offer that is best then{poor}"
        return Accepted("resume", (job.id,), message, control_plane(installation).running)
    how = "resumes from its checkpoint" if stepped else "starts"
    if without:  # the checkpoint may have been restored
        how = "paused without a checkpoint; it resumes from one if there is one now, else from step 0,"
    message = f"{job.name} {how} on the offer that is best now"
    if others is not None:
        message = f"{job.name} {others}; then it starts on the best offer"
    if began and not stepped:
        message += f"; it has reported no step, so {OWN_STATE}"
    message += poor
    if job.state in TERMINAL:
        message = f"{job.name} is {job.state}, and no longer in quarantine"
    if broke is not None:
        message += f"; it was in quarantine, and will be again if this error is not fixed: {broke}"
    return _accepted(installation, order, "resume", job, message)


def short_of_money(
    installation: Installation,
    tx: Tx,
    job: Job,
    markets: MarketReader | None = None,
    speeds: SpeedReader | None = None,
    others: Together = ALONE,
) -> tuple[Shortage, ...]:
    """The budgets that would pause a paused job again, if `others` are resumed with it; none if this is unlikely or
    unknown."""
    if not halted(tx, job) or tx.job_facts(job.id).quarantine is not None:
        return ()
    with suppress(RowError):
        return shortages(installation, tx, job, markets, speeds, present=present(installation, tx), others=others)
    return ()


def too_poor(job: Job, short: Sequence[Shortage]) -> str:
    """Why resuming a job makes no sense."""
    why = [f"{each.effect}: {each.budget} is too small{each.late}" for each in short if each.at_once]
    return f"{job.name} {'; and it '.join(why)}"


def remedies(short: Sequence[Shortage]) -> str:
    """The commands that make all these budgets large enough."""
    return ", then ".join(each.order for each in short)


def set_budget(installation: Installation, ref: str, amount: str | float, *, caller: Caller) -> Accepted:
    """Set or change a job's budget. `amount` as in the job file: "2.50", "2.50 USD". Raises NotFoundError, and
    UsageError for an invalid amount or an amount that is already spent."""
    nano_usd = amount_of(amount)
    with installation.store.write() as tx:
        job = _living(tx, ref)
        spent = tx.total_nano_usd(job_id=job.id)
        if nano_usd <= spent:
            reported = f"{job.name} has already spent {about_usd(spent)}"
            raise UsageError(reported, hint=_budgets_to_set(installation, tx, job))
        asked = any(each.args.get("group_id") == job.group_id for each in tx.open_commands() if each.job_id is None)
        # If a change of the group's budget is pending, the control plane checks this budget after it.
        if not asked and (why := over_group_budget(tx, job, nano_usd)) is not None:
            raise UsageError(why, hint=group_remedy(tx, job, nano_usd))
        order = tx.add_command("budget", job.id, {"nano_usd": nano_usd}, caller.actor)
    with installation.store.read() as tx:  # reading the market takes too long to block other writers
        after = how_to_continue(installation, tx, job, nano_usd, present=present(installation, tx))
        hint = _budgets_to_set(installation, tx, job)
    message = f"the budget of {job.name} becomes {whole_usd(nano_usd)}{after}"
    return Accepted("budget", (job.id,), message, answered(installation, order, hint))


def _budgets_to_set(installation: Installation, tx: Tx, job: Job) -> str:
    """The commands that set a sufficient budget for a job, and the smallest budget that is allowed now. Raises
    RowError."""
    name, found = tx.typed_name(job.id, job.name), needed_to_continue(installation, tx, job)
    least = least_budget_nano_usd(installation, tx, job)
    smallest = f"the smallest allowed budget: tradewind budget set {name} {least / NANO_USD:.2f}"
    if job.state not in ("paused", "pausing"):
        smallest += f"; or stop spending: tradewind pause {name}"
    return f"to finish it: {larger_budget(tx, job, found)}; {smallest}" if found.enough else smallest


def amount_of(amount: str | float) -> int:
    """A budget in nano-USD, given as in the job file. Raises UsageError."""
    try:
        return parse_money(amount)
    except BadValueError as error:
        raise UsageError(f"budget: {error}", hint=error.hint or 'write it in US dollars, such as "2.50"') from error


def cancel(installation: Installation, ref: str, *, caller: Caller) -> Accepted:
    """Cancels a job permanently. Raises NotFoundError, UsageError."""
    with installation.store.write() as tx:
        job = _living(tx, ref, cancelled=True)
        order = tx.add_command("cancel", job.id, {}, caller.actor)
    return _accepted(
        installation, order, "cancel", job, f"{job.name} will end; its checkpoints, outputs and costs are kept"
    )


def migrate(installation: Installation, ref: str, offer_id: str | None, *, caller: Caller) -> Accepted:
    """Moves a running job to `offer_id` or to the best other offer.

    Raises NotFoundError, UsageError, InfeasibleError for an offer that the job file rules out, and LimitError.
    """
    offer_id = None if offer_id is None else checked_offer_id(offer_id)
    with installation.store.write() as tx:
        job = _living(tx, ref)
        current = manual.movable(tx, job)
        if offer_id is not None:
            manual.check_target(tx, installation.clock.now_ms(), installation.config, job, current, offer_id)
        order = tx.add_command("migrate", job.id, {"offer_id": offer_id}, caller.actor)
    target = offer_id or "the best other offer"
    return _accepted(installation, order, "migrate", job, f"{job.name} will move from {current.offer_id} to {target}")


def may_pause(tx: Tx, job: Job, waiting: Sequence[Command]) -> bool:
    """Whether a job that has not ended is neither paused nor pausing once the `waiting` commands, which no control
    plane has carried out yet, are carried out."""
    last = _last(waiting, job)
    return last == "resume" if last is not None else not halted(tx, job)


def may_resume(tx: Tx, job: Job, waiting: Sequence[Command]) -> bool:
    """Whether a job is paused or pausing once the `waiting` commands are carried out."""
    last = _last(waiting, job)
    return last == "pause" if last is not None else halted(tx, job)


def being_cancelled(job: Job, waiting: Sequence[Command]) -> bool:
    """Whether one of the `waiting` commands cancels the job."""
    return any(each.kind == "cancel" and each.job_id == job.id for each in waiting)


def _last(waiting: Sequence[Command], job: Job) -> str | None:
    """The kind of the last of the `waiting` commands that pauses or resumes the job; None if there is none."""
    kinds = [each.kind for each in waiting if each.job_id == job.id and each.kind in ("pause", "resume")]
    return kinds[-1] if kinds else None


def _living(tx: Tx, ref: str, *, cancelled: bool = False) -> Job:
    """A job that has not ended and, unless `cancelled`, has no pending cancel command."""
    job = tx.find_job(ref)
    if job.state in TERMINAL:
        raise UsageError(
            f"{job.name} is {job.state}", hint=f"see its result: tradewind report {tx.typed_name(job.id, job.name)}"
        )
    if not cancelled and being_cancelled(job, tx.open_commands()):
        raise UsageError(
            f"{job.name} is being cancelled", hint=f"see its state: tradewind status {tx.typed_name(job.id, job.name)}"
        )
    return job


def _accepted(installation: Installation, order: str, command: str, job: Job, message: str) -> Accepted:
    with installation.store.read() as tx:
        name = tx.typed_name(job.id, job.name)
    led = answered(installation, order, f"see its state: tradewind status {name}")
    return Accepted(command, (job.id,), message, led)


def answered(installation: Installation, order: str, hint: str) -> bool:
    """Wait a moment for the answer to a command. Returns whether a control plane runs; raises the error with which it
    rejects the command."""
    led = control_plane(installation).running
    give_up = installation.clock.monotonic_s() + ANSWER_WALL_S
    while led:
        with installation.store.read() as tx:
            result = tx.command_result(order)
        if result is not None:
            if (error := refusal(result, hint=hint)) is not None:
                raise error
            break
        if installation.clock.monotonic_s() >= give_up:
            break
        installation.clock.sleep(POLL_WALL_S)
    return led
