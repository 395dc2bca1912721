"""The page of one job."""

from __future__ import annotations

from collections import deque
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from orchestrator.errors import TradewindError
from orchestrator.reports.entries_csv import entries_csv
from orchestrator.reports.html.charts import job as charts
from orchestrator.reports.job_page import JobPage
from orchestrator.services.views import LogLine
from orchestrator.web.actions import proof_of, unsealed
from orchestrator.web.site import Csv, Site, csv_twin, json_twin

LOG_LINES = 80
Ref = Annotated[
    str, Path(min_length=1, max_length=200, description="The id of a job, the beginning of an id, or a name")
]


def routes(site: Site) -> APIRouter:
    """`/jobs/ID` and its twins; the CSV has its ledger entries."""
    router = APIRouter()

    def read(ref: str) -> JobPage:
        return site.client.reports.job(ref)

    @router.get("/jobs/{ref}.json")
    def as_json(ref: Ref) -> Response:
        return json_twin(read(ref))

    @router.get("/jobs/{ref}.csv", response_class=Csv)
    def as_csv(ref: Ref) -> Response:
        return csv_twin(entries_csv(reversed(read(ref).entries)), "job")

    @router.get("/jobs/{ref}", include_in_schema=False)
    def page(request: Request, ref: Ref, said: Annotated[str, Query(max_length=2000)] = "") -> Response:
        view = read(ref)
        log, note = _log(site, view.report.job.id)
        return site.page(
            request,
            "job.html",
            here="/jobs",
            at_ms=view.at_ms,
            simulated=view.simulated,
            command=f"tradewind report {view.report.job.id}",
            view=view,
            facts={each.run_id: each for each in view.facts},
            timeline=charts.timeline(view.report, view.at_ms),
            prices=charts.prices(view),
            loss=charts.loss(view.report),
            speed=charts.speed(view),
            message=unsealed(said, site.token) if site.may_act else "",
            csrf=proof_of(site.token) if site.may_act else "",
            log=log,
            log_note=note,
        )

    return router


def _log(site: Site, job_id: str) -> tuple[list[LogLine], str]:
    """The last lines of a job's log, or why there are none."""
    try:
        return list(deque(site.client.jobs.logs(job_id), LOG_LINES)), ""
    except TradewindError as error:
        return [], str(error)
