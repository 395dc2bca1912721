"""Renders pages from templates. Names, messages and all other text of users is escaped by the template engine, also its
hidden characters."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from orchestrator.formats.hidden import visible
from orchestrator.reports.html import figures

if TYPE_CHECKING:
    from jinja2 import Environment

FOLDER = Path(__file__).parent
STYLE = FOLDER / "dashboard.css"


@cache
def environment() -> Environment:
    """The templates, with the filters of `words`. It is shared: the templates are compiled once."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        finalize=_visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        name: getattr(figures, name)
        for name in (
            "money",
            "money_text",
            "price",
            "instant",
            "utc_day",
            "duration",
            "ago",
            "percent",
            "size",
            "number",
            "counted",
            "place",
            "action",
            "machine",
        )
    }
    made.globals["ratio"] = figures.ratio
    made.filters["chart"] = chart
    return made


def _visible(value: object) -> object:
    """What a template prints, without hidden characters. Markup is unchanged."""
    return visible(value, "\t\r\n") if type(value) is str else value


def chart(drawn: str | None) -> Markup:
    """A chart, which is already markup."""
    return Markup("" if drawn is None else drawn)


def render(template: str, **given: Any) -> str:
    """The page of a template with these values."""
    return environment().get_template(template).render(**given)
