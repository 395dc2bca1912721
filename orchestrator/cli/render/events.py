"""Events as text: one line each, with who did it."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.cli.render.table import Column, table
from orchestrator.cli.render.text import Screen, moment
from orchestrator.model import Event
from orchestrator.services.views import EventList

COLUMNS = (Column(""), Column("", 2), Column("", 1), Column("", text=True))  # no heads: batches follow each other


def events(view: EventList, screen: Screen) -> str:
    """The audit trail, oldest first."""
    return "\n".join(event_lines(view.events, screen)) or "no events yet"


def event_lines(found: Sequence[Event], screen: Screen) -> list[str]:
    """One line for each event, folded to the screen."""
    rows = [(moment(event.at_ms), event.kind, event.actor, event.message) for event in found]
    return table(COLUMNS, rows, screen).splitlines() if rows else []
