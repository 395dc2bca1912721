"""Migrations, plans, policies and health."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from orchestrator.errors import NotFoundError
from orchestrator.reports.backtests import OURS, backtests_csv
from orchestrator.reports.decisions import choices_csv, decisions_csv
from orchestrator.reports.health import health_csv
from orchestrator.reports.html.charts.market import gantt
from orchestrator.reports.moves import moves_csv
from orchestrator.services.views import Explanation
from orchestrator.web.actions import proof_of, unsealed
from orchestrator.web.page_frame import address
from orchestrator.web.site import Csv, Site, csv_twin, json_twin

Text = Annotated[str | None, Query(max_length=200)]
Time = Annotated[str, Query(max_length=40, description="Such as 7d or 2026-11-21")]
PlanId = Annotated[str, Path(max_length=100)]


def routes(site: Site) -> APIRouter:
    """`/migrations`, `/plans`, `/plans/ID`, `/policies`, `/health` and their twins."""
    router = APIRouter()
    reports = site.client.reports

    @router.get("/migrations", include_in_schema=False)
    def migrations(request: Request, job: Text = None, since: Time = "7d", before: Text = None) -> Response:
        view = reports.moves(job or None, since=since, before=before or None)

        def url(**changed: str) -> str:
            return address("/migrations", **{"job": job, "since": since, **changed})

        return site.page(
            request,
            "migrations.html",
            here="/migrations",
            at_ms=view.at_ms,
            simulated=view.simulated,
            view=view,
            gantt=gantt(view),
            since=since,
            job=job or "",
            url=url,
        )

    @router.get("/migrations.json")
    def migrations_json(job: Text = None, since: Time = "7d", before: Text = None) -> Response:
        return json_twin(reports.moves(job or None, since=since, before=before or None))

    @router.get("/migrations.csv", response_class=Csv)
    def migrations_csv(job: Text = None, since: Time = "7d") -> Response:
        return csv_twin(moves_csv(reports.moves(job or None, since=since, every=True)), "migrations")

    @router.get("/plans", include_in_schema=False)
    def plans(request: Request, said: Annotated[str, Query(max_length=2000)] = "") -> Response:
        view = reports.plan_in_force()
        return site.page(
            request,
            "plans.html",
            here="/plans",
            at_ms=view.at_ms,
            simulated=view.simulated,
            view=view,
            message=unsealed(said, site.token) if site.may_act else "",
            csrf=proof_of(site.token) if site.may_act else "",
        )

    @router.get("/plans.json")
    def plans_json() -> Response:
        return json_twin(reports.plan_in_force())

    @router.get("/plans.csv", response_class=Csv)
    def plans_csv() -> Response:
        return csv_twin(decisions_csv(reports.plan_in_force(every=True)), "plans")

    @router.get("/plans/{plan_id}.json")
    def plan_json(plan_id: PlanId) -> Response:
        return json_twin(_plan(plan_id))

    @router.get("/plans/{plan_id}.csv", response_class=Csv)
    def plan_csv(plan_id: PlanId) -> Response:
        return csv_twin(choices_csv(_plan(plan_id)), "plan")

    @router.get("/plans/{plan_id}", include_in_schema=False)
    def plan(request: Request, plan_id: PlanId) -> Response:
        view = _plan(plan_id)
        return site.page(request, "plan.html", here="/plans", at_ms=reports.now_ms, simulated=view.simulated, view=view)

    def _plan(plan_id: str) -> Explanation:
        if not plan_id.startswith("plan_"):
            raise NotFoundError(f"there is no plan {plan_id!r:.60}", hint="see the page Plans")
        return site.client.jobs.explain(plan_id)

    @router.get("/policies", include_in_schema=False)
    def policies(request: Request) -> Response:
        view = reports.backtests()
        return site.page(
            request, "policies.html", here="/policies", at_ms=view.at_ms, simulated=False, view=view, ours=OURS
        )

    @router.get("/policies.json")
    def policies_json() -> Response:
        return json_twin(reports.backtests())

    @router.get("/policies.csv", response_class=Csv)
    def policies_csv() -> Response:
        return csv_twin(backtests_csv(reports.backtests()), "policies")

    @router.get("/health", include_in_schema=False)
    def health(request: Request) -> Response:
        view = reports.health()
        return site.page(
            request,
            "health.html",
            here="/health",
            at_ms=view.at_ms,
            simulated=view.simulated,
            view=view,
            failing=sum(each.error is not None for each in view.prices.regions),
            flagged=sum(sum(each.flags.values()) for each in view.prices.regions),
            names=reports.names(run.job_id for run in view.machines),
        )

    @router.get("/health.json")
    def health_json() -> Response:
        return json_twin(reports.health())

    @router.get("/health.csv", response_class=Csv)
    def as_csv() -> Response:
        return csv_twin(health_csv(reports.health()), "health")

    return router
