"""Pages of a listing: the limit and the cursor.

A cursor contains the last row of its page, not a number of rows to skip. So every row that existed when the first page
was read is returned exactly once, even if rows are added in the meantime.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from orchestrator.errors import UsageError
from orchestrator.formats.codec import CodecError, decode, dumps, encode, loads

MOST_ROWS = 10_000
"""The largest limit. Without a limit a listing is complete and has no next page."""
LONGEST_CURSOR = 2000

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

P = TypeVar("P", bound="DataclassInstance")


@dataclass(frozen=True, slots=True)
class Cursors(Generic[P]):
    """Cursors of one listing. `position` is a frozen dataclass that identifies the last row of a page."""

    listing: str
    position: type[P]

    def write(self, position: P, filters: Mapping[str, object]) -> str:
        """An opaque cursor for the page after `position` of the listing with these filters. It is short, because it is
        part of a command that people paste."""
        text = self._digest(filters) + dumps(list(encode(position).values()))
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    def read(self, cursor: str | None, filters: Mapping[str, object]) -> P | None:
        """The position; None for the first page. Raises UsageError if the cursor is invalid, or of another listing or
        other filters."""
        if cursor is None:
            return None
        digest = self._digest(filters)
        try:
            if not isinstance(cursor, str) or len(cursor) > LONGEST_CURSOR:
                raise ValueError
            text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
            if not text.startswith(f"{digest}["):
                raise ValueError
            values = loads(list[Any], text[len(digest) :])
            names = (field.name for field in fields(self.position))
            return decode(self.position, dict(zip(names, values, strict=True)))
        except (ValueError, binascii.Error, CodecError):
            raise UsageError(
                f"this is not a cursor of the listing of {self.listing} with these arguments",
                hint="pass the next_cursor of one of its pages, with the arguments of the first; only limit may change",
            ) from None

    def _digest(self, filters: Mapping[str, object]) -> str:
        """A digest of the listing and its arguments."""
        return hashlib.sha256(dumps([self.listing, filters]).encode()).hexdigest()[:8]


def checked_limit(limit: int | None) -> int | None:
    """The limit, None for all rows. Raises UsageError if it is out of range."""
    if limit is not None and (type(limit) is not int or not 1 <= limit <= MOST_ROWS):
        raise UsageError(f"limit {limit!r} is not a number of rows", hint=f"1 to {MOST_ROWS}, or None for all")
    return limit
