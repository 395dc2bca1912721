"""Frozen dataclasses as JSON that people can read too.

Naming decides the form: a field with `nano_usd` in its name gets a readable twin (`cost_nano_usd` and `cost_usd`), an
instant an ISO twin (`at_ms` and `at`). Must not know: any particular view.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from providers.money import format_usd

INSTANTS = ("at_ms", "_from_ms", "_to_ms", "_start_ms", "_end_ms", "since_ms")
"""How the names of instants end; any other field in `_ms` is a duration."""


def iso(at_ms: int) -> str:
    """Epoch ms -> `2026-11-21T10:03:26.882Z`."""
    instant = datetime.fromtimestamp(at_ms // 1000, UTC)
    return f"{instant:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}Z"


def encode(value: object) -> Any:
    """A value made of dataclasses, mappings, sequences, enums and scalars, as JSON types."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        encoded: dict[str, Any] = {}
        for field in dataclasses.fields(value):
            item = getattr(value, field.name)
            encoded[field.name] = encode(item)
            encoded.update(_twin(field.name, item))
        return encoded
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [encode(item) for item in value]
    return value


def _twin(name: str, value: object) -> dict[str, str | None]:
    if value is not None and not isinstance(value, int):
        return {}
    if "nano_usd" in name:
        return {name.replace("nano_usd", "usd"): None if value is None else format_usd(value)}
    if name.endswith(INSTANTS):
        return {name.removesuffix("_ms"): None if value is None else iso(value)}
    return {}
