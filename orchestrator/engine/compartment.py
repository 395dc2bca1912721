"""Compartments: limit the effect of an error in one step of a tick to the job or provider of that step.

An unexpected exception ends only that step. It quarantines the step's job (engine.jobs.quarantine); a step without a
job leaves an `engine.fault` event. Everything else continues in the same tick. StoreError and SiteError concern all
jobs and pass through, except RowError, which is about one row.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import partial
from typing import TypeVar

from orchestrator.engine.context import ACTOR, FAULT_KEY, REPORTED_AGAIN_S, Context
from orchestrator.errors import RowError, SiteError, StoreError, TradewindError, UnreadableRowError
from orchestrator.model import Event, JobState
from orchestrator.store import Quarantined, Tx

T = TypeVar("T")
Item = TypeVar("Item")

LONGEST_WHY = 1_000
LONGEST_TRACEBACK = 20_000


class Compartment(StrEnum):
    """Every kind of isolated step, by the name under which its errors are reported."""

    CLAIM = "claim"  # the claim on a provider's machines
    COLLECT = "collect"  # a provider's offers and prices
    LOOK = "read"  # a job's rows in the store
    COMMAND = "command"
    ANSWER = "answer"  # to a command that raised an error
    DESCRIBE = "describe"  # a region's machines
    RENEW = "renew"  # the time to live of a region's machines
    JUDGE = "judge"  # whether a run's report is plausible
    RECORD = "record"  # a run's progress
    OBSERVE = "observe"  # a run's end, or its machine's
    TELL_RISK = "tell risk"  # tells a run how often its machines are expected to be lost
    STOPPING = "stopping"  # a job's pausing, cancelling, spending limits
    PROMOTE_STANDBY = "promote a standby"
    ENSURE_STANDBY = "ensure a standby"
    DECIDE = "decide"  # the policy's decision about a job
    PLACE = "place"  # a job's placement
    ADVANCE = "advance"  # a migration's next step
    MEND = "mend"  # rows of a quarantined job that cannot be read
    CONFINE = "confine"  # stopping a quarantined job
    VOID = "void"  # a quarantined job's unfinished handover
    END_RUNS = "end runs"  # the machines of a quarantined job that did not stop
    ACCRUE = "accrue"  # the cost of a run
    KILL = "kill"  # the trainer of a run that has ended
    TERMINATE = "terminate"  # a machine
    SETTLE = "settle"  # the books of a run
    COMPARE = "compare"  # a job's cost with its baselines
    SWEEP = "sweep"  # a provider's machines that no run accounts for


_OF_A_JOB = ("job", "run", "migration", "command", "event", "ledger_entry", "plan")
"""Tables whose rows belong to one job, or are read for one; offers and prices belong to no job."""

BATCH = 10
"""Jobs written in one transaction: fewer commits than with one job each, without long waits for other writers."""

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
"""Steps that also run for quarantined jobs: users' commands, stopping, billing."""


