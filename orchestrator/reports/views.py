"""Views of `report`: frozen dataclasses, as in orchestrator.services.views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from orchestrator.ledger import Baseline, TimeBreakdown
from orchestrator.model import Entry, Event, Migration, Run
from orchestrator.services.views import JobView


@dataclass(frozen=True, slots=True)
class RunCost:
    """One run, its cost (nano-USD) and the reason for it."""

    run: Run
    number: int
    reason: str
    cost_nano_usd: int
    prices: tuple[tuple[int, int], ...]  # (effective_at_ms, nano_usd_per_hour) while it was billed


@dataclass(frozen=True, slots=True)
class Compared:
    """One job compared with one baseline: paid + saved = baseline; saved may be negative.

    `definition` describes the baseline, `offer_ids` are its machines, and `speed` is the source of the job's speed on
    them ("": it ran there). A job that is left out has neither saved nor baseline; `left_out` gives the reason.
    """

    baseline: Baseline
    name: str
    definition: str
    paid_nano_usd: int
    saved_nano_usd: int | None
    baseline_nano_usd: int | None
    left_out: str
    offer_ids: tuple[str, ...]
    speed: str
    verdict: str


@dataclass(frozen=True, slots=True)
class JobReport:
    """The report on one job. `compared` has one row per baseline.

    The rows are `provisional` until the job has ended and its machines are fully booked; then they are final. `version`
    counts from 1 and is None while provisional; from 2 on, `corrected` says what was booked later. Durations are in
    market seconds (`_s`) or wall seconds (`_wall_s`).
    """

    job: JobView
    runs: tuple[RunCost, ...]
    duration_s: float  # from submission to the end, or until now
    duration_wall_s: float
    paid_nano_usd: int
    provisional: bool
    version: int | None
    compared_at_ms: int
    corrected: str
    compared: tuple[Compared, ...]
    time_breakdown: TimeBreakdown
    losses: tuple[tuple[int, float], ...]  # (step, loss), thinned

    def against(self, baseline: Baseline) -> Compared:
        """The row for a baseline."""
        return next(each for each in self.compared if each.baseline == baseline)

    @property
    def verdict(self) -> str:
        """The verdicts of all rows."""
        reasons = {each.left_out for each in self.compared}
        if len(reasons) == 1 and "" not in reasons:
            return f"left out of every comparison: {reasons.pop()}"
        said = "; ".join(each.verdict for each in self.compared)
        return f"provisional: {said}" if self.provisional else said


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A job that is excluded from a baseline's sums, what it paid (nano-USD), and the reason."""

    job_id: str
    name: str
    paid_nano_usd: int
    reason: str


@dataclass(frozen=True, slots=True)
class BaselineSum:
    """The sums over the jobs compared with one baseline, `provisional` of them not final: paid + saved = baseline.

    Paid plus the payments of the `left_out` jobs is the total of the report.
    """

    baseline: Baseline
    name: str
    definition: str
    jobs: int
    provisional: int
    paid_nano_usd: int
    saved_nano_usd: int
    baseline_nano_usd: int
    left_out: tuple[LeftOut, ...]
    left_out_nano_usd: int


@dataclass(frozen=True, slots=True)
class ReportView:
    """A report. `paid_nano_usd` is the exact sum of the rows and of the `entry_count` ledger entries; `kinds` are their
    sums by kind. `entries` are all entries or, if there are too many, those of the latest jobs. `totals` has one row
    per baseline."""

    kind: ClassVar[str] = "report"

    at_ms: int
    simulated: bool
    clock_factor: float
    jobs: tuple[JobReport, ...]
    paid_nano_usd: int
    totals: tuple[BaselineSum, ...]
    entry_count: int
    kinds: Mapping[str, int]
    entries: tuple[Entry, ...]
    migrations: tuple[Migration, ...]
    events: tuple[Event, ...]

    def total(self, baseline: Baseline) -> BaselineSum:
        """The sums for a baseline."""
        return next(each for each in self.totals if each.baseline == baseline)
