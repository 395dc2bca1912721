"""Pages of a listing: how long one may be, and the cursor that says where the next one begins.

A cursor names the last row of its page, never a number of rows to skip. So every row that was there when the first page
was read comes exactly once, whatever is added meanwhile.
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
"""The longest page. Without a limit a listing is whole, and has no next page."""
LONGEST_CURSOR = 2000

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Cursors(Generic[P]):
    """Cursors of one listing. `position` is the frozen dataclass that says after which row a page begins."""

    listing: str
    position: type[P]

    def write(self, position: P, filters: Mapping[str, object]) -> str:
        """An opaque text for the page after `position`, of the listing with these filters."""
        text = _digest(filters) + self._codec.dumps(position)
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    def read(self, cursor: str | None, filters: Mapping[str, object]) -> P | None:
        """The position, None for the first page. Raises UsageError for what is not a cursor of this listing, or is one
        of other filters."""
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
                f"this is not a cursor of the listing of {self.listing}", hint="pass the next_cursor of a page of it"
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
    """How many rows a page may have; None: all. Raises UsageError."""
    if limit is not None and (type(limit) is not int or not 1 <= limit <= MOST_ROWS):
        raise UsageError(f"limit {limit!r} is not a number of rows", hint=f"1 to {MOST_ROWS}, or None for all")
    return limit


def _digest(filters: Mapping[str, object]) -> str:
    return hashlib.sha256(dumps(filters).encode()).hexdigest()[:12]
