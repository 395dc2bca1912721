"""The first page."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from orchestrator.formats.csv_cells import table
from orchestrator.reports.html.charts.costs import by_day
from orchestrator.reports.overview import Overview, Saving
from orchestrator.reports.periods import month_named, months_around
from orchestrator.web.site import Csv, Site, csv_twin, json_twin

Month = Annotated[str | None, Query(max_length=20, description="Such as 2026-11 (UTC); without it, this month")]


def routes(site: Site) -> APIRouter:
    """`/`, `/overview.json` and `/overview.csv`."""
    router = APIRouter()

    def read(month: str | None) -> Overview:
        return site.client.reports.overview(month=month or None)

    @router.get("/", include_in_schema=False)
    def page(request: Request, month: Month = None) -> Response:
        view = read(month)
        named = month_named(view.from_ms)
        earlier, later = months_around(view.at_ms, named)
        return site.page(
            request,
            "overview.html",
            here="/",
            at_ms=view.at_ms,
            simulated=view.simulated,
            view=view,
            month=named,
            argument=f"--month {named}",
            earlier=earlier,
            later=later,
            by_day=by_day(view.spent),
            names=site.client.reports.names(each.job_id for each in view.changes.highlights if each.job_id),
        )

    @router.get("/overview.json")
    def as_json(month: Month = None) -> Response:
        return json_twin(read(month))

    @router.get("/overview.csv", response_class=Csv)
    def as_csv(month: Month = None) -> Response:
        columns = [field.name for field in fields(Saving) if field.name != "name"]
        rows = ([getattr(each, name) for name in columns] for each in read(month).savings)
        return csv_twin(table(columns, rows), "overview")

    return router
