"""Column types that mean the same on SQLite and Postgres."""

from __future__ import annotations

import math
from typing import Any

from sqlalchemy import BigInteger, Double, Integer, Text
from sqlalchemy.types import TypeDecorator

Word = Text().with_variant(Text(collation="C"), "postgresql")
"""Text that compares by code point on both: ids, names, states. Never text from outside."""

Number = BigInteger()
"""64-bit integers: instants in ms, bytes, nano-USD."""

Sequence = BigInteger().with_variant(Integer(), "sqlite")
"""Key of an append-only table, incremented by the database: the order of writing."""


class Prose(TypeDecorator[str]):
    """Text from outside (messages, tracebacks). NUL, which Postgres rejects, and lone surrogates, which UTF-8 cannot
    encode, are replaced, so recording an error message never fails."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Any) -> str | None:  # noqa: ARG002
        """The value to store."""
        if value is None:
            return None
        return value.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()


class Measure(TypeDecorator[float]):
    """A measured float. NaN is stored as NULL (unknown), as SQLite does by itself and Postgres does not."""

    impl = Double
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Any) -> float | None:  # noqa: ARG002
        """The value to store."""
        return None if value is None or math.isnan(value) else float(value)
