"""Costs by group, and the ledger behind them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from orchestrator.reports.costs import GROUPS, CostGroup, CostRow, CostView, EntryPage, costs_csv
from orchestrator.reports.entries_csv import entries_csv
from orchestrator.reports.html.charts.costs import by_day
from orchestrator.reports.periods import month_named, months_around, period_of
from orchestrator.store import CostFilter
from orchestrator.web.look import address
from orchestrator.web.site import Site, csv_twin, json_twin

Text = Annotated[str | None, Query(max_length=200)]
Time = Annotated[str | None, Query(max_length=40, description="Such as 30d or 2026-11-21")]
EXPORTED = 10_000
NARROWING = {"project": "project", "owner": "owner", "kind": "kind", "cloud": "cloud"}


def routes(site: Site) -> APIRouter:
    """`/costs`, `/ledger` and their twins."""
    router = APIRouter()

    def read(
        by: CostGroup = "project",
        month: Text = None,
        since: Time = None,
        until: Time = None,
        project: Text = None,
        owner: Text = None,
        kind: Text = None,
        cloud: Text = None,
    ) -> tuple[CostView, dict[str, str | None]]:
        only = CostFilter(project=project or None, owner=owner or None, kind=kind or None, provider=cloud or None)
        view = site.client.reports.costs(by, month=month or None, since=since or None, until=until or None, only=only)
        given = {"month": month, "since": since, "until": until}
        return view, {**given, "project": project, "owner": owner, "kind": kind, "cloud": cloud}

    def books(
        month: Text = None,
        project: Text = None,
        owner: Text = None,
        kind: Text = None,
        cloud: Text = None,
        job: Text = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> EntryPage:
        job_id = site.client.jobs.get(job).id if job else None
        only = CostFilter(
            project=project or None, owner=owner or None, kind=kind or None, provider=cloud or None, job_id=job_id
        )
        return site.client.reports.ledger(month=month or None, only=only, limit=limit, cursor=cursor)

    @router.get("/costs", include_in_schema=False)
    def page(
        request: Request,
        by: CostGroup = "project",
        month: Text = None,
        since: Time = None,
        until: Time = None,
        project: Text = None,
        owner: Text = None,
        kind: Text = None,
        cloud: Text = None,
    ) -> Response:
        view, given = read(by, month, since, until, project, owner, kind, cloud)
        named = "" if since or until else month_named(view.from_ms)

        def url(**changed: str | None) -> str:
            return address("/costs", **{"by": by, **given, **changed})

        def row_url(row: CostRow) -> str:
            if by == "job":
                return f"/jobs/{row.key}"
            if by in NARROWING:
                return url(**{by: row.key, "by": "job"})
            if by == "month":
                return url(month=row.key, by="project", since=None, until=None)
            return address("/ledger", month=named, project=project, owner=owner, kind=kind, cloud=cloud)

        option = period_of(view.at_ms, month=named or None, since=since or None, until=until or None).argument
        narrowed = [(name, value) for name, value in given.items() if name in NARROWING and value]
        extra = "".join(f" --{name} {value}" for name, value in narrowed if name in ("project", "cloud"))
        return site.page(
            request,
            "costs.html",
            here="/costs",
            at_ms=view.at_ms,
            simulated=view.simulated,
            view=view,
            by_day=by_day(view),
            groups=GROUPS,
            compares=by not in ("day", "month"),
            months=_months(view, named),
            month=named,
            url=url,
            row_url=row_url,
            filters=narrowed,
            cli=f"tradewind costs --by {by} {option}{extra}".strip(),
            ledger_url=address("/ledger", month=named, project=project, owner=owner, kind=kind, cloud=cloud),
        )

    @router.get("/costs.json")
    def as_json(
        by: CostGroup = "project",
        month: Text = None,
        since: Time = None,
        until: Time = None,
        project: Text = None,
        owner: Text = None,
        kind: Text = None,
        cloud: Text = None,
    ) -> Response:
        return json_twin(read(by, month, since, until, project, owner, kind, cloud)[0])

    @router.get("/costs.csv")
    def as_csv(
        by: CostGroup = "project",
        month: Text = None,
        since: Time = None,
        until: Time = None,
        project: Text = None,
        owner: Text = None,
        kind: Text = None,
        cloud: Text = None,
    ) -> Response:
        return csv_twin(costs_csv(read(by, month, since, until, project, owner, kind, cloud)[0]), "costs")

    @router.get("/ledger", include_in_schema=False)
    def ledger(
        request: Request,
        month: Text = None,
        project: Text = None,
        owner: Text = None,
        kind: Text = None,
        cloud: Text = None,
        job: Text = None,
        cursor: Annotated[str | None, Query(max_length=3000)] = None,
    ) -> Response:
        view = books(month, project, owner, kind, cloud, job, 100, cursor or None)
        given = {"month": month, "project": project, "owner": owner, "kind": kind, "cloud": cloud, "job": job}
        more = None if view.next_cursor is None else address("/ledger", **given, cursor=view.next_cursor)
        return site.page(
            request,
            "ledger.html",
            here="/costs",
            at_ms=site.client.reports.now_ms,
            simulated=site.client.reports.simulated,
            view=view,
            given={name: value or "" for name, value in given.items()},
            period=month,
            month=month or "",
            projects=site.client.reports.projects(),
            kinds=site.client.reports.kinds(),
            names=site.client.reports.names(each.job_id for each in view.entries),
            next_url=more,
        )

    @router.get("/ledger.json")
    def ledger_json(
        month: Text = None,
        project: Text = None,
        owner: Text = None,
        kind: Text = None,
        cloud: Text = None,
        job: Text = None,
        limit: Annotated[int, Query(ge=1, le=EXPORTED)] = 100,
        cursor: Annotated[str | None, Query(max_length=3000)] = None,
    ) -> Response:
        return json_twin(books(month, project, owner, kind, cloud, job, limit, cursor or None))

    @router.get("/ledger.csv")
    def ledger_csv(
        month: Text = None,
        project: Text = None,
        owner: Text = None,
        kind: Text = None,
        cloud: Text = None,
        job: Text = None,
    ) -> Response:
        parts: list[str] = []
        cursor: str | None = None
        while True:
            view = books(month, project, owner, kind, cloud, job, EXPORTED, cursor)
            text = entries_csv(view.entries)
            parts.append(text if not parts else text.partition("\n")[2])
            cursor = view.next_cursor
            if cursor is None:
                return csv_twin(parts, "ledger")

    return router


def _months(view: CostView, named: str) -> list[tuple[str, str]]:
    """The month and those around it."""
    here = named or month_named(view.at_ms)
    earlier, later = months_around(view.at_ms, here)
    return [(name, name) for name in (earlier, here, later) if name is not None]
