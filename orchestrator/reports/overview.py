"""Overview: savings by baseline, costs so far and expected, running jobs, recent changes, and problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from orchestrator.installation import Installation
from orchestrator.ledger import BASELINES, Baseline
from orchestrator.model import TERMINAL, Event, JobForecast
from orchestrator.reports.costs import CostView, costs
from orchestrator.reports.incidents import Incident, incidents
from orchestrator.reports.periods import DAY_MS, Period
from orchestrator.reports.savings import DEFINITIONS, NAMES
from orchestrator.services.jobs.current import job_views
from orchestrator.services.jobs.forecasts import fresh_forecasts
from orchestrator.services.views import JobView
from orchestrator.store import CostFilter, JobFilter, SavingSum, Tx

RUNNING_SHOWN = 8
HIGHLIGHTS = 8
RECENT_EVENTS = 600
_HIGHLIGHTED = (
    "job.submitted",
    "job.finished",
    "job.failed",
    "job.cancelled",
    "run.preempted",
    "run.lost",
    "migration.provision",
)


@dataclass(frozen=True, slots=True)
class Saving:
    """The jobs that ended in the period, compared with one baseline: paid + saved = baseline. `left_out` is the number
    of jobs that cannot be compared, with what they paid. The amounts are final."""

    baseline: Baseline
    name: str
    definition: str
    jobs: int
    paid_nano_usd: int
    saved_nano_usd: int
    baseline_nano_usd: int
    left_out: int
    left_out_nano_usd: int


@dataclass(frozen=True, slots=True)
class Expected:
    """All open jobs: paid so far, and expected until they finish, with the sums of the 5th and 95th percentiles;
    compared with their budgets, if they have one. `unknown` jobs have no forecast; `without_forecast` of these have a
    budget."""

    jobs: int
    paid_nano_usd: int
    to_go_nano_usd: int
    to_go_low_nano_usd: int
    to_go_high_nano_usd: int
    unknown: int
    budgeted: int
    budgeted_expected_nano_usd: int
    budget_nano_usd: int
    over: tuple[JobView, ...]
    without_forecast: int = 0


@dataclass(frozen=True, slots=True)
class Changes:
    """The last 24 hours: the number of events of each kind, the costs, also of the 24 hours before, and the latest
    important events. `counts` covers only the latest RECENT_EVENTS events; `more` says whether there are more.
    """

    counts: Mapping[str, int]
    spent_nano_usd: int
    before_nano_usd: int
    highlights: tuple[Event, ...]
    more: bool


@dataclass(frozen=True, slots=True)
class Overview:
    """The first page. `savings` has a row per baseline; `not_compared` jobs ended in the period but are not compared
    yet."""

    kind: ClassVar[str] = "overview"

    at_ms: int
    period: str
    from_ms: int
    until_ms: int
    simulated: bool
    savings: tuple[Saving, ...]
    spent: CostView
    expected: Expected
    running: tuple[JobView, ...]
    states: Mapping[str, int]
    changes: Changes
    incidents: tuple[Incident, ...]

    def saving(self, baseline: Baseline) -> Saving:
        """The row of a baseline."""
        return next(each for each in self.savings if each.baseline == baseline)


def overview(installation: Installation, period: Period) -> Overview:
    """The overview of a period, with the jobs that run now."""
    now = installation.clock.now_ms()
    with installation.store.read() as tx:
        sums = tx.saving_sums(period.from_ms, period.until_ms)
        open_ids, _ = tx.job_ids_page(JobFilter(_OPEN), "oldest", 1000, 0)
        open_jobs = tx.outlines_of(open_ids)
        views = job_views(installation, tx, open_jobs, fresh_forecasts(installation, tx, open_jobs))
        states = tx.job_state_counts()
        changes = _changes(tx, now)
        found = incidents(installation, tx, views)
    order = {job_id: place for place, job_id in enumerate(open_ids)}
    views = tuple(sorted(views, key=lambda each: order[each.id]))
    return Overview(
        at_ms=now,
        period=period.name,
        from_ms=period.from_ms,
        until_ms=period.until_ms,
        simulated=installation.simulated,
        savings=tuple(_saving(baseline, sums) for baseline in BASELINES),
        spent=costs(installation, period, "project"),
        expected=_expected(views, now),
        running=views[:RUNNING_SHOWN],
        states=states,
        changes=changes,
        incidents=found,
    )


_OPEN = ("queued", "starting", "running", "migrating", "pausing", "paused", "cancelling")
_RUNNING = ("running", "migrating")
assert not TERMINAL.intersection(_OPEN)


def _saving(baseline: Baseline, sums: list[SavingSum]) -> Saving:
    of = [each for each in sums if each.baseline == baseline]
    inside, out = [each for each in of if not each.left_out], [each for each in of if each.left_out]
    paid, cost = sum(each.paid_nano_usd for each in inside), sum(each.baseline_nano_usd for each in inside)
    return Saving(
        baseline,
        NAMES[baseline],
        DEFINITIONS[baseline],
        sum(each.jobs for each in inside),
        paid,
        cost - paid,
        cost,
        sum(each.jobs for each in out),
        sum(each.paid_nano_usd for each in out),
    )


def _expected(views: tuple[JobView, ...], now_ms: int) -> Expected:
    forecasts = [(each, each.forecast) for each in views]
    known = [(each, forecast) for each, forecast in forecasts if forecast is not None]
    within = [
        (each, each.paid_nano_usd + _from_now_nano_usd(each, forecast, now_ms))
        for each, forecast in known
        if each.budget_nano_usd is not None
    ]
    return Expected(
        jobs=len(views),
        paid_nano_usd=sum(each.paid_nano_usd for each in views),
        to_go_nano_usd=sum(forecast.cost_nano_usd for _, forecast in known),
        to_go_low_nano_usd=sum(forecast.cost_low_nano_usd for _, forecast in known),
        to_go_high_nano_usd=sum(forecast.cost_high_nano_usd for _, forecast in known),
        unknown=len(views) - len(known),
        budgeted=len(within),
        budgeted_expected_nano_usd=sum(in_all for _, in_all in within),
        budget_nano_usd=sum(each.budget_nano_usd or 0 for each, _ in within),
        over=tuple(each for each, in_all in within if in_all > (each.budget_nano_usd or 0)),
        without_forecast=sum(each.forecast is None and each.budget_nano_usd is not None for each in views),
    )


def _from_now_nano_usd(job: JobView, forecast: JobForecast, now_ms: int) -> int:
    """The expected cost of a job from now on (nano-USD): its forecast without what was paid since the forecast."""
    if job.state not in _RUNNING or forecast.duration_s <= 0:
        return forecast.cost_nano_usd
    left = 1 - (now_ms - forecast.at_ms) / 1000 / forecast.duration_s
    return round(forecast.cost_nano_usd * min(max(left, 0.0), 1.0))


def _changes(tx: Tx, now_ms: int) -> Changes:
    since = now_ms - DAY_MS
    found = tx.events(limit=RECENT_EVENTS, newest_first=True)
    recent = [each for each in found if each.at_ms >= since]
    highlights = [each for each in recent if each.kind in _HIGHLIGHTED]
    return Changes(
        counts=Counter(each.kind for each in recent),
        spent_nano_usd=_spent(tx, since, now_ms),
        before_nano_usd=_spent(tx, since - DAY_MS, since),
        highlights=tuple(highlights[:HIGHLIGHTS]),
        more=len(recent) == RECENT_EVENTS,
    )


def _spent(tx: Tx, since_ms: int, until_ms: int) -> int:
    return sum(each.amount_nano_usd for each in tx.cost_sums(CostFilter(since_ms, until_ms)))
