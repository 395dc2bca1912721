"""Compartments: each step that a tick takes for one job, run, migration, command or provider is shut off from the rest.

An exception that nobody expected ends that step alone. It puts the job that the step was for into quarantine (what that
means is in engine.jobs.quarantine); a step that was for no job leaves an `engine.fault` event. Everyone else goes on in
the same tick. What a StoreError or a SiteError says is true for everybody, so these pass through; but for a RowError,
which is about one row.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import partial
from typing import TypeVar

from orchestrator.engine.context import ACTOR, STRUCK, TOLD_AGAIN_S, Context
from orchestrator.errors import RowError, SiteError, StoreError, TradewindError, UnreadableRowError
from orchestrator.model import Event, JobState
from orchestrator.store import Quarantined, Tx

T = TypeVar("T")
Item = TypeVar("Item")

LONGEST_WHY = 1_000
LONGEST_TRACEBACK = 20_000


class Compartment(StrEnum):
    """Every kind of step that is shut off from the others, by the name under which its faults are told."""

    CLAIM = "claim"  # the word beside a provider's machines
    COLLECT = "collect"  # a provider's offers and prices
    LOOK = "look"  # what the store holds of a job
    COMMAND = "command"
    ANSWER = "answer"  # to a command that broke
    DESCRIBE = "describe"  # a region's machines
    RENEW = "renew"  # the time to live of a region's machines
    JUDGE = "judge"  # whether what a run says of itself can be
    RECORD = "record"  # a run's progress
    OBSERVE = "observe"  # a run's end, or its machine's
    STOPPING = "stopping"  # a job's pausing, cancelling, ceilings
    PROMOTE_STANDBY = "take a standby"
    ENSURE_STANDBY = "keep a standby"
    DECIDE = "decide"  # what the policy is told of a job
    PLACE = "place"  # a job's placement
    ADVANCE = "advance"  # a migration's next step
    MEND = "mend"  # rows of a quarantined job that cannot be read
    CONFINE = "confine"  # a quarantined job's way to rest
    VOID = "void"  # a handover that a quarantined job leaves half done
    END_RUNS = "end runs"  # of a quarantined job that did not come to rest
    ACCRUE = "accrue"  # what a run has cost
    KILL = "kill"  # the trainer of a run that has ended
    TERMINATE = "terminate"  # a machine
    SETTLE = "settle"  # the books of a run
    COMPARE = "compare"  # what a job cost with what it would have cost
    SWEEP = "sweep"  # a provider's machines that no run accounts for


_OF_A_JOB = ("job", "run", "migration", "command", "event", "ledger_entry")
"""Tables whose rows belong to one job; offers and prices are everybody's."""

STAY_OPEN = frozenset(
    {
        Compartment.COMMAND,
        Compartment.ANSWER,
        Compartment.MEND,
        Compartment.CONFINE,
        Compartment.VOID,
        Compartment.END_RUNS,
        Compartment.ACCRUE,
        Compartment.KILL,
        Compartment.TERMINATE,
        Compartment.SETTLE,
    }
)
"""What is done for a job in quarantine, too: users' orders, its way to rest, its money."""


def contained(
    ctx: Context, where: Compartment, step: Callable[[], T], otherwise: T, *, job_id: str | None = None, about: str = ""
) -> T:
    """The result of `step`, taken for the job `job_id` (None: for nobody's, for what `about` names); `otherwise` if it
    broke, or if the job is in quarantine. Never inside a write transaction.

    Raises StoreError, SiteError.
    """
    if job_id in ctx.work.quarantined and where not in STAY_OPEN:
        return otherwise
    try:
        ctx.crossing(where.value, job_id or about)
        result = step()
        ctx.crossed(where.value, job_id or about)
        return result
    except Exception as error:
        if not_its_own(error):
            raise
        strike(ctx, where, error, job_id, about)
        return otherwise


