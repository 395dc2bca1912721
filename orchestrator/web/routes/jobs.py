"""The list of jobs."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from fastapi import APIRouter, Query, Request, Response

from orchestrator.model import TERMINAL, JobState
from orchestrator.reports.job_list import ROWS, JobTable, jobs_csv
from orchestrator.store import JobFilter
from orchestrator.web.page_frame import address, command
from orchestrator.web.site import Csv, Site, csv_twin, json_twin

State = Literal["", "open", "ended", JobState]
STATES = tuple((name, name or "any") for name in get_args(State))
ENDED = tuple(name for name in get_args(JobState) if name in TERMINAL)
GROUPED = {"open": tuple(name for name in get_args(JobState) if name not in TERMINAL), "ended": ENDED}
MOST_SKIPPED = 10_000_000

Text = Annotated[str, Query(max_length=200)]
Skip = Annotated[int, Query(ge=0, le=MOST_SKIPPED)]
Sort = Literal["newest", "oldest", "cost", "name"]


def routes(site: Site) -> APIRouter:
    """`/jobs` and its twins."""
    router = APIRouter()

    def read(q: str, state: State, project: str, group: str, sort: Sort, skip: int, limit: int | None) -> JobTable:
        states = GROUPED.get(state, (state,) if state else ())
        wanted = JobFilter(states=states, project=project or None, text=q, group=group or None)
        return site.client.reports.jobs(wanted, sort=sort, skip=skip, limit=limit)

    @router.get("/jobs", include_in_schema=False)
    def page(
        request: Request,
        q: Text = "",
        state: State = "",
        project: Text = "",
        group: Text = "",
        sort: Sort = "newest",
        skip: Skip = 0,
    ) -> Response:
        view = read(q, state, project, group, sort, skip, ROWS)

        def page_url(to: int) -> str:
            return address("/jobs", q=q, state=state, project=project, group=group, sort=sort, skip=to or None)

        return site.page(
            request,
            "jobs.html",
            here="/jobs",
            at_ms=view.at_ms,
            simulated=view.simulated,
            command=_command(q, state, project, group),
            view=view,
            q=q,
            state=state,
            project=project,
            group=group,
            sort=sort,
            size=ROWS,
            state_choices=STATES,
            projects=site.client.reports.projects(),
            page_url=page_url,
            previous=max(0, min(skip - ROWS, (view.count - 1) // ROWS * ROWS)),
        )

    @router.get("/jobs.json")
    def as_json(
        q: Text = "", state: State = "", project: Text = "", group: Text = "", sort: Sort = "newest", skip: Skip = 0
    ) -> Response:
        return json_twin(read(q, state, project, group, sort, skip, ROWS))

    @router.get("/jobs.csv", response_class=Csv)
    def as_csv(
        q: Text = "", state: State = "", project: Text = "", group: Text = "", sort: Sort = "newest"
    ) -> Response:
        return csv_twin(jobs_csv(read(q, state, project, group, sort, 0, None)), "jobs")

    return router


def _command(q: str, state: State, project: str, group: str) -> str:
    """The command that lists the same jobs; empty for filters that the command does not have."""
    if q or state not in ("", "open"):
        return ""
    return command("queue", *([] if state else ["--all"]), project=project, group=group)
