"""Entering the token, and the orders that it allows: pause, resume and cancel a job."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import parse_qs

from fastapi import APIRouter, Path, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse

from orchestrator.errors import NotFoundError, UsageError
from orchestrator.services.views import Accepted
from orchestrator.web.actions import COOKIE, proof_of, same
from orchestrator.web.look import address
from orchestrator.web.site import Site

Action = Literal["pause", "resume", "cancel"]
LARGEST_FORM_BYTES = 10_000


def routes(site: Site) -> APIRouter:
    """`/enter` and `/jobs/ID/act`."""
    router = APIRouter(include_in_schema=False)
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
    async def act(request: Request, job_id: Annotated[str, Path(max_length=200)]) -> Response:
        if not site.may_act:
            raise UsageError("this dashboard only reads", hint="start it with: tradewind dashboard --allow-actions")
        form = await _form(request)
        if not same(request.cookies.get(COOKIE, ""), site.token):
            return RedirectResponse("/enter", 303)
        if not same(form.get("csrf", ""), proof_of(site.token)):
            raise UsageError(
                "this order did not come from a page of this dashboard", hint="reload the page, and try again"
            )
        order = orders.get(form.get("action", ""))
        if order is None:
            raise NotFoundError("there is no such action", hint="one of pause, resume, cancel")
        accepted: Accepted = await run_in_threadpool(order, job_id)
        said = accepted.message + (
            "" if accepted.control_plane else "; no control plane runs: the next one carries it out"
        )
        return RedirectResponse(address(f"/jobs/{accepted.job_ids[0]}", said=said), 303)

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


async def _form(request: Request) -> dict[str, str]:
    """The fields of a form. Raises UsageError."""
    body = await request.body()
    if len(body) > LARGEST_FORM_BYTES:
        raise UsageError("this form is too large", hint="send what the page has")
    return {name: values[-1] for name, values in parse_qs(body.decode("ascii", "replace")).items()}
