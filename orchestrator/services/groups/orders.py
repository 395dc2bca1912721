"""Commands for groups: pause, resume or cancel all its jobs in one transaction; set its budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from orchestrator.engine.billing.group_budget import changed_parts
from orchestrator.engine.billing.larger_budget import ALONE, Together, how_to_continue, together
from orchestrator.engine.billing.spending_limits import to_end_nano_usd
from orchestrator.engine.inputs.market_reader import MarketReader
from orchestrator.engine.inputs.speeds import SpeedReader
from orchestrator.engine.jobs.pausing import halted
from orchestrator.errors import RowError, UsageError
from orchestrator.installation import Installation
from orchestrator.model import TERMINAL, Group, Job
from orchestrator.services.caller import Caller
from orchestrator.services.control_plane.presence import control_plane
from orchestrator.services.control_plane.project_limits import present
from orchestrator.services.jobs.commands import (
    amount_of,
    answered,
    being_cancelled,
    may_pause,
    may_resume,
    short_of_money,
    too_poor,
)
from orchestrator.services.views import Accepted
from orchestrator.store import Command, Tx
from providers.money import at_most_usd, whole_usd

NAMED = 4
"""Messages name at most this many parts of a budget, or other groups, and count the others."""


def pause_group(installation: Installation, ref: str, project: str | None = None, *, caller: Caller) -> Accepted:
    """Pause the jobs of a group (of `project`, if given) that are neither paused nor ended. Running jobs save a
    checkpoint first. Raises NotFoundError, UsageError if no such job is left, or if several projects have groups with
    this name."""
    effect = "will pause; running jobs that have reported a step save a checkpoint first"

    def wanted(tx: Tx, job: Job, waiting: Sequence[Command]) -> bool:
        return may_pause(tx, job, waiting) and not being_cancelled(job, waiting)

    return _order(installation, "pause", ref, project, wanted, effect, caller)


def resume_group(installation: Installation, ref: str, project: str | None = None, *, caller: Caller) -> Accepted:
    """Resume the paused jobs of a group. Raises the same errors as `pause_group`."""
    effect = "will resume on the offer that is best then, each from its checkpoint if it has one"
    with installation.store.read() as tx:
        jobs = tx.outlines_of(tx.job_ids_of_group(tx.only_group(ref, project).id))
        halts = [job for job in jobs if job.state not in TERMINAL and halted(tx, job)]
        markets, speeds = MarketReader(), SpeedReader()
        others = _together(installation, tx, halts, markets, speeds)
        found = [(job, short_of_money(installation, tx, job, markets, speeds, others)) for job in halts]
    of_project = [each for _, short in found for each in short if each.of_project is not None]
    largest = max(of_project, key=lambda each: each.of_project or 0, default=None)
    poor = {job.id: (job, short) for job, short in found if any(each.at_once for each in short)}

    def wanted(tx: Tx, job: Job, waiting: Sequence[Command]) -> bool:
        return may_resume(tx, job, waiting) and job.id not in poor and not being_cancelled(job, waiting)

    why = _listed_all([too_poor(job, short) for job, short in poor.values()])
    own = [each.order for _, short in poor.values() for each in short if each.of_project is None]
    orders = _listed_all([*own, *([] if largest is None else [largest.order])])
    if poor and len(poor) == len(halts):
        raise UsageError(why, hint=f"{orders}, then tradewind resume --group {ref}")
    if poor:
        effect += f"; {why}; to resume it, too: {orders}"
    elif largest is not None:
        effect += f"; {largest.budget} may pause them again{largest.late}; to let them finish: {largest.order}"
    return _order(installation, "resume", ref, project, wanted, effect, caller)


def _together(
    installation: Installation, tx: Tx, jobs: Sequence[Job], markets: MarketReader, speeds: SpeedReader
) -> Together:
    """What these jobs of a group need from the budget of their project, if it has one; nothing if unknown."""
    if not jobs or present(installation, tx).of(jobs[0].project).budget is None:
        return ALONE
    with suppress(RowError):
        return together(installation, tx, jobs, markets, speeds)
    return ALONE


def cancel_group(installation: Installation, ref: str, project: str | None = None, *, caller: Caller) -> Accepted:
    """Cancel the jobs of a group that have not ended. Raises the same errors as `pause_group`."""
    effect = "will end; checkpoints, outputs and costs are kept"
    return _order(installation, "cancel", ref, project, lambda *_: True, effect, caller)


def set_group_budget(
    installation: Installation, ref: str, amount: str | float, project: str | None = None, *, caller: Caller
) -> Accepted:
    """Change the budget of a group. `amount` as in the group file: "2.50", "2.50 USD". The parts of its jobs do not
    change, unless the whole remaining budget belongs to one job: then its part changes with the budget. If the group
    had no budget, its jobs without a budget get parts of this one.

    Raises NotFoundError; UsageError for an invalid amount, an amount below what the jobs have or have spent, a group
    whose jobs have ended, or if several projects have groups with this name.
    """
    nano_usd = amount_of(amount)
    with installation.store.write() as tx:
        group = tx.only_group(ref, project)
        first = _changes_before(tx, group)
        changed = [] if first else changed_parts(tx, group, nano_usd, partial(to_end_nano_usd, installation))
        living = [each for each in tx.outlines_of(tx.job_ids_of_group(group.id)) if each.state not in TERMINAL]
        order = tx.add_command("group-budget", None, {"group_id": group.id, "nano_usd": nano_usd}, caller.actor)
    message = f"the budget of group {group.name} becomes {whole_usd(nano_usd)}"
    if first:
        message += "; an earlier request takes effect first"
    elif group.budget_nano_usd is None and changed:
        message += f"; of this, {_listed([f'{job.name} gets {at_most_usd(part)}' for job, part in changed])}"
        message += "; to change a part: tradewind budget set JOB USD"
    elif not changed:
        message += "; its jobs keep their parts; to change one: tradewind budget set JOB USD"
    else:
        ((job, part),) = changed
        with installation.store.read() as tx:
            message += f", and that of {job.name} {whole_usd(part)}"
            message += how_to_continue(installation, tx, job, part, nano_usd, present=present(installation, tx))
    running = answered(installation, order, f"see its jobs: tradewind queue --group {group.id}")
    return Accepted("budget", tuple(job.id for job in living), message, running)


def _changes_before(tx: Tx, group: Group) -> bool:
    """Whether other budget changes of the group, or of its jobs, are pending: only the control plane knows the
    resulting parts, and whether they are enough."""
    jobs = set(tx.job_ids_of_group(group.id))
    return any(
        each.job_id in jobs if each.kind == "budget" else each.args.get("group_id") == group.id
        for each in tx.open_commands()
        if each.kind in ("budget", "group-budget")
    )


def _listed_all(texts: Sequence[str]) -> str:
    more = len(texts) - NAMED
    return "; ".join(texts[:NAMED]) + (f"; and {more} more" if more > 0 else "")


def _listed(texts: Sequence[str]) -> str:
    more = len(texts) - NAMED
    return ", ".join(texts) if more <= 1 else f"{', '.join(texts[:NAMED])} and {more} others theirs"


def _order(
    installation: Installation,
    kind: str,
    ref: str,
    project: str | None,
    wanted: Callable[[Tx, Job, Sequence[Command]], bool],
    effect: str,
    caller: Caller,
) -> Accepted:
    with installation.store.write() as tx:
        group = tx.only_group(ref, project)
        others = "" if ref == group.id else _namesakes(tx, group)
        living = [each for each in tx.outlines_of(tx.job_ids_of_group(group.id)) if each.state not in TERMINAL]
        if not living:
            hint = f"list them: tradewind queue --all --group {group.id}{others}"
            raise UsageError(f"all jobs of {group.name} have ended", hint=hint)
        waiting = tx.open_commands()
        jobs = [job for job in living if wanted(tx, job, waiting)]
        if not jobs:
            hint = f"list them: tradewind queue --group {group.id}{others}"
            raise UsageError(f"{group.name} has no jobs left to {kind}", hint=hint)
        for job in jobs:
            tx.add_command(kind, job.id, {}, caller.actor)
    count = "1 job" if len(jobs) == 1 else f"{len(jobs)} jobs"
    running = control_plane(installation).running
    return Accepted(kind, tuple(job.id for job in jobs), f"{count} of {group.name} {effect}{others}", running)


def _namesakes(tx: Tx, group: Group) -> str:
    """The other groups of this name with open jobs, which a command that names the group does not affect."""
    found = tx.open_namesakes(group)
    if not found:
        return ""
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    which = "older groups of this name have" if len(found) > 1 else "an older group of this name has"
    return f"; {which} open jobs, too: {', '.join(f'--group {each}' for each in found[:NAMED])}{more}"
