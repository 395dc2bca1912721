"""What a collector finds out, and the seam that every source of prices keeps.

A poll of one region yields offers, prices, risk signals, and rows that were kept but must not be decided on, each with
its reason. What was found before an error counts: a result holds both.
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
"""The region of a poll that could not even list the regions."""
MAX_PRICE_USD = 100_000
"""Per hour; a row above it is malformed, not dear."""


class Flag(StrEnum):
    """Why a row is not fit to be chosen. Its value is stored and shown.

    The price of one with SPOT_NOT_BELOW_ON_DEMAND or IMPLAUSIBLE is payable all the same: it is what a machine there
    costs. That of an OUTLIER is once a second report confirms it, and until then the books wait.
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


class Passed(StrEnum):
    """Why a row was passed over: it was understood and is none of ours. What is not understood is flagged instead."""

    NO_GPU = "no_gpu"
    OTHER_PRODUCT = "other_product"
    BILLED_ELSEWHERE = "billed_elsewhere"
    NOT_YET = "not_yet"
    OVER = "over"
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True)
class FlaggedFinding:
    """A row that is kept with its reason. `offer` and `point` are there as far as the row could be read.

    `subject` is the offer's id, or else what the row is about; `detail` one sentence for people.
    """

    flag: Flag
    subject: str
    detail: str
    offer: Offer | None = None
    point: PricePoint | None = None


@dataclass(frozen=True, slots=True)
class Signal:
    """What a provider says of the risk of `instance_type` being refused or taken back. `zone` is '' for a whole region.

    `kind` names the measure and its unit: `interruption_percent` of the machines of a month, `eviction_percent` of
    those that run in an hour (both `low` to `high`), `preemption_fraction` of stopped spot machines, `placement_score`
    from 1 (unlikely) to 10.
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
    """What one poll of one region found. `error` is why it may be incomplete; None says that it is whole.

    `pages` and `rows` count what the provider sent, before anything was dropped; `passed` the rows that are none of
    ours, by reason (Passed).
    """

    region: str
    offers: tuple[Offer, ...] = ()
    points: tuple[PricePoint, ...] = ()
    flagged: tuple[FlaggedFinding, ...] = ()
    signals: tuple[Signal, ...] = ()
    error: ProviderError | None = None
    pages: int = 0
    rows: int = 0
    passed: Mapping[str, int] = field(default_factory=dict)


class PriceSource(Protocol):
    """One kind of price, polled region by region. May be called from several threads at once, for different regions."""

    @property
    def name(self) -> str:
        """Unique, and starts with the provider's name: "aws-spot"."""
        ...

    @property
    def provider(self) -> str: ...

    def regions(self) -> Sequence[str]:
        """The units of work. Raises ProviderError when they can't be listed."""
        ...

    def poll(self, region: str, now_ms: int, since_ms: int | None) -> PollResult:
        """All that is known of a region now. Never raises ProviderError: it is in the result.

        `since_ms` is the newest change already known there (None: nothing is); a source with a history then brings
        what happened since, and as much as there is when it is None.
        """
        ...


class Finding:
    """A poll in progress: what a source adds to it while it reads."""

    def __init__(self, region: str) -> None:
        self.region = region
        self.pages = 0
        self.rows = 0
        self._offers: dict[str, Offer] = {}
        self._points: dict[tuple[str, int], PricePoint] = {}
        self._flagged: list[FlaggedFinding] = []
        self._signals: list[Signal] = []
        self._passed: Counter[str] = Counter()

    def page(self, rows: int) -> None:
        """The provider sent a page of so many rows."""
        self.pages += 1
        self.rows += rows

    def price(self, offer: Offer, point: PricePoint) -> None:
        """A price that is told as in force is so when it is seen, whatever later instant its source's clock says.

        Of two prices for one offer and instant the higher counts: nobody is to be promised the lower one.
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
        self._flagged.append(FlaggedFinding(flag, subject, detail, offer, point))

    def pass_over(self, why: Passed, rows: int = 1) -> None:
        """So many rows are none of ours."""
        self._passed[why.value] += rows

    def signal(self, signal: Signal) -> None:
        self._signals.append(signal)

    def result(self, error: ProviderError | None = None) -> PollResult:
        """Prices in order of offer and time."""
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
            {why: rows for why, rows in sorted(self._passed.items()) if rows},
        )


def gather(
    region: str, read: Callable[[Finding], None], classify: Callable[[Exception], ProviderError | None]
) -> PollResult:
    """Run `read` on a new finding; what it found before an error is kept beside the error.

    `classify` turns an exception of the provider's library into ours, or into None: then it is a fault of this
    program, and goes on.
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
    """A price as a cloud writes it, dollars per hour -> nano-USD. Raises ValueError for what can't be a price."""
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
    """A time as a cloud writes it, `2026-06-01` or `2026-06-01T00:00:00Z` -> epoch ms; without a zone it is UTC, never
    this machine's. Raises ValueError for what is none, or is outside of the years 2000 to 2999."""
    written = str(text)
    try:
        at = datetime.fromisoformat(written.strip().replace("Z", "+00:00"))
    except ValueError:
        raise ValueError(f"{shown(written)} is not a time like 2026-11-21T13:00:00Z") from None
    return checked_instant(at)
