"""The market of a kind of GPU, and the cheapest frontier of all kinds."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse

from orchestrator.formats.readable import iso
from orchestrator.reports.frontier import FrontierView, frontier_csv
from orchestrator.reports.html.charts.market import cheapest, drawable, frontier, heat, history
from orchestrator.reports.market import UNITS, MarketView, Unit, market_csv
from orchestrator.reports.periods import USUAL_DAYS
from orchestrator.store import JobFilter
from orchestrator.web.page_frame import address, command
from orchestrator.web.site import Csv, Site, csv_twin, json_twin

Text = Annotated[str | None, Field(max_length=200)]
Time = Annotated[str | None, Field(max_length=40, description="Such as 30d or 2026-11-21")]
Capacity = Literal["", "spot", "on-demand"]
OPEN = ("running", "migrating", "starting", "queued")
JOBS_OFFERED = 30
SPOT = {"": None, "spot": True, "on-demand": False}


class Machines(BaseModel):
    """The query of `/market/frontier` and its twins."""

    job: Text = None
    cloud: Text = None
    capacity: Capacity = ""


class Prices(Machines):
    """The query of `/market` and its twins."""

    gpu: Text = None
    unit: Unit = "gpu"
    offer: Annotated[list[str], Field(max_length=8)] = []
    since: Time = None
    until: Time = None


def routes(site: Site) -> APIRouter:
    """`/market` and `/market/frontier` with their twins, and `/market/series.json`: detailed prices of a period."""
    router = APIRouter()

    def choices(asked: Machines) -> dict[str, Any]:
        """The choices in the forms of both pages, and the selected values."""
        return {
            "jobs": site.client.reports.jobs(JobFilter(OPEN), limit=JOBS_OFFERED).jobs,
            "clouds": site.client.reports.clouds(),
            "cloud": asked.cloud or "",
            "capacity": asked.capacity,
        }

    def read(asked: Prices, *, every: bool = False) -> MarketView:
        return site.client.reports.market(
            asked.gpu or None,
            unit="gpu" if asked.unit == "steps" and not asked.job else asked.unit,
            job=asked.job or None,
            cloud=asked.cloud or None,
            spot=SPOT[asked.capacity],
            offers=asked.offer,
            since=asked.since or None,
            until=asked.until or None,
            every=every,
        )

    @router.get("/market", include_in_schema=False)
    def page(request: Request, asked: Annotated[Prices, Query()]) -> Response:
        view = read(asked)
        cloud, capacity = asked.cloud, asked.capacity
        since = asked.since or (iso(view.from_ms) if asked.until else f"{USUAL_DAYS}d")
        kept = {
            "gpu": view.gpu,
            "unit": view.unit,
            "job": view.job_id,
            "cloud": cloud,
            "capacity": capacity,
            "since": since,
            "until": asked.until,
        }
        drawn = [each.offer_id for each in view.series]
        kind = [f"--{capacity}"] if capacity else []
        return site.page(
            request,
            "market.html",
            here="/market",
            at_ms=view.at_ms,
            simulated=view.simulated,
            view=view,
            unit=UNITS[view.unit],
            history=history(view),
            heat=heat(view.heat, UNITS[view.unit]),
            cheapest=cheapest(view.heat, UNITS[view.unit]),
            **choices(asked),
            since=since,
            drawn=drawn,
            kept=[(name, value) for name, value in kept.items() if value],
            series_url=address("/market/series.json", **kept) + "".join(f"&offer={name}" for name in drawn),
            frontier_url=address("/market/frontier", job=view.job_id, cloud=cloud, capacity=capacity),
            cli=command("prices", "history", *kind, gpu=view.gpu, provider=cloud, since=since) if view.gpu else "",
        )

    @router.get("/market.json")
    def as_json(asked: Annotated[Prices, Query()]) -> Response:
        return json_twin(read(asked))

    @router.get("/market.csv", response_class=Csv)
    def as_csv(asked: Annotated[Prices, Query()]) -> Response:
        return csv_twin(market_csv(read(asked, every=True)), "market")

    @router.get("/market/series.json")
    def series(asked: Annotated[Prices, Query()]) -> Response:
        return JSONResponse(drawable(read(asked)))

    def machines(asked: Machines) -> FrontierView:
        return site.client.reports.frontier(asked.job or None, cloud=asked.cloud or None, spot=SPOT[asked.capacity])

    @router.get("/market/frontier", include_in_schema=False)
    def frontier_page(request: Request, asked: Annotated[Machines, Query()]) -> Response:
        view = machines(asked)
        return site.page(
            request,
            "frontier.html",
            here="/market",
            at_ms=view.at_ms,
            simulated=view.simulated,
            view=view,
            unit=UNITS[view.speed_of],
            drawn=frontier(view),
            **choices(asked),
        )

    @router.get("/market/frontier.json")
    def frontier_json(asked: Annotated[Machines, Query()]) -> Response:
        return json_twin(machines(asked))

    @router.get("/market/frontier.csv", response_class=Csv)
    def frontier_as_csv(asked: Annotated[Machines, Query()]) -> Response:
        return csv_twin(frontier_csv(machines(asked)), "frontier")

    return router
