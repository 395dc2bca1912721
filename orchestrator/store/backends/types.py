"""Column types that mean the same on SQLite and Postgres."""

from __future__ import annotations

import math
from typing import Any

from sqlalchemy import BigInteger, Double, Integer, Text
from sqlalchemy.types import TypeDecorator

Word = Text().with_variant(Text(collation="C"), "postgresql")
"""Text that compares by code point on both: ids, names, states. Never holds what a stranger wrote."""

Number = BigInteger()
"""64 bits: instants in ms, bytes, nano-USD."""

Sequence = BigInteger().with_variant(Integer(), "sqlite")
"""Key of an append-only table, counted up by the database: the order of writing."""


class Prose(TypeDecorator[str]):
    """Text from outside (messages, tracebacks). NUL, which Postgres refuses, and lone surrogates, which UTF-8 cannot
    carry, are replaced, so that no error text can make the write that records it fail."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Any) -> str | None:  # noqa: ARG002
        if value is None:
            return None
        return value.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()


class Measure(TypeDecorator[float]):
    """A measured float. NaN is stored as unknown (NULL), as SQLite does by itself and Postgres does not."""

    impl = Double
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Any) -> float | None:  # noqa: ARG002
        return None if value is None or math.isnan(value) else float(value)
