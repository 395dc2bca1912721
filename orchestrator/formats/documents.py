"""Documents: a view as JSON with its schema. Loads nothing heavy. Must not know: any view."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from orchestrator.formats.readable import encode

SCHEMA_VERSION = 1


class View(Protocol):
    """A dataclass with a `kind`. One whose values must be read back exactly has `exact`: fields in the store's form."""

    kind: ClassVar[str]


def schema_of(kind: str) -> str:
    """`tradewind/<kind>/v<version>`."""
    return f"tradewind/{kind}/v{SCHEMA_VERSION}"


def to_json(view: View) -> dict[str, Any]:
    """A view as JSON types, with its schema. What a plan document is read back from is in it exactly."""
    exact = getattr(view, "exact", dict)
    return {"schema": schema_of(view.kind), **encode(view), **exact()}
