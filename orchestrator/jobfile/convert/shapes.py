"""The kinds of values that SkyPilot's and dstack's fields have. Values of other kinds are noted and left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.jobfile.convert.draft import Draft
from orchestrator.jobfile.source.source_map import Loc

Shape = tuple[Callable[[object], bool], str]
"""Whether a value is of the kind, and the message if it is not."""


def _is_text(value: object) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


TEXT: Shape = (_is_text, "is not text")
COUNT: Shape = (
    lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 0,
    "is not a whole number",
)
SPOT: Shape = (lambda value: isinstance(value, bool), "is neither true nor false, so capacity is on_demand")
DURATION: Shape = (lambda value: value is False or _is_text(value), "is not a duration")  # YAML 1.1: off is False
MAPPING: Shape = (lambda value: isinstance(value, dict), "is not a mapping")
LIST: Shape = (lambda value: isinstance(value, list), "is not a list")
MAPPINGS: Shape = (
    lambda value: isinstance(value, list) and all(isinstance(each, dict) for each in value),
    "is not a list of mappings",
)
MAPPING_OR_LIST: Shape = (lambda value: isinstance(value, dict | list), "is neither a mapping nor a list")
MAPPING_OR_TEXT: Shape = (lambda value: isinstance(value, dict | str), "is neither a mapping nor text")
MAPPING_OR_FLAG: Shape = (lambda value: isinstance(value, dict | bool), "is neither a mapping, true nor false")
SPOT_POLICY: Shape = (
    lambda value: value in ("spot", "on-demand", "auto"),
    "is not one of spot, on-demand and auto, so capacity is on_demand",
)


def note_odd_values(draft: Draft, fields: Mapping[str, Any], shapes: Mapping[str, Shape], around: Loc = ()) -> None:
    """Note each of the `fields` whose value is of the wrong kind. Empty fields are ignored."""
    for name, value in fields.items():
        fits, what = shapes.get(name, (lambda _: True, ""))
        if value is not None and not fits(value):
            draft.left_out((*around, name), what)
