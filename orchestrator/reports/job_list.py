"""The list of jobs by filters, page by page, with the figures of `tradewind queue`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from orchestrator.errors import UsageError
from orchestrator.formats.csv_cells import table
from orchestrator.formats.readable import iso
from orchestrator.installation import Installation
from orchestrator.services.jobs.current import job_views
from orchestrator.services.jobs.forecasts import fresh_forecasts
from orchestrator.services.views import JobView
from orchestrator.store import JobFilter, JobSort

ROWS = 50
SORTS = ("newest", "oldest", "cost", "name")


@dataclass(frozen=True, slots=True)
class JobTable:
    """The `count` matching jobs, or a page of them that begins after `skip` jobs. `states` counts all jobs by state."""

    kind: ClassVar[str] = "job-table"

    at_ms: int
    jobs: tuple[JobView, ...]
    count: int
    skip: int
    simulated: bool
    states: Mapping[str, int] = field(default_factory=dict)


def job_table(
    installation: Installation,
    wanted: JobFilter | None = None,
    sort: JobSort = "newest",
    *,
    skip: int = 0,
    limit: int | None = ROWS,
) -> JobTable:
    """The matching jobs in this order (`limit` None: all of them). The group in `wanted` may also be a name. Raises
    UsageError for an unknown order, NotFoundError for an unknown group."""
    if sort not in SORTS:
        raise UsageError(f"{sort!r:.40} is not an order of jobs", hint=f"one of {', '.join(SORTS)}")
    wanted = wanted or JobFilter()
    with installation.store.read() as tx:
        if wanted.group is not None:
            wanted = replace(wanted, group=tx.find_group(wanted.group, wanted.project).id)
        ids, count = tx.job_ids_page(wanted, sort, limit, max(0, skip))
        by_id = {job.id: job for job in tx.outlines_of(ids)}
        chosen = [by_id[job_id] for job_id in ids if job_id in by_id]
        views = job_views(installation, tx, chosen, fresh_forecasts(installation, tx, chosen))
        states = tx.job_state_counts()
    return JobTable(
        installation.clock.now_ms(), views, count, max(0, skip), any(view.simulated for view in views), states
    )


def jobs_csv(view: JobTable) -> str:
    """CSV with a row per job, in exact nano-USD."""
    columns = (
        "job_id", "name", "project", "group",
        "owner", "state", "objective", "submitted", "finished", "steps", "of", "offer_id",
        "paid_nano_usd", "to_go_nano_usd", "budget_nano_usd", "runs", "migrations", "steps_repeated", "note",
    )  # fmt: skip
    rows = (
        (
            each.id,
            each.name,
            each.project,
            each.group,
            each.owner,
            each.state,
            each.objective,
            iso(each.submitted_at_ms),
            None if each.finished_at_ms is None else iso(each.finished_at_ms),
            each.step,
            each.total_steps,
            each.offer_id,
            each.paid_nano_usd,
            None if each.forecast is None else each.forecast.cost_nano_usd,
            each.budget_nano_usd,
            each.runs,
            each.migrations,
            each.steps_repeated,
            each.note,
        )
        for each in view.jobs
    )
    return table(columns, rows)
