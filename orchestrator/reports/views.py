"""What `report` answers: frozen dataclasses, as in orchestrator.services.views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from orchestrator.ledger import Baseline, TimeBreakdown
from orchestrator.model import Entry, Event, Migration, Run
from orchestrator.services.views import JobView


@dataclass(frozen=True, slots=True)
class RunCost:
    """One run, what it was billed, and what it was for."""

    run: Run
    number: int
    reason: str
    cost_nano_usd: int
    prices: tuple[tuple[int, int], ...]  # (effective_at_ms, nano_usd_per_hour) while it was billed


@dataclass(frozen=True, slots=True)
class Compared:
    """One job against one baseline: paid + saved = baseline, and saved may be negative.

    `definition` says in words what the baseline is, `offer_ids` its machines, `speed` where the job's speed there comes
    from ("": it ran there). A job that is left out has neither saved nor baseline, and `left_out` says why.
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
    """`compared` has one row per baseline. They are `provisional` until the job has ended and its machines are booked
    to their end; from then on they stay as they are. `version` counts from 1, None while provisional; a later one than
    the first says in `corrected` what was booked after that."""

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
        """Its row of that baseline."""
        return next(each for each in self.compared if each.baseline == baseline)

    @property
    def verdict(self) -> str:
        """All rows in words."""
        reasons = {each.left_out for each in self.compared}
        if len(reasons) == 1 and "" not in reasons:
            return f"left out of every comparison: {reasons.pop()}"
        said = "; ".join(each.verdict for each in self.compared)
        return f"so far, provisional: {said}" if self.provisional else said


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A job that is in no sum of a baseline, what it paid, and why."""

    job_id: str
    name: str
    paid_nano_usd: int
    reason: str


@dataclass(frozen=True, slots=True)
class BaselineSum:
    """The jobs compared with one baseline, `provisional` of them not for good: paid + saved = baseline.

    With what those `left_out` paid, paid is the total of the report.
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
    """`paid_nano_usd` is the exact sum of the rows, and of the `entry_count` ledger entries; `kinds` are their sums by
    kind of entry. `entries` are all of them, or where they are more than a few those of the last jobs. `totals` has one
    row per baseline."""

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
        """The sums of that baseline."""
        return next(each for each in self.totals if each.baseline == baseline)
