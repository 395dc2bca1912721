"""Enters the token, and the actions that it allows: pause, resume and cancel a job; make, review and apply a plan."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Annotated
from urllib.parse import parse_qs

from fastapi import APIRouter, Path, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse

from orchestrator.errors import NotFoundError, UsageError
from orchestrator.services.views import Accepted, PlanView
from orchestrator.web.actions import COOKIE, proof_of, same, sealed
from orchestrator.web.page_frame import address
from orchestrator.web.site import Site

Id = Annotated[str, Path(max_length=200)]
LARGEST_FORM_BYTES = 10_000
REVIEWED = 20
"""The most plans that can be applied: the newest made on this dashboard. Only this process keeps them."""


def routes(site: Site) -> APIRouter:
    """`/enter`, `/jobs/ID/act`, `/plans/new` and `/plans/ID/review`."""
    router = APIRouter(include_in_schema=False)
    made: OrderedDict[str, PlanView] = OrderedDict()
    orders = {
        "pause": site.client.jobs.pause,
        "resume": site.client.jobs.resume,
        "cancel": site.client.jobs.cancel,
    }

    @router.get("/enter")
    def ask(request: Request) -> Response:
        return _ask(site, request, wrong=False)

    @router.post("/enter")
    async def enter(request: Request) -> Response:
        form = await _form(request)
        if not same(form.get("token", ""), site.token):
            return _ask(site, request, wrong=True)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(COOKIE, site.token, httponly=True, samesite="strict")
        return answer

    @router.post("/jobs/{job_id}/act")
    async def act(request: Request, job_id: Id) -> Response:
        form = await _order(site, request)
        if form is None:
            return RedirectResponse("/enter", 303)
        order = orders.get(form.get("action", ""))
        if order is None:
            raise NotFoundError("unknown action", hint="one of pause, resume, cancel")
        accepted = await run_in_threadpool(order, job_id)
        return RedirectResponse(address(f"/jobs/{accepted.job_ids[0]}", said=_said(accepted, site.token)), 303)

    @router.post("/plans/new")
    async def plan(request: Request) -> Response:
        if await _order(site, request) is None:
            return RedirectResponse("/enter", 303)
        view = await run_in_threadpool(site.client.plans.create, all_jobs=True)
        made[view.id] = view
        while len(made) > REVIEWED:
            made.popitem(last=False)
        return RedirectResponse(f"/plans/{view.id}/review", 303)

    @router.get("/plans/{plan_id}/review")
    def review(request: Request, plan_id: Id) -> Response:
        view = _kept(made, plan_id)
        return site.page(
            request,
            "review.html",
            here="/plans",
            at_ms=view.at_ms,
            simulated=view.simulated,
            twins=False,
            view=view,
            csrf=proof_of(site.token),
        )

    @router.post("/plans/{plan_id}/review")
    async def apply(request: Request, plan_id: Id) -> Response:
        if await _order(site, request) is None:
            return RedirectResponse("/enter", 303)
        accepted = await run_in_threadpool(site.client.plans.apply, _kept(made, plan_id))
        return RedirectResponse(address("/plans", said=_said(accepted, site.token)), 303)

    return router


def _ask(site: Site, request: Request, *, wrong: bool) -> Response:
    return site.page(
        request,
        "enter.html",
        here="",
        at_ms=site.client.reports.now_ms,
        simulated=False,
        status=403 if wrong else 200,
        twins=False,
        wrong=wrong,
    )


def _kept(made: Mapping[str, PlanView], plan_id: str) -> PlanView:
    """Raises NotFoundError."""
    if (view := made.get(plan_id)) is None:
        raise NotFoundError("this plan is no longer available", hint="make a new one on the page Plans")
    return view


def _said(accepted: Accepted, token: str) -> str:
    text = accepted.message + (
        "" if accepted.control_plane else "; no control plane is running: the next one will carry it out"
    )
    return sealed(text, token)


async def _order(site: Site, request: Request) -> dict[str, str] | None:
    """The fields of the form of an authorized action; None if the token must be entered first. Raises UsageError."""
    if not site.may_act:
        raise UsageError("this dashboard is read-only", hint="start it with: tradewind dashboard --allow-actions")
    form = await _form(request)
    if not same(request.cookies.get(COOKIE, ""), site.token):
        return None
    if not same(form.get("csrf", ""), proof_of(site.token)):
        raise UsageError(
            "this request did not come from a page of this dashboard", hint="reload the page and try again"
        )
    return form


async def _form(request: Request) -> dict[str, str]:
    """The fields of a form. Raises UsageError."""
    body = await request.body()
    if len(body) > LARGEST_FORM_BYTES:
        raise UsageError("this form is too large", hint="use the form of the page")
    return {name: values[-1] for name, values in parse_qs(body.decode("ascii", "replace")).items()}
