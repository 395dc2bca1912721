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


def to_json(view: View) -> dict[str, Any]:
    """A view as JSON types, with its schema; money is integer nano-USD, instants are epoch milliseconds."""
    document: dict[str, Any] = json.loads(codec_of(type(view)).dumps(view))
    return document
