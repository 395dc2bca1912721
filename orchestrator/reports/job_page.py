"""One job in full: where it ran and why, the prices, its cost compared with the forecast, and what would move it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from orchestrator.errors import RowError
from orchestrator.installation import Installation
from orchestrator.model import Alternative, Entry, Event, Migration, Placement, Plan, Run
from orchestrator.reports import report as reports
from orchestrator.reports.views import JobReport
from orchestrator.services.jobs.plan import decisions_of
from orchestrator.services.views import Decision
from orchestrator.store import Interval, Tx

EVENTS = 60
ENTRIES = 200
BEATEN = 2
Prices = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class FirstForecast:
    """The forecast of the decision that first placed the job: the cost to finish with its 5th and 95th percentile, and
    the finish time."""

    at_ms: int
    offer_id: str | None
    cost_nano_usd: int
    cost_low_nano_usd: int
    cost_high_nano_usd: int
    finish_at_ms: int | None


@dataclass(frozen=True, slots=True)
class Rival:
    """An offer that a decision did not choose: the job's speed there, in steps per market second, and its prices."""

    offer_id: str
    steps_per_s: float | None
    prices: Prices


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Facts about a run other than its costs: its speed in steps per market second (None: it was too short), the plan
    that started it, the reason given in that plan, and the next best offers of that plan with their prices during the
    run, in nano-USD per hour for the same number of machines."""

    run_id: str
    steps_per_s: float | None
    plan_id: str | None
    why: str
    expected_saving_nano_usd: int
    beaten: tuple[Rival, ...]
    planned_steps_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class JobPage:
    """Everything about one job. `decisions` are the latest decisions about it, newest first, each with its offers;
    `first` is None if its speed was unknown when it was first placed."""

    kind: ClassVar[str] = "job-page"

    at_ms: int
    simulated: bool
    report: JobReport
    error: str
    first: FirstForecast | None
    facts: tuple[RunFacts, ...]
    decision: Decision | None
    decided_at_ms: int | None
    plan_id: str | None
    migrations: tuple[Migration, ...]
    events: tuple[Event, ...]
    entries: tuple[Entry, ...]
    kinds: Mapping[str, int]


def job_page(installation: Installation, ref: str) -> JobPage:
    """The page of a job by id or name. Raises NotFoundError."""
    view = reports.report(installation, ref)
    row = view.jobs[0]
    now, job_id = view.at_ms, row.job.id
    with installation.store.read() as tx:
        job = tx.outline(job_id)
        facts = tx.job_facts(job_id)
        plans = _plans(tx, job_id)
        runs = [each.run for each in row.runs]
        about = _facts(tx, runs, view.migrations, {at.id: at.placements[0] for at in plans}, now)
        newest = plans[-1] if plans else None
        decision = None
        if newest is not None:
            (decision,) = decisions_of(tx, newest.placements[:1], {job_id: job})
        events = tx.events(job_id=job_id, limit=EVENTS, newest_first=True)
        entries = tx.entries(job_id=job_id)
    return JobPage(
        at_ms=now,
        simulated=view.simulated,
        report=row,
        error=(facts.error or "").strip() if job.state == "failed" else "",
        first=_first(plans[0].at_ms, plans[0].placements[0]) if plans else None,
        facts=about,
        decision=decision,
        decided_at_ms=None if newest is None else newest.at_ms,
        plan_id=None if newest is None else newest.id,
        migrations=view.migrations,
        events=tuple(events),
        entries=tuple(reversed(entries[-ENTRIES:])),
        kinds=view.kinds,
    )


def _plans(tx: Tx, job_id: str) -> list[Plan]:
    try:
        return [each for each in tx.plans_about(job_id) if each.placements]
    except RowError:  # still show the rest of the page
        return []


def _first(at_ms: int, placement: Placement) -> FirstForecast | None:
    chosen = next((each for each in placement.alternatives if each.offer_id == placement.offer_id), None)
    if placement.cost_nano_usd is None or chosen is None:
        return None
    low, high = chosen.cost_low_nano_usd, chosen.cost_high_nano_usd
    return FirstForecast(
        at_ms,
        placement.offer_id,
        placement.cost_nano_usd,
        placement.cost_nano_usd if low is None else low,
        placement.cost_nano_usd if high is None else high,
        placement.finish_at_ms,
    )


def _facts(
    tx: Tx,
    runs: Sequence[Run],
    migrations: Sequence[Migration],
    placements: Mapping[str, Placement],
    now_ms: int,
) -> tuple[RunFacts, ...]:
    started = {each.target_run_id: each for each in migrations}
    rivals: dict[str, list[Alternative]] = {}
    asked: list[Interval] = []
    for run in runs:
        move = started.get(run.id)
        placement = placements.get(move.plan_id or "") if move is not None else None
        rivals[run.id] = _rivals(placement, run.offer_id)
        if run.billed_from_ms is not None:
            end = max(run.billed_from_ms + 1, run.billed_to_ms or now_ms)
            asked += [Interval(each.offer_id, run.billed_from_ms, end) for each in rivals[run.id]]
    found = iter(tx.price_changes_of(asked))
    made = []
    for run in runs:
        move = started.get(run.id)
        placement = placements.get(move.plan_id or "") if move is not None else None
        priced = run.billed_from_ms is not None
        beaten = tuple(
            Rival(
                each.offer_id,
                each.steps_per_s,
                tuple((at, run.nodes * price) for at, price in (next(found) if priced else ())),
            )
            for each in rivals[run.id]
        )
        made.append(
            RunFacts(
                run.id,
                _speed(run, now_ms),
                None if move is None else move.plan_id,
                "" if placement is None else placement.reason,
                0 if move is None else move.expected_saving_nano_usd,
                beaten,
                _planned(placement, run.offer_id),
            )
        )
    return tuple(made)


def _rivals(placement: Placement | None, offer_id: str) -> list[Alternative]:
    if placement is None:
        return []
    return [each for each in placement.alternatives if each.feasible and each.offer_id != offer_id][:BEATEN]


def _planned(placement: Placement | None, offer_id: str) -> float | None:
    of = () if placement is None else placement.alternatives
    return next((each.steps_per_s for each in of if each.offer_id == offer_id), None)


def _speed(run: Run, now_ms: int) -> float | None:
    if run.training_from_ms is None or run.last_step <= run.start_step:
        return None
    seconds = ((run.training_to_ms or now_ms) - run.training_from_ms) / 1000
    return (run.last_step - run.start_step) / seconds if seconds > 0 else None