def contained_writes(
    ctx: Context,
    where: Compartment,
    items: Sequence[Item],
    job_of: Callable[[Item], str],
    write: Callable[[Tx, Item], T],
) -> list[T]:
    """`write` for each item, all in one transaction; if one of them breaks, each in a transaction of its own.

    `write` may change `ctx.pacing` and nothing else outside the transaction. Raises StoreError, SiteError.
    """
    items = [item for item in items if job_of(item) not in ctx.work.quarantined or where in STAY_OPEN]
    if not items:
        return []
    pacing = dict(ctx.pacing)
    try:
        with ctx.write() as tx:
            return [_write_one(ctx, tx, where, item, job_of, write) for item in items]
    except Exception as error:
        if not_its_own(error):
            raise
        ctx.pacing = pacing
    done: list[T] = []
    for item in items:
        alone = partial(_write_alone, ctx, item, write, done)
        contained(ctx, where, alone, None, job_id=job_of(item))
    return done


def _write_alone(ctx: Context, item: Item, write: Callable[[Tx, Item], T], done: list[T]) -> None:
    with ctx.write() as tx:
        result = write(tx, item)
    done.append(result)


def _write_one(
    ctx: Context, tx: Tx, where: Compartment, item: Item, job_of: Callable[[Item], str], write: Callable[[Tx, Item], T]
) -> T:
    ctx.crossing(where.value, job_of(item))
    result = write(tx, item)
    ctx.crossed(where.value, job_of(item))
    return result


def strike(ctx: Context, where: str, error: Exception, job_id: str | None, about: str = "") -> None:
    """Persist that a step broke: the job's quarantine, or a fault that is nobody's. `where` names the compartment, or
    a part of the tick that broke as a whole. Raises StoreError."""
    known = job_id in ctx.work.quarantined
    news = ctx.due(f"{STRUCK}{where}:{type(error).__name__}:{about if job_id is None else job_id}", TOLD_AGAIN_S)
    if not news and (job_id is None or known):
        return
    why = ctx.secrets.mask(f"{where}{f' of {about}' if about else ''}: {said(error)}")[:LONGEST_WHY]  # masked, then cut
    reported = ctx.secrets.mask("".join(traceback.format_exception(error)))[-LONGEST_TRACEBACK:]
    if job_id is None:
        data = {"compartment": str(where), "about": about, "traceback": reported}
        with ctx.write() as tx:
            tx.add_event(Event(ctx.new_id("ev"), ctx.now_ms, "engine.fault", why, ACTOR, data=data))
        return
    with ctx.write() as tx:
        job = tx.outline(job_id)
        state = _at_rest(job.state)
        if not known:
            tx.set_job_facts(job_id, quarantine=why, quarantined_at_ms=ctx.now_ms)
        if state != job.state:
            tx.set_job_state(job_id, state)
        ctx.event(tx, "job.quarantined", f"quarantined: {why}", job, compartment=str(where), traceback=reported)
    if not known:
        found = Quarantined(job_id, job.name, state, why, ctx.now_ms)
        ctx.work = replace(ctx.work, quarantined={**ctx.work.quarantined, job_id: found})


def said(error: Exception) -> str:
    """An exception in one line with its remedy, also one whose text cannot be made."""
    if isinstance(error, TradewindError):
        return f"{error} ({error.hint})" if error.hint else str(error)
    lines = traceback.format_exception_only(error)[-1].strip().splitlines()
    return lines[0] if lines else type(error).__name__


def not_its_own(error: Exception) -> bool:
    """Whether what broke a step says nothing of the job that it was for: it would break the same step for all."""
    return everybodys(error) or (isinstance(error, UnreadableRowError) and error.table not in _OF_A_JOB)


def everybodys(error: Exception) -> bool:
    """Whether an error says something of the store or the site, and so of every job."""
    return isinstance(error, StoreError | SiteError) and not isinstance(error, RowError)


def _at_rest(state: JobState) -> JobState:
    """The state in which engine.jobs.quarantine brings a job to rest; one that waits may have a standby."""
    return "pausing" if state in ("queued", "starting", "running", "migrating") else state