def contained(
    ctx: Context, where: Compartment, step: Callable[[], T], otherwise: T, *, job_id: str | None = None, about: str = ""
) -> T:
    """Run `step` for the job `job_id` (None: for the thing that `about` names). Returns its result, or `otherwise` if
    it raised an unexpected error or the job is in quarantine. Never call it inside a write transaction.

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
    """Run `write` for each item, BATCH items to a transaction; if one raises an error, each of that batch in a
    transaction of its own. Others can write between two batches.

    `write` may change `ctx.pacing` and nothing else outside the transaction; what it changed there is undone with the
    transaction. Raises StoreError, SiteError.
    """
    items = [item for item in items if job_of(item) not in ctx.work.quarantined or where in STAY_OPEN]
    done: list[T] = []
    for start in range(0, len(items), BATCH):
        done += _write_batch(ctx, where, items[start : start + BATCH], job_of, write)
    return done


def _write_batch(
    ctx: Context,
    where: Compartment,
    items: Sequence[Item],
    job_of: Callable[[Item], str],
    write: Callable[[Tx, Item], T],
) -> list[T]:
    pacing = dict(ctx.pacing)
    try:
        with ctx.write() as tx:
            return [_write_one(ctx, tx, where, item, job_of, write) for item in items]
    except Exception as error:
        ctx.pacing = pacing
        if not_its_own(error):
            raise
    done: list[T] = []
    for item in items:
        alone = partial(_write_alone, ctx, item, write, done)
        contained(ctx, where, alone, None, job_id=job_of(item))
    return done


def _write_alone(ctx: Context, item: Item, write: Callable[[Tx, Item], T], done: list[T]) -> None:
    pacing = dict(ctx.pacing)
    try:
        with ctx.write() as tx:
            result = write(tx, item)
    except Exception:
        ctx.pacing = pacing
        raise
    done.append(result)


def _write_one(
    ctx: Context, tx: Tx, where: Compartment, item: Item, job_of: Callable[[Item], str], write: Callable[[Tx, Item], T]
) -> T:
    ctx.crossing(where.value, job_of(item))
    result = write(tx, item)
    ctx.crossed(where.value, job_of(item))
    return result


def strike(ctx: Context, where: str, error: Exception, job_id: str | None, about: str = "") -> None:
    """Record that a step raised an error: quarantine its job, or add an `engine.fault` event if it has none. `where`
    names the compartment, or a whole part of the tick. Raises StoreError."""
    known = job_id in ctx.work.quarantined
    is_new = ctx.due(
        f"{FAULT_KEY}{where}:{type(error).__name__}:{about if job_id is None else job_id}", REPORTED_AGAIN_S
    )
    if not is_new and (job_id is None or known):
        return
    why = ctx.secrets.mask(f"{where}{f' of {about}' if about else ''}: {one_line(error)}")[
        :LONGEST_WHY
    ]  # masked, then shortened
    reported = ctx.secrets.mask("".join(traceback.format_exception(error)))[-LONGEST_TRACEBACK:]
    if job_id is None:
        data = {"compartment": str(where), "about": about, "traceback": reported}
        with ctx.write() as tx:
            tx.add_event(Event(ctx.new_id("ev"), ctx.now_ms, "engine.fault", why, ACTOR, data=data))
        return
    with ctx.write() as tx:
        job = tx.outline(job_id)
        state = _quarantined_state(job.state)
        if not known:
            tx.set_job_facts(job_id, quarantine=why, quarantined_at_ms=ctx.now_ms)
        if state != job.state:
            tx.set_job_state(job_id, state)
        ctx.event(tx, "job.quarantined", f"quarantined: {why}", job, compartment=str(where), traceback=reported)
    if not known:
        found = Quarantined(job_id, job.name, state, why, ctx.now_ms)
        ctx.work = replace(ctx.work, quarantined={**ctx.work.quarantined, job_id: found})


def one_line(error: Exception) -> str:
    """An exception and its hint in one line, even if its text cannot be built."""
    if isinstance(error, TradewindError):
        return f"{error} ({error.hint})" if error.hint else str(error)
    lines = traceback.format_exception_only(error)[-1].strip().splitlines()
    return lines[0] if lines else type(error).__name__


def not_its_own(error: Exception) -> bool:
    """Whether an error is unrelated to the step's job: the same step would fail for all jobs."""
    return concerns_all(error) or (isinstance(error, UnreadableRowError) and error.table not in _OF_A_JOB)


def concerns_all(error: Exception) -> bool:
    """Whether an error is about the store or the site, and so concerns every job."""
    return isinstance(error, StoreError | SiteError) and not isinstance(error, RowError)


def _quarantined_state(state: JobState) -> JobState:
    """The state from which engine.jobs.quarantine stops a job. A waiting job may have a standby to end."""
    return "pausing" if state in ("queued", "starting", "running", "migrating") else state
