"""What collectors return, and the interface that every price source implements.

A poll of one region returns offers, prices and risk signals, and flagged rows that are kept but not used for decisions,
each with its reason. A result can hold both an error and what was found before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Protocol

from providers.errors import ProviderError
from providers.money import format_usd, usd
from providers.offer import Offer
from providers.price import PricePoint
from providers.tables import MAX_NAME_CHARACTERS, checked_instant, shown

UNLISTED = "*"
"""The region of a poll that could not list the regions."""
MAX_PRICE_USD = 100_000
"""USD per hour; a row with a higher price is malformed."""


class Flag(StrEnum):
    """Why a row must not be chosen. The value is stored and shown.

    A price flagged SPOT_NOT_BELOW_ON_DEMAND or IMPLAUSIBLE is still payable: it is what a machine there costs. An
    OUTLIER becomes payable once a second report confirms it; until then it is not booked.
    """

    SPOT_NOT_BELOW_ON_DEMAND = "spot_not_below_on_demand"
    OUTLIER = "outlier"
    IMPLAUSIBLE = "implausible"
    NO_HARDWARE = "no_hardware"
    UNKNOWN_GPU = "unknown_gpu"
    CURRENCY = "currency"
    RENAMED_SKU = "renamed_sku"
    MALFORMED = "malformed"
    AMBIGUOUS = "ambiguous"
    NOT_ITS_OWN = "not_its_own"


class SkipReason(StrEnum):
    """Why a row was skipped: it was understood but is not relevant. Rows that are not understood are flagged."""

    NO_GPU = "no_gpu"
    OTHER_PRODUCT = "other_product"
    BILLED_ELSEWHERE = "billed_elsewhere"
    NOT_YET = "not_yet"
    OVER = "over"
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True)
class FlaggedFinding:
    """A row that is kept with the reason why it must not be chosen. `offer` and `point` are set as far as the row could
    be read.

    `subject` is the offer id, or otherwise the subject of the row; `detail` is one sentence for people.
    """

    flag: Flag
    subject: str
    detail: str
    offer: Offer | None = None
    point: PricePoint | None = None


@dataclass(frozen=True, slots=True)
class Signal:
    """A provider's figure for the risk that `instance_type` is unavailable or preempted. `zone` is '' for a whole
    region.

    `kind` names the measure and its unit, from `low` to `high`: `interruption_percent` of the machines in a month,
    `eviction_percent` of the running machines in an hour, `preemption_fraction` of stopped spot machines,
    `placement_score` from 1 (unlikely) to 10.
    """

    kind: str
    provider: str
    region: str
    zone: str
    instance_type: str
    low: float
    high: float
    effective_at_ms: int
    observed_at_ms: int
    source: str


@dataclass(frozen=True, slots=True)
class PollResult:
    """What one poll of one region found. `error` is why it may be incomplete; None means complete.

    `pages` and `rows` count what the provider sent, before filtering; `skipped` counts the irrelevant rows by reason
    (SkipReason).
    """

    region: str
    offers: tuple[Offer, ...] = ()
    points: tuple[PricePoint, ...] = ()
    flagged: tuple[FlaggedFinding, ...] = ()
    signals: tuple[Signal, ...] = ()
    error: ProviderError | None = None
    pages: int = 0
    rows: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)


class PriceSource(Protocol):
    """One kind of price, polled region by region. May be called from several threads at once, for different regions."""

    @property
    def name(self) -> str:
        """Unique name that starts with the provider's: "aws-spot"."""
        ...

    @property
    def provider(self) -> str:
        """Name of the provider whose prices these are; "feed" for files of any provider."""
        ...

    def regions(self) -> Sequence[str]:
        """The regions to poll. Raises ProviderError if they cannot be listed."""
        ...

    def poll(self, region: str, now_ms: int, since_ms: int | None) -> PollResult:
        """All that is known about a region now. ProviderErrors are returned in the result, not raised.

        `since_ms` is the newest change already known there (None: nothing is); a source with a history then returns
        what happened since, or everything it has if `since_ms` is None.
        """
        ...


