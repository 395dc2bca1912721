"""In vain: machines that were rented for a job and given up before it trained there. Each costs money for nothing.

One after another they make the next try later, keep the job from the offers that were to blame for a while, give a
slow step more time, and in the end pause the job, with what to change and what it has cost. All of it is read from the
audit trail, so that it outlives a control plane. A launch that was refused rented nothing and never counts; nor does
what the user or a ceiling ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from orchestrator.engine.billing.machine_cost import machine_cost_nano_usd
from orchestrator.engine.context import Context
from orchestrator.model import Event, Job, Migration, Run
from orchestrator.store import Tx
from providers.money import format_usd

MOST_IN_A_ROW = 5
"""So many placements in a row are given up, then the job is paused; so many standbys, then it goes on without one."""

EXCLUDED_S = 3600.0  # market: an offer that was to blame, for the job that it failed
BACK_OFF_S = 5.0  # wall: before the second try in a row twice of it, then four times, ...
LONGEST_BACK_OFF_S = 600.0
MOST_DOUBLINGS = 2  # of a time limit that ran out
MOST_SAID = 200  # characters of a reason that a job may have written itself

Cause = Literal["ready", "setup", "quiesce", "restore", "trainer", "taken", "checkpoint", "outweighed"]
FailureKind = Literal["placement.in_vain", "move.in_vain", "standby.in_vain"]

_BLAMES_OFFER = frozenset({"ready", "restore", "trainer"})
_RESUMED = "job.resumed"
_BEGIN_ANEW = ("migration.cutover", _RESUMED)
EXCLUDING = ("placement.in_vain", "move.in_vain", "standby.in_vain", _RESUMED)
"""Kinds of events that say which offers a job must not use."""
_CHANGE: dict[str, str] = {
    "ready": "its machines do not come up in time: leave these offers out (where.clouds, where.regions, resources)",
    "setup": "its set-up fails (train.setup, train.requirements): see `tradewind logs {job}`",
    "quiesce": "its source reaches no checkpoint in time: make steps shorter or the checkpoint smaller",
    "restore": "it takes too long to restore: make the checkpoint smaller, keep it nearer to the machines "
    "(checkpoint.to), or load less before trainers.attach()",
    "trainer": "its trainer ends before it has restored: see `tradewind logs {job}`",
    "taken": "machines are taken back before it trains: allow on_demand (capacity) or other regions (where.regions)",
    "checkpoint": "its checkpoint cannot be handed over: see `tradewind events {job}`",
}


@dataclass(frozen=True, slots=True)
class InVain:
    """One machine that was given up: when, of which offer, for which run, and why."""

    at_ms: int
    offer_id: str
    run_id: str
    cause: str
    why: str


def in_a_row(tx: Tx, job_id: str, kind: FailureKind) -> list[InVain]:
    """The newest first, at most MOST_IN_A_ROW: those since the job trained anew somewhere or was resumed."""
    return _latest(tx, job_id, (kind,), MOST_IN_A_ROW)


def excluded(events: Iterable[Event], now_ms: int) -> tuple[tuple[str, str], ...]:
    """(offer id, reason) of each offer that a job must not use at market instant `now_ms`, sorted by offer id: from its
    `events` of the kinds EXCLUDING, the newest first.

    An offer is left out for EXCLUDED_S after one of its machines failed this job. Resuming the job clears the list.
    """
    found: dict[str, str] = {}
    for each in _since(islice(events, 4 * MOST_IN_A_ROW), (_RESUMED,)):
        if each.cause in _BLAMES_OFFER and now_ms - each.at_ms < EXCLUDED_S * 1000:
            found.setdefault(each.offer_id, f"given up there {(now_ms - each.at_ms) / 60_000:.0f} min ago: {each.why}")
    return tuple(sorted(found.items()))


def more_time(tx: Tx, job_id: str, cause: Cause) -> float:
    """By what a time limit of this job is multiplied: the next is twice as long after each that ran out in a row."""
    latest = _latest(tx, job_id, ("placement.in_vain", "move.in_vain"), MOST_IN_A_ROW)
    return 2.0 ** min(MOST_DOUBLINGS, sum(each.cause == cause for each in latest))


def count(
    ctx: Context, tx: Tx, job: Job, run: Run, migration: Migration, kind: FailureKind, cause: Cause, why: str
) -> int:
    """Record one more, in the transaction that gives it up. Returns how many in a row that makes."""
    earlier = in_a_row(tx, job.id, kind)
    number = len(earlier) + 1
    spent = spent_nano_usd(tx, [run.id, *(each.run_id for each in earlier)], ctx.now_ms)
    why = why[:MOST_SAID]
    what = {"placement.in_vain": "machine", "move.in_vain": "move", "standby.in_vain": "standby"}[kind]
    ctx.event(
        tx,
        kind,
        f"{what} {number} in a row given up, {format_usd(spent, 4)} spent: {why}",
        job,
        run=run,
        migration=migration,
        offer_id=run.offer_id,
        cause=cause,
        why=why,
        spent_nano_usd=spent,
    )
    return number


def back_off_s(number: int) -> float:
    """Wall seconds before the next try, after so many in a row. The first costs no time."""
    return 0.0 if number < 2 else min(LONGEST_BACK_OFF_S, BACK_OFF_S * 2.0 ** (number - 1))


def give_up(ctx: Context, tx: Tx, job: Job, run: Run) -> None:
    """Pause a job whose every placement was in vain: with what it cost, and what to change."""
    latest = in_a_row(tx, job.id, "placement.in_vain")
    spent = spent_nano_usd(tx, [each.run_id for each in latest], ctx.now_ms)
    reason = (
        f"{len(latest)} machines in a row were rented for it and given up before it trained, for "
        f"{format_usd(spent, 4)}; the last: {latest[0].why}. {_CHANGE[latest[0].cause].format(job=job.name)}; "
        f"then: tradewind resume {job.name}"
    )
    tx.set_job_state(job.id, "paused")
    ctx.event(tx, "job.paused", f"paused at its last checkpoint: {reason}", job, run=run, spent_nano_usd=spent)


def _latest(tx: Tx, job_id: str, kinds: Sequence[FailureKind], limit: int) -> list[InVain]:
    """The newest first, of at most so many events."""
    events = tx.events(job_id=job_id, kinds=(*kinds, *_BEGIN_ANEW), limit=limit, newest_first=True)
    return _since(events, _BEGIN_ANEW)


def _since(events: Iterable[Event], anew: Sequence[str]) -> list[InVain]:
    found = []
    for event in events:
        if event.kind in anew:
            break
        reported = (str(event.data.get(name, "")) for name in ("cause", "why"))
        found.append(InVain(event.at_ms, str(event.data.get("offer_id", "")), event.run_id or "", *reported))
    return found


def spent_nano_usd(tx: Tx, run_ids: Sequence[str], now_ms: int) -> int:
    """What these machines have cost up to now, at the prices known."""
    return sum(machine_cost_nano_usd(tx, run, now_ms) for run in map(tx.run, run_ids))
