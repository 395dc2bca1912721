"""Messages for invalid values of addresses and options: what is expected and what was given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.errors import shortened

_WHOLE = "must be a whole number"
_WORDS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "int_parsing": lambda _: _WHOLE,
    "int_parsing_size": lambda _: "must be a smaller whole number",
    "int_from_float": lambda _: _WHOLE,
    "greater_than_equal": lambda limits: f"must be at least {limits['ge']:,}",
    "less_than_equal": lambda limits: f"must be at most {limits['le']:,}",
    "string_too_long": lambda limits: f"must have at most {limits['max_length']:,} characters",
    "too_long": lambda limits: f"may be given at most {limits['max_length']:,} times",
    "float_parsing": lambda _: "must be a number",
    "finite_number": lambda _: "must be a finite number",
    "bool_parsing": lambda _: "must be true or false",
    "value_error": lambda found: str(found["error"]).rstrip("."),
    "missing": lambda _: "is missing",
}


def in_words(mistake: Mapping[str, Any]) -> str:
    """The message for an error, such as `must be at least 0, not "-1"`. Errors of pydantic are translated; our own
    already have a message."""
    kind, limits, given = mistake.get("type", ""), mistake.get("ctx", {}), mistake.get("input")
    if not kind:
        words = str(mistake["msg"])
    elif kind == "literal_error":
        words = f"must be one of {limits['expected']}"
    else:
        words = _WORDS[kind](limits) if kind in _WORDS else "is not valid"
    echo = "" if kind in ("", "string_too_long", "value_error") or not isinstance(given, str | int | float) else given
    return f'{words}, not "{shortened(str(echo))}"' if echo != "" else words
