"""Site: shared by the routes: the client, the options, and the conversion of views to pages, JSON and CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from orchestrator.client import Client
from orchestrator.formats.documents import View, to_json
from orchestrator.reports.html.render import render
from orchestrator.web.page_frame import PageFrame

SIMULATED = "Simulated: prices, costs and times come from a market on this machine. No real money was spent."
GENERATED = (
    "Simulated: a generated fleet for exploring the dashboard. These jobs never ran, and no real money was spent."
)
THEMES = ("light", "dark")


@dataclass(frozen=True)
class Site:
    """One dashboard. `demo`: it shows the generated fleet. `token`: required for actions (if it `acts`), and for
    reading if other machines can reach the dashboard (`guarded`); "" if there is none."""

    client: Client
    demo: bool = False
    token: str = ""
    guarded: bool = False
    acts: bool = False

    @property
    def may_act(self) -> bool:
        """Whether jobs can be paused, resumed and cancelled from the pages."""
        return self.acts and bool(self.token)

    def page(
        self,
        request: Request,
        template: str,
        *,
        here: str,
        at_ms: int,
        simulated: bool,
        command: str = "",
        status: int = 200,
        twins: bool = True,
        message: str = "",
        **given: Any,
    ) -> HTMLResponse:
        """The page of a template."""
        theme = request.cookies.get("theme", "")
        query = f"?{request.url.query}" if request.url.query else ""
        path = request.url.path

        def twin(form: str) -> str:
            if form != "csv":
                return f"{_stem(path)}.{form}{query}"
            known = request.app.state.parameters[f"{_stem(request.scope['route'].path)}.csv"]
            kept = [(name, value) for name, value in request.query_params.multi_items() if name in known]
            return f"{_stem(path)}.csv" + (f"?{urlencode(kept)}" if kept else "")

        look = PageFrame(
            here=here,
            path=path + query,
            at_ms=at_ms,
            theme=theme if theme in THEMES else "",
            simulated=GENERATED if self.demo else SIMULATED if simulated else "",
            command=command,
            message=message,
            live=not self.demo and status == 200,
            twin=twin if twins else None,
        )
        return HTMLResponse(render(template, look=look, site=self, **given), status)


def _stem(path: str) -> str:
    """The path of a page's JSON and CSV, without its suffix."""
    return "/overview" if path == "/" else path


def json_twin(view: View) -> JSONResponse:
    """A view as its JSON document: exact amounts in nano-USD."""
    return JSONResponse(to_json(view), headers={"Cache-Control": "no-store"})


class Csv(Response):
    """A table as CSV."""

    media_type = "text/csv"


def csv_twin(text: str | Iterable[str], name: str) -> Csv:
    """A table as CSV, under a fixed file name."""
    body = text if isinstance(text, str) else "".join(text)
    headers = {"Content-Disposition": f'attachment; filename="tradewind-{name}.csv"', "Cache-Control": "no-store"}
    return Csv(body, headers=headers)


Reader = Callable[..., Any]
