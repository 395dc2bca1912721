"""Documents: a view as JSON with its schema, exactly; plan files are read back from it."""

from __future__ import annotations

import json
from typing import Any, ClassVar, Protocol, TypeVar

from orchestrator.formats.codec import Codec

SCHEMA_VERSION = 1


class View(Protocol):
    """A dataclass with a `kind`."""

    kind: ClassVar[str]


V = TypeVar("V", bound=View)


def codec_of(view: type[V]) -> Codec[V]:
    """Its documents, of schema `tradewind/<kind>/v<version>`."""
    return Codec(view, f"tradewind/{view.kind}/v{SCHEMA_VERSION}")


def dumps(view: View, *, indent: int | None = None) -> str:
    """A view as JSON text, with its schema; money is integer nano-USD, instants are epoch milliseconds."""
    return codec_of(type(view)).dumps(view, indent=indent)


def to_json(view: View) -> dict[str, Any]:
    """As `dumps`, as JSON types."""
    document: dict[str, Any] = json.loads(dumps(view))
    return document
