"""Wasted machines: rented for a job and released before it trained on them.

Several of them in a row delay the next try, exclude the offers at fault for a while, give a slow step more time, and
finally pause the job, with a message that says what it cost and what to change. All of this is read from the stored
events, so it survives a restart of the control plane. A refused launch rents nothing and does not count; neither does a
launch that the user or a spending limit ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from orchestrator.engine.billing.machine_cost import machine_cost_nano_usd
from orchestrator.engine.context import Context
from orchestrator.engine.jobs.stopped_at import stopped_at
from orchestrator.model import Event, Job, Migration, Run
from orchestrator.store import Tx
from providers.money import about_usd

MOST_IN_A_ROW = 5
"""After this many wasted placements in a row the job is paused; after this many wasted standbys it runs without one."""

EXCLUDED_S = 3600.0  # market: how long a job does not use an offer that failed it
BACK_OFF_S = 5.0  # wall: twice this before the second try in a row, then four times, ...
LONGEST_BACK_OFF_S = 600.0
MOST_DOUBLINGS = 2  # doublings of a time limit that ran out
MAX_REASON_CHARS = 200  # the job itself may have written the reason

Cause = Literal["ready", "setup", "quiesce", "restore", "trainer", "taken", "checkpoint", "outweighed"]
WasteKind = Literal["placement.wasted", "move.wasted", "standby.wasted"]

_BLAMES_OFFER = frozenset({"ready", "restore", "trainer"})
_RESUMED = "job.resumed"
_BEGIN_ANEW = ("migration.cutover", _RESUMED)
EXCLUDING = ("placement.wasted", "move.wasted", "standby.wasted", _RESUMED)
"""The kinds of events that determine which offers a job must not use."""
_CHANGE: dict[str, str] = {
    "ready": "machines do not start, or not in time: exclude these offers (where.clouds, where.regions, resources)",
    "setup": "its setup fails (train.setup, train.requirements): see `tradewind logs {job}`",
    "quiesce": "the running machine does not save a checkpoint in time: use shorter steps or a smaller checkpoint",
    "restore": "restoring takes too long: use a smaller checkpoint, keep it closer to the machines "
    "(checkpoint.to), or load less before trainers.attach()",
    "trainer": "the trainer ends before it has restored: see `tradewind logs {job}`",
    "taken": "machines are preempted before training starts: allow on_demand (capacity) or other regions "
    "(where.regions)",
    "checkpoint": "the checkpoint cannot be handed over: see `tradewind events {job}`",
}


@dataclass(frozen=True, slots=True)
class WastedMachine:
    """One machine released before the job trained on it: when (market ms), its offer and run, and why."""

    at_ms: int
    offer_id: str
    run_id: str
    cause: str
    why: str


def in_a_row(tx: Tx, job_id: str, kind: WasteKind) -> list[WastedMachine]:
    """Newest first, at most MOST_IN_A_ROW: the wasted machines since the job last started to train or was resumed."""
    return _latest(tx, job_id, (kind,), MOST_IN_A_ROW)


def resumed_ms(events: Iterable[Event]) -> list[int]:
    """When a job was resumed (market ms), by its events of the kinds EXCLUDING."""
    return [event.at_ms for event in events if event.kind == _RESUMED]


def excluded(events: Iterable[Event], now_ms: int) -> tuple[tuple[str, str], ...]:
    """(offer id, reason) of each offer that a job must not use at market time `now_ms`, sorted by offer id.

    `events` are the job's of the kinds EXCLUDING, newest first. An offer is excluded for EXCLUDED_S after one of its
    machines failed this job. Resuming the job clears the list.
    """
    found: dict[str, str] = {}
    for each in _since(islice(events, 4 * MOST_IN_A_ROW), (_RESUMED,)):
        if each.cause in _BLAMES_OFFER and now_ms - each.at_ms < EXCLUDED_S * 1000:
            found.setdefault(each.offer_id, f"failed there {(now_ms - each.at_ms) / 60_000:.0f} min ago: {each.why}")
    return tuple(sorted(found.items()))


def more_time(tx: Tx, job_id: str, cause: Cause) -> float:
    """The factor for a time limit of this job: it doubles with each timeout in a row, up to 2**MOST_DOUBLINGS."""
    latest = _latest(tx, job_id, ("placement.wasted", "move.wasted"), MOST_IN_A_ROW)
    return 2.0 ** min(MOST_DOUBLINGS, sum(each.cause == cause for each in latest))


def count(
    ctx: Context, tx: Tx, job: Job, run: Run, migration: Migration, kind: WasteKind, cause: Cause, why: str
) -> int:
    """Record a wasted machine, in the transaction that aborts its migration. Returns how many there are in a row."""
    earlier = in_a_row(tx, job.id, kind)
    number = len(earlier) + 1
    spent = spent_nano_usd(tx, [run.id, *(each.run_id for each in earlier)], ctx.now_ms)
    why = why[:MAX_REASON_CHARS]
    what = {"placement.wasted": "machine", "move.wasted": "move", "standby.wasted": "standby"}[kind]
    ctx.event(
        tx,
        kind,
        f"unused {what} number {number} in a row, {about_usd(spent)} spent so far: {why}",
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
    """Wall seconds before the next try after `number` in a row; 0 after the first."""
    return 0.0 if number < 2 else min(LONGEST_BACK_OFF_S, BACK_OFF_S * 2.0 ** (number - 1))


def pause_job(ctx: Context, tx: Tx, job: Job, run: Run) -> None:
    """Pause a job whose placements were all wasted, and report their cost and what to change."""
    latest = in_a_row(tx, job.id, "placement.wasted")
    spent = spent_nano_usd(tx, [each.run_id for each in latest], ctx.now_ms)
    name = tx.typed_name(job.id, job.name)
    reason = (
        f"{len(latest)} machines in a row were rented but never trained, for {about_usd(spent)} so far. "
        f"Last reason: {latest[0].why}. Likely cause: {_CHANGE[latest[0].cause].format(job=name)}. "
        f"Then run: tradewind resume {name}"
    )
    tx.set_job_state(job.id, "paused")
    stopped = stopped_at(tx, job)
    ctx.event(tx, "job.paused", f"paused {stopped}: {reason}", job, run=run, spent_nano_usd=spent)


def _latest(tx: Tx, job_id: str, kinds: Sequence[WasteKind], limit: int) -> list[WastedMachine]:
    """Newest first, from at most `limit` events: those since the job last started to train or was resumed."""
    events = tx.events(job_id=job_id, kinds=(*kinds, *_BEGIN_ANEW), limit=limit, newest_first=True)
    return _since(events, _BEGIN_ANEW)


def _since(events: Iterable[Event], anew: Sequence[str]) -> list[WastedMachine]:
    found = []
    for event in events:
        if event.kind in anew:
            break
        reported = (str(event.data.get(name, "")) for name in ("cause", "why"))
        found.append(WastedMachine(event.at_ms, str(event.data.get("offer_id", "")), event.run_id or "", *reported))
    return found


def spent_nano_usd(tx: Tx, run_ids: Sequence[str], now_ms: int) -> int:
    """The cost of these machines so far (nano-USD), at the known prices."""
    return sum(machine_cost_nano_usd(tx, run, now_ms) for run in map(tx.run, run_ids))
