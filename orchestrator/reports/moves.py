"""Moves of jobs: the reason, the time of each step, the expected saving, and the realised saving.

The realised saving is what the previous machine would have cost for the same steps at its actual prices, minus the cost
of the new machine. Regret is what the best offer considered by the decision would have saved in hindsight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from orchestrator.engine.inputs.snapshot import left_out
from orchestrator.errors import NotFoundError, RowError, UsageError
from orchestrator.formats.csv_cells import table
from orchestrator.formats.readable import iso
from orchestrator.installation import Installation
from orchestrator.model import STEP_ORDER, Event, Migration, Placement, Run, Step
from orchestrator.services.prices.history import instant_of
from orchestrator.store import Interval, Tx

ROWS = 50
COMPARED = 8
HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class MoveStep:
    """A step of a move, and its duration in market seconds (None: it has not ended)."""

    step: str
    at_ms: int
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Move:
    """One move. `took_s`: from the decision until the new machine trained. Amounts are in nano-USD; None: not known
    yet, or not comparable."""

    migration: Migration
    job_name: str
    from_offer_id: str | None
    took_s: float | None
    steps: tuple[MoveStep, ...]
    moved_bytes: int | None
    egress_nano_usd: int
    realised_nano_usd: int | None
    regret_nano_usd: int | None
    best_offer_id: str | None


@dataclass(frozen=True, slots=True)
class MoveList:
    """Moves since `from_ms`, newest first, at most ROWS unless all were requested, with the runs of their jobs for a
    chart. `next_before` is the id of the last move if there are older moves."""

    kind: ClassVar[str] = "moves"

    at_ms: int
    from_ms: int
    moves: tuple[Move, ...]
    runs: tuple[Run, ...]
    next_before: str | None
    simulated: bool


def moves(
    installation: Installation,
    *,
    job: str | None = None,
    since: str = "7d",
    before: str | None = None,
    every: bool = False,
) -> MoveList:
    """The latest moves of a job (None: of all jobs), or the moves before a migration: the first ROWS, or with `every`
    all. Raises NotFoundError, UsageError."""
    now = installation.clock.now_ms()
    start = instant_of(since, now)
    if start > now:
        raise UsageError("the period begins in the future", hint="for example since=7d")
    with installation.store.read() as tx:
        job_id = None if job is None else tx.find_job(job).id
        last = None if before is None else tx.migration(before)
        found = tx.recent_migrations(start, None if every else ROWS + 1, job_id, last)
        page = found if every else found[:ROWS]
        ids = list(dict.fromkeys(each.job_id for each in page))
        names = {each.id: each.name for each in tx.outlines_of(ids)}
        runs = {run.id: run for of in tx.runs_of(ids, left_out).values() for run in of}
        booked = _booked(tx, ids)
        rows = tuple(_move(tx, each, names, runs, booked, now) for each in page)
    return MoveList(
        at_ms=now,
        from_ms=start,
        moves=rows,
        runs=tuple(sorted(runs.values(), key=lambda run: run.created_at_ms)),
        next_before=page[-1].id if len(found) > len(page) else None,
        simulated=installation.simulated,
    )


def moves_csv(view: MoveList) -> str:
    """CSV with a row per move, in exact nano-USD."""
    columns = (
        "migration_id", "job", "at", "reason", "step", "from", "to", "took_s", "moved_bytes", "egress_nano_usd",
        "expected_nano_usd", "realised_nano_usd", "regret_nano_usd",
    )  # fmt: skip
    rows = (
        (
            each.migration.id,
            each.job_name,
            iso(each.migration.created_at_ms),
            each.migration.reason,
            each.migration.step.value,
            each.from_offer_id,
            each.migration.offer_id,
            each.took_s,
            each.moved_bytes,
            each.egress_nano_usd,
            each.migration.expected_saving_nano_usd,
            each.realised_nano_usd,
            each.regret_nano_usd,
        )
        for each in view.moves
    )
    return table(columns, rows)


def _booked(tx: Tx, job_ids: Sequence[str]) -> dict[tuple[str, str], int]:
    """Booked amounts in nano-USD, by run and kind."""
    return {(each.run_id, each.kind): each.amount_nano_usd for each in tx.ledger_sums(job_ids)}


def _move(
    tx: Tx,
    of: Migration,
    names: dict[str, str],
    runs: dict[str, Run],
    booked: dict[tuple[str, str], int],
    now_ms: int,
) -> Move:
    source, target = runs.get(of.source_run_id or ""), runs.get(of.target_run_id)
    trained = None if target is None else target.training_from_ms
    realised, regret, best = _judged(tx, of, source, target, booked, now_ms)
    return Move(
        migration=of,
        job_name=names.get(of.job_id, of.job_id),
        from_offer_id=None if source is None else source.offer_id,
        took_s=None if trained is None else max(0, trained - of.created_at_ms) / 1000,
        steps=_steps(of, tx.events_of_migration(of.job_id, of.id)),
        moved_bytes=None if target is None else target.moved_bytes,
        egress_nano_usd=booked.get((of.target_run_id, "egress"), 0)
        + booked.get((of.target_run_id, "egress_estimate"), 0),
        realised_nano_usd=realised,
        regret_nano_usd=regret,
        best_offer_id=best,
    )


def _steps(of: Migration, events: Sequence[Event]) -> tuple[MoveStep, ...]:
    names = {each.value for each in STEP_ORDER} | {Step.ABORTED.value}
    seen = [(each.kind.partition(".")[2], each.at_ms) for each in events if each.kind.startswith("migration.")]
    seen = [("begun", of.created_at_ms), *(each for each in seen if each[0] in names)]
    ends = [at for _, at in seen[1:]]
    return tuple(
        MoveStep(name, at, (ends[number] - at) / 1000 if number < len(ends) else None)
        for number, (name, at) in enumerate(seen)
    )


def _rate(run: Run | None, now_ms: int) -> float | None:
    """Steps per market second."""
    if run is None or run.training_from_ms is None:
        return None
    seconds = ((run.training_to_ms or now_ms) - run.training_from_ms) / 1000
    return (run.last_step - run.start_step) / seconds if seconds > 0 and run.last_step > run.start_step else None


def _judged(
    tx: Tx,
    of: Migration,
    source: Run | None,
    target: Run | None,
    booked: dict[tuple[str, str], int],
    now_ms: int,
) -> tuple[int | None, int | None, str | None]:
    """(realised saving, regret, the best offer in hindsight) of a move whose run has ended."""
    if target is None or target.billed_from_ms is None or target.billed_to_ms is None or _rate(target, now_ms) is None:
        return None, None, None
    paid = sum(amount for (run_id, _), amount in booked.items() if run_id == target.id)
    steps = target.last_step - target.start_step
    rates: dict[str, float] = {}
    if of.plan_id is not None:
        rates |= _considered(tx, of)
    own = _rate(source, now_ms)
    if source is not None and own is not None:
        rates[source.offer_id] = own
    rates.pop(target.offer_id, None)
    names = list(rates)
    means = tx.mean_prices([Interval(name, target.billed_from_ms, target.billed_to_ms) for name in names])
    costs = {
        name: round(target.nodes * mean * steps / rates[name] / HOUR_S)
        for name, mean in zip(names, means, strict=True)
        if mean is not None and rates[name] > 0
    }
    voluntary = of.reason in ("cheaper offer", "objective", "manual")
    realised = costs[source.offer_id] - paid if voluntary and source is not None and source.offer_id in costs else None
    best = min(costs, key=lambda name: (costs[name], name), default=None)
    if best is None:
        return realised, None, None
    return realised, max(0, paid - costs[best]), best if costs[best] < paid else None


def _considered(tx: Tx, of: Migration) -> dict[str, float]:
    """The feasible offers of the move's decision, with the job's speed there."""
    try:
        placement: Placement = tx.plan(of.plan_id or "").placement(of.job_id)
    except (NotFoundError, KeyError, RowError):
        return {}
    return {
        each.offer_id: each.steps_per_s
        for each in placement.alternatives[:COMPARED]
        if each.feasible and each.steps_per_s
    }
