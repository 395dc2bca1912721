"""Past list prices of GCP: earlier versions of the Billing Catalog, for machine types that zones offer today.

One request returns versions of part of one calendar month in Google's time zone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from providers.collect.facts import Finding
from providers.errors import ProviderError
from providers.gcp.prices.list_prices import SOURCE, CatalogSource, machines_in, offer_of, sold_as
from providers.gcp.prices.skus import Part, parts_of, price_list
from providers.offer import CapacityType
from providers.price import PricePoint

BACKFILL_DAYS = 90
"""History that a first poll requests."""
_LAG = timedelta(hours=12)
"""How far the end of a request stays in the past: the catalogue refuses a future time, which a fast clock would
send."""


class ListHistory(CatalogSource):
    """Source `gcp-list-history`: price changes of the last `backfill_days`, computed from the SKUs in force at each
    change.
    """

    kind = "gcp-list-history"

    def __init__(self, *, backfill_days: int = BACKFILL_DAYS, **options: Any) -> None:
        super().__init__(**options)
        self._backfill = timedelta(days=backfill_days)
        self._months: dict[datetime, list[Part] | ProviderError] = {}

    def _read(self, finding: Finding, now_ms: int, since_ms: int | None) -> None:
        now = datetime.fromtimestamp(now_ms / 1000, UTC)
        zones = self._connections.zones_by_region().get(finding.region, [])
        offers = [
            (machine, offer_of(finding.region, zone, machine, capacity_type))
            for zone in zones
            for machine in machines_in(self._connections, zone, finding)
            for capacity_type in sold_as(machine)
        ]
        parts = _joined(
            part
            for start, end in months(now - self._backfill, now - _LAG)
            for part in self._parts(start, end, finding)
            if finding.region in part.regions
        )
        before: dict[str, int] = {}
        changes = {effective_ms for part in parts for effective_ms, _ in part.versions if effective_ms <= now_ms}
        for at_ms in sorted(changes):
            prices = price_list(parts, at_ms)
            for machine, offer in offers:
                try:
                    nano = prices.price(machine, finding.region, offer.capacity_type is CapacityType.SPOT)
                except LookupError:
                    continue  # one of its parts had no price yet
                if nano != before.get(offer.id) and offer.gpu is not None:
                    finding.price(offer, PricePoint(offer.id, nano, at_ms, now_ms, SOURCE))
                before[offer.id] = nano

    def _parts(self, start: datetime, end: datetime, finding: Finding) -> list[Part]:
        """The SKUs of one month in all regions: the first poll that needs them reads them, and the result or error is
        shared.
        """
        with self._reading:
            if start not in self._months:
                period = {"startTime": _written(start), "endTime": _written(end)}
                try:
                    self._months[start] = list(parts_of(self._skus(finding, period), finding))
                except ProviderError as error:
                    self._months[start] = error
            known = self._months[start]
            if isinstance(known, ProviderError):
                raise known
            return known


def _joined(parts: Iterable[Part]) -> list[Part]:
    """Merge the same SKU of several months: a version that lasts appears in each of its months."""
    whole: dict[Part, set[tuple[int, int]]] = {}
    for part in parts:
        whole.setdefault(replace(part, versions=()), set()).update(part.versions)
    return [replace(part, versions=tuple(sorted(versions))) for part, versions in whole.items()]


def months(since: datetime, until: datetime) -> Iterator[tuple[datetime, datetime]]:
    """The calendar months of Los Angeles from that of `since` up to `until`, the oldest first.

    They begin at 8:00 UTC in winter and at 7:00 UTC from April to November: clocks change there on Sundays in March and
    November, after the month has begun.
    """
    year, month = since.year, since.month
    start = _begin(year, month)
    if since < start:
        year, month = (year, month - 1) if month > 1 else (year - 1, 12)
        start = _begin(year, month)
    while start < until:
        year, month = (year, month + 1) if month < 12 else (year + 1, 1)
        end = _begin(year, month)
        yield start, min(end, until)
        start = end


def _begin(year: int, month: int) -> datetime:
    return datetime(year, month, 1, 7 if 4 <= month <= 11 else 8, tzinfo=UTC)


def _written(instant: datetime) -> str:
    return instant.strftime("%Y-%m-%dT%H:%M:%SZ")
