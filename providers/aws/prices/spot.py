"""Spot prices of AWS with their history: DescribeSpotPriceHistory, region by region.

Offers use zone IDs (zone names differ per account). Answers are sorted newest first, repeat unchanged prices, and
include the last change before their start; a start of now therefore returns the current prices.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from providers.aws.hardware import InstanceType
from providers.aws.prices.regional import RegionalPrices
from providers.aws.regions import pages_of, rows_of, types_of, zones_by_type
from providers.aws.session import to_provider_error
from providers.collect.facts import Finding, Flag, PollResult, SkipReason, gather, hourly_price
from providers.errors import ProviderError
from providers.offer import CapacityType, Offer
from providers.price import PricePoint

SOURCE = "AWS DescribeSpotPriceHistory"
DAY_MS = 24 * 3_600_000
HISTORY_DAYS = 90
"""The history that AWS keeps."""
LINUX = "Linux/UNIX"
PER_REQUEST = 100
"""How many instance types one request may name without exceeding limits on the query."""

Series = dict[tuple[str, str], dict[int, int]]
"""(instance type, zone ID) -> {effective_at_ms: nano-USD per hour}."""


class SpotPrices(RegionalPrices):
    """Source `aws-spot`. The first poll of a region returns `backfill_days` of history, later polls return only new
    changes.

    0 days: only the current prices. Raises ValueError for more days than AWS keeps.
    """

    kind = "aws-spot"

    def __init__(self, *, backfill_days: int = HISTORY_DAYS, **options: Any) -> None:
        if not 0 <= backfill_days <= HISTORY_DAYS:
            raise ValueError(f"backfill_days is {backfill_days}: AWS keeps {HISTORY_DAYS} days")
        super().__init__(**options)
        self._backfill_days = backfill_days

    def poll(self, region: str, now_ms: int, since_ms: int | None) -> PollResult:
        """Spot prices of one region since `since_ms`."""

        def classify(error: Exception) -> ProviderError | None:
            return to_provider_error(error, in_region=region)

        return gather(region, lambda finding: self._read(finding, now_ms, since_ms), classify)

    def _read(self, finding: Finding, now_ms: int, since_ms: int | None) -> None:
        ec2 = self._connections.client("ec2", finding.region)
        types = types_of(ec2, finding, self._only_types)
        zones = zones_by_type(ec2, finding, self._only_types)
        start_ms = now_ms - self._backfill_days * DAY_MS if since_ms is None else min(since_ms, now_ms)
        names = sorted(types)
        for first in range(0, len(names), PER_REQUEST):
            series: Series = defaultdict(dict)
            try:
                _read_series(ec2, finding, names[first : first + PER_REQUEST], start_ms, series)
            finally:  # keep the pages that came before an error
                for (name, zone), changes in series.items():
                    _add(finding, types[name], zone, zones, changes, now_ms)


def _read_series(ec2: Any, finding: Finding, names: list[str], start_ms: int, series: Series) -> None:
    """Add the prices of all pages to `series`."""
    pages = pages_of(
        ec2,
        "describe_spot_price_history",
        InstanceTypes=names,
        ProductDescriptions=[LINUX],
        StartTime=datetime.fromtimestamp(start_ms / 1000, UTC),
    )
    for page in pages:
        rows = rows_of(page, "SpotPriceHistory")
        finding.page(len(rows))
        for row in rows:
            if row.get("ProductDescription") != LINUX:
                finding.skip(SkipReason.OTHER_PRODUCT)
                continue
            try:
                key = (str(row["InstanceType"]), str(row["AvailabilityZoneId"]))
                series[key][round(row["Timestamp"].timestamp() * 1000)] = hourly_price(row["SpotPrice"])
            except (KeyError, ValueError, AttributeError) as error:
                subject = f"aws/{finding.region}/{row.get('AvailabilityZone', '')}/{row.get('InstanceType', '')}"
                missing = f"no {error}" if isinstance(error, KeyError) else str(error)
                finding.flag(Flag.MALFORMED, subject, f"{missing} in {str(row)[:200]}")


def _add(
    finding: Finding,
    kind: InstanceType,
    zone: str,
    zones: Mapping[str, set[str]],
    changes: Mapping[int, int],
    now_ms: int,
) -> None:
    offer = Offer(
        "aws", finding.region, zone, kind.name, kind.gpu, kind.gpu_count, kind.vcpu, kind.memory_bytes,
        CapacityType.SPOT,
    )  # fmt: skip
    refusal = _refusal(kind, zone, zones)
    before = None
    for at_ms in sorted(changes):
        if changes[at_ms] == before:
            continue  # AWS repeats every series at least daily
        before = changes[at_ms]
        point = PricePoint(offer.id, before, at_ms, now_ms, SOURCE)
        if refusal is None:
            finding.price(offer, point)
        else:
            finding.flag(*refusal, offer=offer, point=point)


def _refusal(kind: InstanceType, zone: str, zones: Mapping[str, set[str]]) -> tuple[Flag, str, str] | None:
    """Why prices of this type in this zone must not be used for decisions; None if they may."""
    subject = f"{kind.name} in {zone}"
    if not kind.is_known:
        return Flag.UNKNOWN_GPU, subject, f"unknown GPU: {kind.gpu_name}"
    if zone not in zones.get(kind.name, ()):
        return Flag.NO_HARDWARE, subject, f"{zone} has a price for {kind.name} but does not offer it"
    if not kind.spot:
        return Flag.NO_HARDWARE, subject, f"{kind.name} has a spot price but is not sold as spot"
    return None
