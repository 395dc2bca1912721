"""What the services of prices answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from orchestrator.store import PollRecord, StoredFlag


@dataclass(frozen=True, slots=True)
class PricedRegion:
    """The last poll of a source in a region ('' or 'all': everywhere). `age_s` is of the last one that succeeded and is
    believed, None when none ever was; `flags` counts the rows that are not eligible now, by reason; `suspect` says why
    the last poll is not believed yet, so that what it did not name stays; `passed` how many of its rows were none of
    ours, by reason."""

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
    simulated: bool  # then `polled_at_ms` is market time


@dataclass(frozen=True, slots=True)
class PriceStatus:
    """`at_ms` is real time."""

    kind: ClassVar[str] = "price-status"

    at_ms: int
    regions: tuple[PricedRegion, ...]
    newest_flags: tuple[StoredFlag, ...]
    prices_kept_from_ms: int  # what is older has left into the archive; 0: nothing has
    simulated: bool


@dataclass(frozen=True, slots=True)
class PriceSeries:
    """An offer's price: (instant it took effect, instant it was learned, nano-USD per hour), from the one in force at
    the start on. `flags` are of the same offer."""

    offer_id: str
    gpu: str | None
    gpu_count: int
    listed: bool
    known_to_ms: int | None  # all changes up to here are in it
    points: tuple[tuple[int, int, int], ...]
    flags: tuple[StoredFlag, ...]


@dataclass(frozen=True, slots=True)
class PriceHistory:
    kind: ClassVar[str] = "price-history"

    from_ms: int
    to_ms: int
    series: tuple[PriceSeries, ...]
    left_out: int  # series that match, too
    simulated: bool
    other_market: int = 0  # simulated series that match, too: they have another clock
    next_cursor: str | None = None  # of the next page; None: this is the last one


@dataclass(frozen=True, slots=True)
class PollList:
    """Polls, the newest first. `next_cursor` is of the page of those before these; None: there are none."""

    kind: ClassVar[str] = "price-polls"

    polls: tuple[PollRecord, ...]
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class PriceChange:
    """One price that changed, when that was learned, or one poll that failed or is suspect (`error`), when it ended. Of
    what is `simulated`, `at_ms` is market time."""

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
    """One poll, as it is stored. `passed` counts the rows that are none of ours, by reason; what was not understood is
    among `flagged`."""

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
    kind: ClassVar[str] = "price-collection"

    polls: tuple[CollectedRegion, ...]

    @property
    def failed(self) -> int:
        return sum(poll.error is not None for poll in self.polls)


@dataclass(frozen=True, slots=True)
class AcceptedPrice:
    """A price that a person vouches for, and the `flag` that it had, of which `source`."""

    kind: ClassVar[str] = "price-accepted"

    offer_id: str
    nano_usd_per_hour: int
    flag: str
    detail: str
    source: str


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """`gaps` are silences of a series that are longer than three usual steps of the file; None where the file has only
    changes, so that silence says nothing. `skipped` says why nothing was read."""

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
    """`new_*` is what the store did not have. `problems` are the first bad rows: file, row, field, what, remedy."""

    kind: ClassVar[str] = "price-import"

    files: tuple[ImportedFile, ...]
    series: int
    new_prices: int
    new_flags: int
    new_offers: int
    problems: tuple[str, ...]

    @property
    def bad_rows(self) -> int:
        return sum(file.bad_rows for file in self.files)


@dataclass(frozen=True, slots=True)
class PriceExport:
    kind: ClassVar[str] = "price-export"

    path: str
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ArchivedMonth:
    month: str
    path: str
    rows: int


@dataclass(frozen=True, slots=True)
class PriceArchive:
    """What was archived now, and what left the store."""

    kind: ClassVar[str] = "price-archive"

    months: tuple[ArchivedMonth, ...]
    rolled_up: int  # offers whose days were rolled up
    prices_removed: int
    polls_removed: int
    kept_from_ms: int
