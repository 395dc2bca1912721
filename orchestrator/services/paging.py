"""Pages of a listing: the limit and the cursor.

A cursor contains the last row of its page, not a number of rows to skip. So every row that existed when the first page
was read is returned exactly once, whatever is added meanwhile.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from orchestrator.errors import UsageError
from orchestrator.formats.codec import Codec, CodecError, dumps

MOST_ROWS = 10_000
"""The largest limit. Without a limit a listing is complete and has no next page."""
LONGEST_CURSOR = 2000

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Cursors(Generic[P]):
    """Cursors of one listing. `position` is a frozen dataclass that identifies the last row of a page."""

    listing: str
    position: type[P]

    def write(self, position: P, filters: Mapping[str, object]) -> str:
        """An opaque cursor for the page after `position` of the listing with these filters."""
        text = _digest(filters) + self._codec.dumps(position)
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    def read(self, cursor: str | None, filters: Mapping[str, object]) -> P | None:
        """The position; None for the first page. Raises UsageError if the cursor is invalid, or of another listing or
        other filters."""
        if cursor is None:
            return None
        try:
            if not isinstance(cursor, str) or len(cursor) > LONGEST_CURSOR:
                raise ValueError
            text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
            digest = _digest(filters)
            position = self._codec.loads(text[len(digest) :])
        except (ValueError, binascii.Error, CodecError):
            raise UsageError(
                f"this is not a cursor of the listing of {self.listing}",
                hint="pass the next_cursor of one of its pages",
            ) from None
        if text[: len(digest)] != digest:
            raise UsageError(
                "this cursor belongs to a listing with other arguments",
                hint="pass the arguments of the first page again; only limit may change",
            )
        return position

    @property
    def _codec(self) -> Codec[P]:
        return Codec(self.position, f"tradewind/cursor-{self.listing}/v1")


def checked_limit(limit: int | None) -> int | None:
    """The limit, None for all rows. Raises UsageError if it is out of range."""
    if limit is not None and (type(limit) is not int or not 1 <= limit <= MOST_ROWS):
        raise UsageError(f"limit {limit!r} is not a number of rows", hint=f"1 to {MOST_ROWS}, or None for all")
    return limit


def _digest(filters: Mapping[str, object]) -> str:
    return hashlib.sha256(dumps(filters).encode()).hexdigest()[:12]
