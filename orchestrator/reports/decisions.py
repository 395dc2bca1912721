"""The current plan: the latest decision about each open job, and how it differs from the previous one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from orchestrator.errors import RowError
from orchestrator.formats.csv_cells import table
from orchestrator.formats.readable import iso
from orchestrator.installation import Installation
from orchestrator.model import Plan
from orchestrator.services.views import Explanation
from orchestrator.store import JobFilter, Tx

OPEN = ("queued", "starting", "running", "migrating", "pausing", "paused", "cancelling")
MOST = 200


@dataclass(frozen=True, slots=True)
class Decided:
    """A summary of a decision about a job. Amounts are in nano-USD."""

    plan_id: str
    at_ms: int
    action: str
    offer_id: str | None
    reason: str
    cost_nano_usd: int | None
    finish_at_ms: int | None
    would_move_below_nano_usd_per_hour: int | None
    kept_up_to_nano_usd_per_hour: int | None


@dataclass(frozen=True, slots=True)
class JobDecision:
    """An open job, its latest decision and the previous one; None: there is none."""

    job_id: str
    job_name: str
    project: str
    state: str
    now: Decided | None
    before: Decided | None

    @property
    def differs(self) -> bool:
        """Whether the latest decision chose another offer than the previous one."""
        return self.now is not None and self.before is not None and self.now.offer_id != self.before.offer_id


@dataclass(frozen=True, slots=True)
class PlanInForce:
    """The decisions about open jobs, newest first: at most MOST unless all were requested; `left_out` is the number of
    further jobs."""

    kind: ClassVar[str] = "plan-in-force"

    at_ms: int
    jobs: tuple[JobDecision, ...]
    left_out: int
    simulated: bool


def plan_in_force(installation: Installation, *, every: bool = False) -> PlanInForce:
    """The latest decision about each of the MOST newest open jobs, or with `every` about each open job."""
    with installation.store.read() as tx:
        ids, count = tx.job_ids_page(JobFilter(OPEN), "newest", None if every else MOST, 0)
        made = []
        for job in tx.outlines_of(ids):
            plans = _plans(tx, job.id)
            now, before = (_decided(each) for each in ([*reversed(plans), None, None])[:2])
            made.append(JobDecision(job.id, job.name, job.project, job.state, now, before))
    made.sort(key=lambda each: (-(each.now.at_ms if each.now is not None else 0), each.job_id))
    return PlanInForce(installation.clock.now_ms(), tuple(made), count - len(made), installation.simulated)


def choices_csv(view: Explanation) -> str:
    """CSV with a row per offer shown by the decisions of a plan, in exact nano-USD."""
    columns = (
        "job_id", "job", "role", "offer_id", "nano_usd_per_hour", "price_age_s", "nano_usd_per_step", "duration_s",
        "cost_nano_usd", "cost_low_nano_usd", "cost_high_nano_usd", "reason",
    )  # fmt: skip
    rows = (
        (of.job_id, of.name, *(getattr(each, name) for name in columns[2:]))
        for of in view.decisions
        for each in of.choices
    )
    return table(columns, rows)


def decisions_csv(view: PlanInForce) -> str:
    """CSV with a row per open job."""
    columns = (
        "job_id",
        "job",
        "state",
        "plan_id",
        "decided",
        "action",
        "offer_id",
        "cost_nano_usd",
        "before",
        "reason",
    )
    rows = (
        (
            each.job_id,
            each.job_name,
            each.state,
            *(
                (None,) * 5
                if each.now is None
                else (
                    each.now.plan_id,
                    iso(each.now.at_ms),
                    each.now.action,
                    each.now.offer_id,
                    each.now.cost_nano_usd,
                )
            ),
            None if each.before is None else each.before.offer_id,
            "" if each.now is None else each.now.reason,
        )
        for each in view.jobs
    )
    return table(columns, rows)


def _plans(tx: Tx, job_id: str) -> list[Plan]:
    try:
        return [each for each in tx.plans_about(job_id) if each.placements]
    except RowError:
        return []


def _decided(plan: Plan | None) -> Decided | None:
    if plan is None:
        return None
    of = plan.placements[0]
    return Decided(
        plan.id,
        plan.at_ms,
        of.action,
        of.offer_id,
        of.reason,
        of.cost_nano_usd,
        of.finish_at_ms,
        of.would_move_below_nano_usd_per_hour,
        of.kept_up_to_nano_usd_per_hour,
    )
