"""Static files and the choice of the theme."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from starlette.responses import FileResponse, RedirectResponse

from orchestrator.errors import NotFoundError
from orchestrator.reports.html.render import STYLE
from orchestrator.web.page_frame import static_file

FILES = {
    STYLE.name: "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "app.js": "text/javascript; charset=utf-8",
    "charts.js": "text/javascript; charset=utf-8",
    "vendor/htmx.min.js": "text/javascript; charset=utf-8",
    "vendor/uplot.min.js": "text/javascript; charset=utf-8",
    "vendor/uplot.min.css": "text/css; charset=utf-8",
}
"""All files that are served, with their types; other names are rejected."""
YEAR_S = 31_536_000


def routes() -> APIRouter:
    """`/static/NAME`, `/theme/NAME`."""
    router = APIRouter(include_in_schema=False)

    @router.get("/static/{name:path}")
    def static(name: str) -> Response:
        if name not in FILES or not static_file(name).is_file():
            raise NotFoundError("unknown file")
        headers = {"Cache-Control": f"public, max-age={YEAR_S}, immutable"}
        return FileResponse(static_file(name), media_type=FILES[name], headers=headers)

    @router.get("/theme/{name}")
    def theme(name: Literal["light", "dark"], next: Annotated[str, Query(max_length=2000)] = "/") -> Response:
        here = next if local(next) else "/"
        answer = RedirectResponse(here, 303)
        answer.set_cookie("theme", name, max_age=YEAR_S, httponly=True, samesite="strict")
        return answer

    return router


def local(path: str) -> bool:
    """Whether a path leads to this site: `//host` and `/\\host` would lead elsewhere."""
    return path.startswith("/") and path[1:2] not in ("/", "\\") and path.isprintable() and path.isascii()
