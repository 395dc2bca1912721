"""The columns of price tables: converts rows to offers with prices, and back.

A table is accepted if it has, under any of the names below, an instance type or a GPU, a time, and a price: one price
plus a column for spot or on-demand, or one column for each. NAMES lists the names that other tables use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, TypeVar

from orchestrator.errors import UsageError
from providers.collect.facts import hourly_price
from providers.hardware import GIB, canonical_gpu
from providers.money import NANO_USD
from providers.offer import CapacityType, Offer
from providers.price import PricePoint
from providers.tables import checked_instant, checked_name, checked_text, require_whole, shown

T = TypeVar("T")
U = TypeVar("U")

COLUMNS = (
    "provider", "region", "zone", "instance_type", "gpu", "gpu_count", "vcpu", "memory_gib", "capacity_type",
    "price_per_hour", "effective_at", "observed_at", "source", "simulated",
)  # fmt: skip
"""The columns of exports and of feeds (docs/collectors.md)."""

NAMES: Mapping[str, Sequence[str]] = {
    "provider": ("provider", "cloud"),
    "region": ("region", "location"),
    "zone": ("zone", "availability_zone", "az"),
    "instance_type": ("instance_type",),
    "gpu": ("gpu",),
    "gpu_count": ("gpu_count", "gpus"),
    "vcpu": ("vcpu",),
    "memory_gib": ("memory_gib",),
    "capacity_type": ("capacity_type", "market"),
    "is_spot": ("spot",),
    "product": ("product",),
    "offered": ("offered_known",),
    "observed_at": ("observed_at",),
    "effective_at": ("effective_at", "timestamp", "date", "t"),
    "source": ("source",),
    "simulated": ("simulated",),
}
PRICES: Mapping[str, tuple[CapacityType | None, bool]] = {  # column: (capacity type, whether per GPU)
    "price_per_hour": (None, False),
    "usd_h": (None, False),
    "spot_price": (CapacityType.SPOT, False),
    "spot_usd_h": (CapacityType.SPOT, False),
    "ondemand_usd_h": (CapacityType.ON_DEMAND, False),
    "min_usd_gpu_h": (None, True),
}
CLOUDS = ("aws", "gcp", "azure")
"""If a table has no provider column and its file name begins with one of these, it belongs to that cloud."""
_IDENTITY = ("provider", "region", "zone", "instance_type", "gpu", "gpu_count", "vcpu", "memory_gib", "simulated")
LINUX = ("", "Linux/UNIX", "Linux/UNIX (Amazon VPC)")


@dataclass(frozen=True, slots=True)
class PriceRow:
    """One price of an offer. `offered`: whether the table says that the machine exists there (None: unknown)."""

    line: int
    offer: Offer
    point: PricePoint
    offered: bool | None


class BadField(ValueError):
    """A field of a row is not valid; the message says why."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of one table. `provider` and `at_ms` are used where no column has them. `exported`: the table has all
    of COLUMNS, so it only lists machines that were offered."""

    columns: Mapping[str, str]
    prices: tuple[str, ...]
    provider: str
    at_ms: int | None
    source: str
    exported: bool
    _offers: dict[tuple[Any, ...], Offer] = field(default_factory=dict, compare=False, repr=False)

    @property
    def used(self) -> tuple[str, ...]:
        """The names of the columns that are read."""
        return (*self.columns.values(), *self.prices)

    def read(self, line: int, row: Mapping[str, Any]) -> Iterator[PriceRow]:
        """The prices of a row: none if its price is empty, two if it has both spot and on-demand.

        Raises BadField.
        """
        _checked("", require_whole, row)
        if self._text(row, "product") not in LINUX:
            return
        for column in self.prices:
            if row.get(column) in (None, ""):
                continue
            offer = self._offer(row, self._capacity(row, column))
            try:
                price = hourly_price(row[column])
            except ValueError as error:
                raise BadField(column, str(error)) from None
            if PRICES[column][1]:
                price *= max(1, offer.gpu_count)
            observed = self._instant(row, "observed_at")
            effective = self._instant(row, "effective_at")
            at = effective if effective is not None else observed
            at = self.at_ms if at is None else at
            if at is None:
                raise BadField(self.columns.get("effective_at", "effective_at"), "is empty")
            source = self._text(row, "source") or self.source
            point = PricePoint(offer.id, price, at, at if observed is None else max(at, observed), source)
            yield PriceRow(line, offer, point, self.exported or self._flag(row, "offered"))

    def _offer(self, row: Mapping[str, Any], capacity: CapacityType) -> Offer:
        """The offer of a row, built only for the first row of a series."""
        key = (capacity, *(row.get(self.columns[name]) for name in _IDENTITY if name in self.columns))
        found = self._offers.get(key)
        if found is None:
            found = self._offers[key] = self._new_offer(row, capacity)
        return found

    def _new_offer(self, row: Mapping[str, Any], capacity: CapacityType) -> Offer:
        count = self._number(row, "gpu_count")
        named = self._text(row, "gpu")
        gpu = canonical_gpu(named) if named else None
        if named and gpu is None:
            gpu = _word("gpu", named.replace(" ", "-"))
        kind = self._text(row, "instance_type") or f"{gpu}x{int(count or 1)}"
        provider = self._text(row, "provider") or self.provider
        if not provider:
            raise BadField(self.columns.get("provider", "provider"), "is empty")
        return Offer(
            _word("provider", provider),
            _word("region", self._text(row, "region").replace(" ", "-") or "-"),
            _word("zone", self._text(row, "zone")),
            _word("instance_type", kind.replace(" ", "-")),
            gpu,
            int(count if count is not None else (1 if gpu else 0)),
            int(self._number(row, "vcpu") or 0),
            round((self._number(row, "memory_gib") or 0) * GIB),
            capacity,
            bool(self._flag(row, "simulated")),
        )

    def _capacity(self, row: Mapping[str, Any], price: str) -> CapacityType:
        fixed = PRICES[price][0]
        if fixed is not None:
            return fixed
        if "capacity_type" in self.columns:
            text = self._text(row, "capacity_type").replace("-", "_").replace("ondemand", "on_demand").lower()
            if text not in list(CapacityType):
                raise BadField(self.columns["capacity_type"], f"{shown(text)} is neither spot nor on_demand")
            return CapacityType(text)
        return CapacityType.SPOT if self._flag(row, "is_spot") else CapacityType.ON_DEMAND

    def _text(self, row: Mapping[str, Any], name: str) -> str:
        value = row.get(self.columns.get(name, ""))
        text = "" if value is None or value != value else str(value).strip()  # noqa: PLR0124 - NaN
        return _checked(self.columns.get(name, name), checked_text, text)

    def _number(self, row: Mapping[str, Any], name: str) -> float | None:
        text = self._text(row, name)
        if not text:
            return None
        try:
            number = float(text)
        except ValueError:
            raise BadField(self.columns[name], f"{shown(text)} is not a number") from None
        if not 0 <= number < 1e6:
            raise BadField(self.columns[name], f"{shown(text)} is out of range")
        return number

    def _flag(self, row: Mapping[str, Any], name: str) -> bool | None:
        text = self._text(row, name).lower()
        return None if not text else text in ("true", "1", "yes")

    def _instant(self, row: Mapping[str, Any], name: str) -> int | None:
        value = row.get(self.columns.get(name, ""))
        if value in (None, ""):
            return None
        if isinstance(value, date) and not isinstance(value, datetime):
            value = datetime(value.year, value.month, value.day, tzinfo=UTC)
        try:
            at = value if isinstance(value, datetime) else datetime.fromisoformat(str(value).strip())
        except ValueError:
            raise BadField(
                self.columns[name], f"{shown(str(value))} is not a time such as 2026-11-21T13:00:00Z"
            ) from None
        return _checked(self.columns[name], checked_instant, at)


def layout(columns: Sequence[str], *, name: str, provider: str, at_ms: int | None) -> Layout | None:
    """The layout of a table named `name`; None if it has no prices of machines.

    Raises UsageError if it has, but the provider or the time is missing and not given.
    """
    known = {role: found for role, names in NAMES.items() for found in names[::-1] if found in columns}
    prices = tuple(column for column in PRICES if column in columns)
    identified = "instance_type" in known or ("gpu" in known and "gpu_count" in known)
    if not prices or not identified:
        return None
    first = re.split(r"[^a-z]", name.lower(), maxsplit=1)[0]
    provider = provider or (first if first in CLOUDS else "")
    if "provider" not in known and not provider:
        raise UsageError(f"{name} has no column for the provider", hint="name the provider: --provider aws")
    if "observed_at" not in known and "effective_at" not in known and at_ms is None:
        raise UsageError(f"{name} has no column for the time", hint="give the time: --at 2026-11-21")
    exported = set(COLUMNS) <= set(columns)
    return Layout(known, prices, provider, at_ms, f"import {name}", exported)


def values_of(offer: Offer, point: PricePoint) -> tuple[Any, ...]:
    """A row of COLUMNS. The price is exact."""
    return (
        offer.provider,
        offer.region,
        offer.zone,
        offer.instance_type,
        offer.gpu or "",
        offer.gpu_count,
        offer.vcpu,
        offer.memory_bytes / GIB,
        offer.capacity_type.value,
        Decimal(point.nano_usd_per_hour) / NANO_USD,
        datetime.fromtimestamp(point.effective_at_ms / 1000, UTC),
        datetime.fromtimestamp(point.observed_at_ms / 1000, UTC),
        point.source,
        offer.simulated,
    )


def _word(field: str, text: str) -> str:
    """Check a part of an offer's id. Raises BadField."""
    return _checked(field, checked_name, text)


def _checked(field: str, check: Callable[[T], U], value: T) -> U:
    try:
        return check(value)
    except ValueError as error:
        raise BadField(field, str(error)) from None
