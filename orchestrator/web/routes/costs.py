"""Costs by group, and the ledger behind them."""

from __future__ import annotations

from typing import Annotated, Self

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from orchestrator.formats.readable import iso, unique_labels
from orchestrator.reports.costs import GROUPS, CostGroup, CostRow, CostView, EntryPage, costs_csv
from orchestrator.reports.entries_csv import entries_csv
from orchestrator.reports.html.charts.costs import by_day
from orchestrator.reports.periods import DAY_MS, month_named, months_around, period_of
from orchestrator.store import CostFilter
from orchestrator.web.page_frame import address, command
from orchestrator.web.site import Csv, Site, csv_twin, json_twin

Text = Annotated[str | None, Field(max_length=200)]
Time = Annotated[str | None, Field(max_length=40, description="Such as 30d or 2026-11-21")]
EXPORTED = 10_000
SHOWN = 50
"""The most groups on the page; JSON and CSV have more."""
BY_TIME = ("day", "month")
NARROWING = {"project": "project", "owner": "owner", "kind": "kind", "cloud": "cloud"}


class Narrowed(BaseModel):
    """Filters for costs."""

    project: Text = None
    owner: Text = None
    kind: Text = None
    cloud: Text = None

    def only(self, job_id: str | None = None) -> CostFilter:
        """The filter for the store; empty form fields are ignored."""
        project, owner, kind, cloud = (each or None for each in (self.project, self.owner, self.kind, self.cloud))
        return CostFilter(project=project, owner=owner, kind=kind, provider=cloud, job_id=job_id)


class Costs(Narrowed):
    """The query of `/costs` and its twins."""

    by: CostGroup = "project"
    month: Text = None
    since: Time = None
    until: Time = None


class Books(Narrowed):
    """The query of `/ledger.csv`, and the common part of all ledger queries."""

    month: Text = None
    since: Time = None
    until: Time = None
    job: Text = None

    def at(self, now_ms: int) -> Self:
        """The same with fixed times, so that all pages of the ledger have the same period."""
        if not (self.since or self.until):
            return self
        fixed = period_of(now_ms, month=self.month or None, since=self.since or None, until=self.until or None)
        return self.model_copy(update={"since": iso(fixed.from_ms), "until": iso(fixed.until_ms)})


class BooksPage(Books):
    """The query of `/ledger`."""

    cursor: Annotated[str | None, Field(max_length=3000)] = None


class BooksRows(BooksPage):
    """The query of `/ledger.json`."""

    limit: Annotated[int, Field(ge=1, le=EXPORTED)] = 100


def routes(site: Site) -> APIRouter:
    """`/costs`, `/ledger` and their twins."""
    router = APIRouter()

    def read(asked: Costs, *, every: bool = False) -> CostView:
        return site.client.reports.costs(
            asked.by,
            month=asked.month or None,
            since=asked.since or None,
            until=asked.until or None,
            only=asked.only(),
            every=every,
        )

    def books(asked: Books, limit: int, cursor: str | None) -> EntryPage:
        job_id = site.client.jobs.get(asked.job).id if asked.job else None
        return site.client.reports.ledger(
            month=asked.month or None,
            since=asked.since or None,
            until=asked.until or None,
            only=asked.only(job_id),
            limit=limit,
            cursor=cursor or None,
        )

    @router.get("/costs", include_in_schema=False)
    def page(request: Request, asked: Annotated[Costs, Query()]) -> Response:
        view = read(asked)
        if asked.by not in BY_TIME:
            view = view.shortened(SHOWN)
        by, since, until, narrowing = asked.by, asked.since, asked.until, asked.model_dump(include=set(NARROWING))
        given = {"month": asked.month, "since": since, "until": until, **narrowing}
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
            return books_of(int(row.key) if by == "day" else None)

        def books_of(day_ms: int | None = None) -> str:
            from_ms, until_ms, when = view.from_ms, view.until_ms, {"month": named}
            if day_ms is not None:  # the first and the last day may be partial
                from_ms, until_ms = max(from_ms, day_ms), min(until_ms, day_ms + DAY_MS)
            if day_ms is not None or not named:
                when = {"since": iso(from_ms), "until": iso(until_ms)}
            return address("/ledger", **when, **narrowing)

        narrowed = {name: value for name, value in narrowing.items() if value}
        period = {"since": since, "until": until} if since or until else {"month": named}
        return site.page(
            request,
            "costs.html",
            here="/costs",
            at_ms=view.at_ms,
            simulated=view.simulated,
            view=view,
            names=unique_labels((row.key, row.name) for row in view.rows),
            by_day=by_day(view),
            groups=GROUPS,
            compares=by not in BY_TIME,
            months=_months(view, named),
            month=named,
            url=url,
            row_url=row_url,
            filters=list(narrowed.items()),
            cli=command("costs", "--by", by, **period, **narrowed),
            ledger_url=books_of(),
        )

    @router.get("/costs.json")
    def as_json(asked: Annotated[Costs, Query()]) -> Response:
        return json_twin(read(asked))

    @router.get("/costs.csv", response_class=Csv)
    def as_csv(asked: Annotated[Costs, Query()]) -> Response:
        return csv_twin(costs_csv(read(asked, every=True)), "costs")

    @router.get("/ledger", include_in_schema=False)
    def ledger(request: Request, asked: Annotated[BooksPage, Query()]) -> Response:
        asked = asked.at(site.client.reports.now_ms)
        view = books(asked, 100, asked.cursor)
        given = asked.model_dump(exclude={"cursor"})
        more = None if view.next_cursor is None else address("/ledger", **given, cursor=view.next_cursor)
        return site.page(
            request,
            "ledger.html",
            here="/costs",
            at_ms=site.client.reports.now_ms,
            simulated=site.client.reports.simulated,
            view=view,
            given={name: value or "" for name, value in given.items()},
            period=asked.month or (f"{asked.since[:16]} to {asked.until[:16]}" if asked.since and asked.until else ""),
            month=asked.month or "",
            projects=site.client.reports.projects(),
            kinds=site.client.reports.kinds(),
            clouds=site.client.reports.clouds(),
            names=site.client.reports.names(each.job_id for each in view.entries),
            next_url=more,
        )

    @router.get("/ledger.json")
    def ledger_json(asked: Annotated[BooksRows, Query()]) -> Response:
        return json_twin(books(asked.at(site.client.reports.now_ms), asked.limit, asked.cursor))

    @router.get("/ledger.csv", response_class=Csv)
    def ledger_csv(asked: Annotated[Books, Query()]) -> Response:
        asked = asked.at(site.client.reports.now_ms)
        parts: list[str] = []
        cursor: str | None = None
        while True:
            view = books(asked, EXPORTED, cursor)
            text = entries_csv(view.entries)
            parts.append(text if not parts else text.partition("\n")[2])
            cursor = view.next_cursor
            if cursor is None:
                return csv_twin(parts, "ledger")

    return router


def _months(view: CostView, named: str) -> list[tuple[str, str]]:
    """The month, the one before it and the one after it."""
    here = named or month_named(view.at_ms)
    earlier, later = months_around(view.at_ms, here)
    return [(name, name) for name in (earlier, here, later) if name is not None]
