"""Lists of a cloud's own names, such as regions. Functions raise ValueError."""

from __future__ import annotations

import re


def read_names(value: object, form: str, what: str) -> tuple[str, ...]:
    """A list of names that match `form`, or the same as comma-separated text."""
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not items or not all(isinstance(item, str) for item in items):
        raise ValueError(f"must be a list of {what}")
    names = tuple(dict.fromkeys(item.strip() for item in items))
    if wrong := [name for name in names if not re.fullmatch(form, name)]:
        raise ValueError(f"must be a list of {what}; {wrong[0]!r} is not valid")
    return names
