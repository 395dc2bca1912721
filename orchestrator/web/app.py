"""The application: the pages, security headers that restrict browsers, and a page for every error."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any, get_origin

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import JSONResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.errors import NotFoundError, StoreError, StoreVersionError, TradewindError, UsageError
from orchestrator.formats.mistakes import in_words
from orchestrator.web.actions import COOKIE, same
from orchestrator.web.routes import actions, costs, frame, job, jobs, live, market, overview, work
from orchestrator.web.site import Site
from providers.clock import SystemClock

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
"""Content Security Policy: only our own scripts and style sheets; style attributes place the marks of charts."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_ERROR = {
    "type": "object",
    "required": ["schema", "error"],
    "properties": {
        "schema": {"const": "tradewind/error/v1"},
        "error": {
            "type": "object",
            "required": ["message", "hint"],
            "properties": {"message": {"type": "string"}, "hint": {"type": "string"}},
        },
    },
}
_PROBLEMS = {400: "invalid", 404: "not found", 409: "not possible", 422: "invalid", 503: "the store does not answer"}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"description": description, "content": {"application/json": {"schema": _ERROR}}}
    for status, description in _PROBLEMS.items()
}
"""The error responses of JSON and CSV addresses, for OpenAPI."""
LOOPBACK = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]*)?", re.IGNORECASE)
LEAST_COMPRESSED_BYTES = 800
log = logging.getLogger("tradewind.dashboard")


def create_app(site: Site) -> FastAPI:
    """The dashboard of a site."""
    app = FastAPI(
        title="Tradewind dashboard",
        version=version("tradewind"),
        docs_url=None,
        redoc_url=None,
        responses=PROBLEMS,
    )
    app.state.ending = lambda: False
    app.add_middleware(GZipMiddleware, minimum_size=LEAST_COMPRESSED_BYTES, compresslevel=5)
    if site.token:
        app.include_router(actions.routes(site))
    app.include_router(live.routes(site))
    parameters: dict[str, dict[str, bool]] = {}
    app.state.parameters = parameters

    def require_known(request: Request) -> None:
        page = _page_of(request.scope["route"])
        for name in request.query_params:
            if name not in parameters[page]:
                known = f"it has {', '.join(sorted(parameters[page]))}" if parameters[page] else "it has none"
                words = f"{page} has no such parameter; {known}"
                raise RequestValidationError([{"loc": ("query", name), "msg": words}])
        for name, many in parameters[page].items():
            values = request.query_params.getlist(name)
            if len(values) > 1 and not many:
                raise RequestValidationError([{"loc": ("query", name), "msg": "may be given only once"}])
            if any("\0" in value for value in values):
                raise RequestValidationError([{"loc": ("query", name), "msg": "must not contain a NUL character"}])

    readable = [Depends(site.client.store.require_current)]  # the store may be upgraded while the dashboard runs
    readable.append(Depends(require_known))
    for each in (overview, jobs, job, costs, market, work):
        router = each.routes(site)
        for route in router.routes:
            if isinstance(route, APIRoute):
                parameters.setdefault(_page_of(route), {}).update(_parameters(route))
        app.include_router(router, dependencies=readable)
    app.include_router(frame.routes())

    def failed(request: Request, error: Exception) -> Response:
        return _problem(site, request, error)

    app.add_middleware(_Guard, site=site, failed=failed)
    for kind in (TradewindError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, failed)
    return app


def _page_of(route: APIRoute) -> str:
    """The page of a route. The JSON of a page has the same parameters; its CSV has its own, because it is not cut into
    pages."""
    return route.path.removesuffix(".json")


def _parameters(route: APIRoute) -> Iterator[tuple[str, bool]]:
    """The query parameters of a route, and whether each may have several values."""
    for each in route.dependant.query_params:
        model = each.field_info.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            for name, field in model.model_fields.items():
                yield name, get_origin(field.annotation) is list
        else:
            yield each.alias, get_origin(model) is list


class _Guard:
    """Refuses unauthorized requests, and adds the headers to every response, including errors. Answers HEAD with the
    headers of GET.

    It is plain ASGI: Starlette's function-based middleware raises an error if a client disconnects before the response.
    """

    def __init__(self, app: ASGIApp, *, site: Site, failed: Callable[[Request, Exception], Response]) -> None:
        self._app, self._site, self._failed = app, site, failed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        only_headers, ended, begun = scope["method"] == "HEAD", False, False
        if only_headers:
            scope = {**scope, "method": "GET"}
        request = Request(scope)

        async def guarded(message: Message) -> None:
            nonlocal begun, ended
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            elif only_headers:
                if ended:
                    return
                message, ended = {"type": "http.response.body"}, True
            await send(message)

        try:
            await (self._refusal(request) or self._app)(scope, receive, guarded)
        except Exception as error:
            if begun:
                raise
            await self._failed(request, error)(scope, receive, guarded)

    def _refusal(self, request: Request) -> Response | None:
        site = self._site
        if not site.guarded and not LOOPBACK.fullmatch(request.headers.get("host", "")):
            # otherwise a foreign host name that points to this machine would let its pages read ours (DNS rebinding)
            return JSONResponse({"error": "this dashboard is only available as localhost"}, 421)
        if site.guarded and not _open_to_all(request) and not same(request.cookies.get(COOKIE, ""), site.token):
            return RedirectResponse("/enter", 303)
        return None


def _open_to_all(request: Request) -> bool:
    """Whether a request needs no token: the page that asks for it, and its files."""
    return request.url.path == "/enter" or request.url.path.startswith("/static/")


def _problem(site: Site, request: Request, error: Exception) -> Response:
    """An error as a page, or as JSON for JSON and CSV addresses."""
    status, title, what, hint = _problem_of(error)
    if status == 500:
        log.error("%s failed", request.url.path, exc_info=error)
    if request.url.path.endswith((".json", ".csv")):
        return JSONResponse({"schema": "tradewind/error/v1", "error": {"message": what, "hint": hint}}, status)
    ways = [("/", "Overview"), ("/jobs", "Jobs")] if status != 503 else [(str(request.url.path), "Try again")]
    return site.page(
        request,
        "problem.html",
        here="",
        at_ms=SystemClock().now_ms(),
        simulated=False,
        status=status,
        twins=False,
        title=title,
        what=what,
        hint=hint,
        ways=ways,
    )


def _problem_of(error: Exception) -> tuple[int, str, str, str]:
    """(status, title, problem, remedy)."""
    if isinstance(error, NotFoundError):
        return 404, "Not found", _sentence(error), error.hint
    if isinstance(error, StoreVersionError):
        return 503, "A newer store", _sentence(error), error.hint
    if isinstance(error, StoreError):
        return 503, "The store does not answer", _sentence(error), error.hint
    if isinstance(error, UsageError):
        return 400, "This address is not valid", _sentence(error), error.hint
    if isinstance(error, TradewindError):
        return 409, "This is not possible", _sentence(error), error.hint
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        wrong = f"{str(first['loc'][-1])[:80]}: {in_words(first)}"
        return 422, "This address is not valid", wrong, "correct it, or start from the overview"
    if isinstance(error, HTTPException):
        words = "There is no such page." if error.status_code == 404 else str(error.detail)
        return error.status_code, "Not found" if error.status_code == 404 else "Not possible", words, ""
    return (
        500,
        "Something went wrong",
        "This page failed; the log of the dashboard has the details.",
        "try again, or report it",
    )


def _sentence(error: Exception) -> str:
    text = str(error)
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?")) else ".")
