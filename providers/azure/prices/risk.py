"""How often Azure evicts spot machines: Resource Graph's table of eviction rates, for those with a subscription."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from providers.azure.hardware import sizes
from providers.azure.prices.graph import ORDER, SOURCE, GraphSource
from providers.collect.facts import Finding, Flag, Signal

BUCKETS = {"0-5": (0, 5), "5-10": (5, 10), "10-15": (10, 15), "15-20": (15, 20), "20+": (20, 100)}
"""Percent of the spot machines that run in an hour, as Azure buckets them."""


class Evictions(GraphSource):
    """Source `azure-risk`."""

    kind = "azure-risk"
    query = (
        "SpotResources | where type =~ 'microsoft.compute/skuspotevictionrate/location' "
        "| project sku = tostring(sku.name), location = location, rate = tostring(properties.evictionRate) "
        f"{ORDER}"
    )

    def add(self, finding: Finding, row: Mapping[str, Any], now_ms: int, since_ms: int) -> None:
        size = sizes().get(str(row.get("sku", "")).lower())
        if size is None:
            return
        region = str(row.get("location", "")).lower()
        if row.get("rate") not in BUCKETS:
            text = f"an unknown eviction rate: {row.get('rate')!r}"
            finding.flag(Flag.MALFORMED, f"azure/{region}/{size.name}", text)
            return
        low, high = BUCKETS[str(row["rate"])]
        finding.signal(Signal("eviction_percent", "azure", region, "", size.name, low, high, now_ms, now_ms, SOURCE))
