"""Eviction rates of Azure spot machines from Resource Graph; needs a subscription."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from providers.azure.hardware import sizes
from providers.azure.prices.graph import ORDER, SOURCE, GraphSource
from providers.collect.facts import Finding, Flag, Signal

BUCKETS = {"0-5": (0, 5), "5-10": (5, 10), "10-15": (10, 15), "15-20": (15, 20), "20+": (20, 100)}
"""Percent of the running spot machines evicted in an hour, in Azure's ranges."""


class Evictions(GraphSource):
    """Source `azure-risk`: eviction rates, all regions in one poll."""

    kind = "azure-risk"
    query = (
        "SpotResources | where type =~ 'microsoft.compute/skuspotevictionrate/location' "
        "| project sku = tostring(sku.name), location = location, rate = tostring(properties.evictionRate) "
        f"{ORDER}"
    )

    def add(self, finding: Finding, row: Mapping[str, Any], now_ms: int, since_ms: int) -> None:
        """Add the eviction rate of one size in one region."""
        size = sizes().get(str(row.get("sku", "")).lower())
        if size is None:
            return
        region = str(row.get("location", "")).lower()
        if row.get("rate") not in BUCKETS:
            text = f"unknown eviction rate: {row.get('rate')!r}"
            finding.flag(Flag.MALFORMED, f"azure/{region}/{size.name}", text)
            return
        low, high = BUCKETS[str(row["rate"])]
        finding.signal(Signal("eviction_percent", "azure", region, "", size.name, low, high, now_ms, now_ms, SOURCE))
