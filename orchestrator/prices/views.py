"""Views returned by the price services."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from orchestrator.store import PollRecord, StoredFlag


@dataclass(frozen=True, slots=True)
class PricedRegion:
    """The last poll of a source in a region ('' or 'all': everywhere). `age_s` is the age of the last successful poll
    that is not suspect (None: never); `flags` counts the rows that are not eligible now, by reason; `suspect` says why
    the last poll is not trusted yet, so that offers it did not list stay; `passed` counts, by reason, rows that are not
    machines we track."""

    provider: str
    source: str
    region: str
    polled_at_ms: int
    age_s: float | None
    failures: int
    offers: int
    flags: Mapping[str, int]
    error: str | None
    hint: str | None
    suspect: str | None
    passed: str
    simulated: bool  # if so, `polled_at_ms` is market time


@dataclass(frozen=True, slots=True)
class PriceStatus:
    """The state of all collected regions. `at_ms` is real time."""

    kind: ClassVar[str] = "price-status"

    at_ms: int
    regions: tuple[PricedRegion, ...]
    newest_flags: tuple[StoredFlag, ...]
    prices_kept_from_ms: int  # older prices are only in the archive; 0: all are in the store
    simulated: bool


@dataclass(frozen=True, slots=True)
class PriceSeries:
    """An offer's price changes: (time effective, time learned, nano-USD per hour), starting with the price in effect at
    the start of the period. `flags` are the flags of the same offer."""

    offer_id: str
    gpu: str | None
    gpu_count: int
    listed: bool
    known_to_ms: int | None  # complete up to this time
    points: tuple[tuple[int, int, int], ...]
    flags: tuple[StoredFlag, ...]


@dataclass(frozen=True, slots=True)
class PriceHistory:
    """The price series of a query, from `from_ms` to `to_ms`."""

    kind: ClassVar[str] = "price-history"

    from_ms: int
    to_ms: int
    series: tuple[PriceSeries, ...]
    left_out: int  # number of further matching series
    simulated: bool
    other_market: int = 0  # number of matching simulated series, which have another clock
    next_cursor: str | None = None  # of the next page; None: this is the last page


@dataclass(frozen=True, slots=True)
class PollList:
    """Polls, newest first. `next_cursor` continues with older polls; None: there are none."""

    kind: ClassVar[str] = "price-polls"

    polls: tuple[PollRecord, ...]
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class PriceChange:
    """A changed price with the time when it became known, or a failed or suspect poll (`error`) with the time when it
    ended. If it is `simulated`, `at_ms` is market time."""

    kind: ClassVar[str] = "price-change"

    at_ms: int
    offer_id: str | None
    source: str
    region: str
    nano_usd_per_hour: int | None
    before_nano_usd_per_hour: int | None
    error: str | None
    simulated: bool


@dataclass(frozen=True, slots=True)
class CollectedRegion:
    """One poll, as stored. `passed` counts, by reason, rows that are not machines we track; rows that were not
    understood are among `flagged`."""

    kind: ClassVar[str] = "price-poll"

    source: str
    region: str
    started_at_ms: int
    ended_at_ms: int
    offers: int
    changed: int
    flagged: int
    error: str | None
    hint: str
    suspect: str = ""
    passed: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PriceCollection:
    """The polls of one collection."""

    kind: ClassVar[str] = "price-collection"

    polls: tuple[CollectedRegion, ...]

    @property
    def failed(self) -> int:
        """The number of polls that failed."""
        return sum(poll.error is not None for poll in self.polls)


@dataclass(frozen=True, slots=True)
class AcceptedPrice:
    """A flagged price that a user has accepted, with its `flag` and `source`."""

    kind: ClassVar[str] = "price-accepted"

    offer_id: str
    nano_usd_per_hour: int
    flag: str
    detail: str
    source: str


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """One imported file. `gaps` counts gaps longer than three usual time steps of the file; None if the file lists only
    changes. `skipped` says why the file was skipped."""

    path: str
    rows: int
    series: int
    first_ms: int | None
    last_ms: int | None
    gaps: int | None
    flagged: Mapping[str, int]
    bad_rows: int
    skipped: str


@dataclass(frozen=True, slots=True)
class PriceImport:
    """One import. `new_*` counts what was new to the store; `problems` are the first invalid rows with their
    remedies."""

    kind: ClassVar[str] = "price-import"

    files: tuple[ImportedFile, ...]
    series: int
    new_prices: int
    new_flags: int
    new_offers: int
    problems: tuple[str, ...]

    @property
    def bad_rows(self) -> int:
        """The number of bad rows in all files."""
        return sum(file.bad_rows for file in self.files)


@dataclass(frozen=True, slots=True)
class PriceExport:
    """An exported file, its rows and its size."""

    kind: ClassVar[str] = "price-export"

    path: str
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ArchivedMonth:
    """One month's archive file and its rows."""

    month: str
    path: str
    rows: int


@dataclass(frozen=True, slots=True)
class PriceArchive:
    """What was archived, and what was deleted from the store."""

    kind: ClassVar[str] = "price-archive"

    months: tuple[ArchivedMonth, ...]
    rolled_up: int  # offers whose days were rolled up
    prices_removed: int
    polls_removed: int
    kept_from_ms: int