class Finding:
    """A poll in progress: a source adds to it while it reads."""

    def __init__(self, region: str) -> None:
        self.region = region
        self.pages = 0
        self.rows = 0
        self._offers: dict[str, Offer] = {}
        self._points: dict[tuple[str, int], PricePoint] = {}
        self._flagged: list[FlaggedFinding] = []
        self._signals: list[Signal] = []
        self._skipped: Counter[str] = Counter()

    def page(self, rows: int) -> None:
        """Count a page of `rows` rows from the provider."""
        self.pages += 1
        self.rows += rows

    def price(self, offer: Offer, point: PricePoint) -> None:
        """Add a price. It takes effect no later than when it is seen, even if its source's clock gives a later time.

        If an offer has two prices for the same time, the higher one counts, so that no cost is underestimated.
        """
        self._offers[offer.id] = offer
        point = replace(point, effective_at_ms=min(point.effective_at_ms, point.observed_at_ms))
        key = (offer.id, point.effective_at_ms)
        other = self._points.setdefault(key, point)
        if other.nano_usd_per_hour != point.nano_usd_per_hour:
            cheaper, self._points[key] = sorted((other, point), key=lambda each: each.nano_usd_per_hour)
            text = f"also priced at {format_usd(cheaper.nano_usd_per_hour)}/h: the higher price counts"
            self.flag(Flag.AMBIGUOUS, offer.id, text, offer, cheaper)

    def flag(
        self,
        flag: Flag,
        subject: str,
        detail: str,
        offer: Offer | None = None,
        point: PricePoint | None = None,
    ) -> None:
        """Add a row that must not be chosen, with the reason; arguments as in FlaggedFinding."""
        self._flagged.append(FlaggedFinding(flag, subject, detail, offer, point))

    def skip(self, why: SkipReason, rows: int = 1) -> None:
        """Count `rows` irrelevant rows."""
        self._skipped[why.value] += rows

    def signal(self, signal: Signal) -> None:
        """Add a risk signal."""
        self._signals.append(signal)

    def result(self, error: ProviderError | None = None) -> PollResult:
        """Everything found; prices are in order of offer and time."""
        points = sorted(self._points.values(), key=lambda point: (point.offer_id, point.effective_at_ms))
        return PollResult(
            self.region,
            tuple(self._offers[key] for key in sorted(self._offers)),
            tuple(points),
            tuple(self._flagged),
            tuple(self._signals),
            error,
            self.pages,
            self.rows,
            {why: rows for why, rows in sorted(self._skipped.items()) if rows},
        )


def gather(
    region: str, read: Callable[[Finding], None], classify: Callable[[Exception], ProviderError | None]
) -> PollResult:
    """Run `read` on a new finding; what it found before an error is returned together with the error.

    `classify` converts an exception of the provider's library, or returns None for a defect of this program, which is
    raised.
    """
    finding = Finding(region)
    try:
        read(finding)
    except ProviderError as error:
        return finding.result(error)
    except Exception as error:
        known = classify(error)
        if known is None:
            raise
        return finding.result(known)
    return finding.result()


def hourly_price(text: object) -> int:
    """Convert a price in dollars per hour, as a cloud writes it, to nano-USD. Raises ValueError if it cannot be a
    price.
    """
    written = str(text)
    try:
        amount = Decimal(written if len(written) <= MAX_NAME_CHARACTERS else "too long")
    except InvalidOperation:
        raise ValueError(f"{shown(written)} is not a price") from None
    if not amount.is_finite() or not 0 < amount <= MAX_PRICE_USD:
        raise ValueError(f"{shown(written)} is not between 0 and {MAX_PRICE_USD} USD per hour")
    nano_usd = usd(amount)
    if nano_usd == 0:
        raise ValueError(f"{shown(written)} is less than a billionth of a dollar per hour")
    return nano_usd


def instant_ms(text: object) -> int:
    """Convert a time such as `2026-06-01` or `2026-06-01T00:00:00Z` to epoch ms; without a zone it is UTC.

    Raises ValueError if it is not a time or is outside the years 2000 to 2999.
    """
    written = str(text)
    try:
        at = datetime.fromisoformat(written.strip().replace("Z", "+00:00"))
    except ValueError:
        raise ValueError(f"{shown(written)} is not a time like 2026-11-21T13:00:00Z") from None
    return checked_instant(at)
