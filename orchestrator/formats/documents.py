"""Documents: views as JSON with a schema. Plan files are read back from it."""

from __future__ import annotations

import json
from typing import Any, ClassVar, Protocol, TypeVar

from orchestrator.formats.codec import Codec

SCHEMA_VERSION = 1


class View(Protocol):
    """A dataclass with a `kind`, the name of its document type."""

    kind: ClassVar[str]


V = TypeVar("V", bound=View)


def codec_of(view: type[V]) -> Codec[V]:
    """The codec of a view, with the schema `tradewind/<kind>/v<version>`."""
    return Codec(view, f"tradewind/{view.kind}/v{SCHEMA_VERSION}")


def to_json(view: View) -> dict[str, Any]:
    """A view as JSON types, with its schema. Money is in integer nano-USD, times are in epoch ms. Raises CodecError."""
    document: dict[str, Any] = json.loads(codec_of(type(view)).dumps(view))
    return document
