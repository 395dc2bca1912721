"""How often Azure evicts spot machines: Resource Graph's table of eviction rates, for those with a subscription.

Must not know prices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from providers.azure.hardware import sizes
from providers.azure.session import Connections, in_our_words
from providers.collect.facts import Finding, Flag, PollResult, Signal, gather

SOURCE = "Azure Resource Graph"
GLOBAL = "global"
QUERY = (
    "SpotResources | where type =~ 'microsoft.compute/skuspotevictionrate/location' "
    "| project sku = tostring(sku.name), location = location, rate = tostring(properties.evictionRate)"
)
BUCKETS = {"0-5": (0, 5), "5-10": (5, 10), "10-15": (10, 15), "15-20": (15, 20), "20+": (20, 100)}
"""Percent of spot machines evicted, as Azure buckets them."""


class Evictions:
    """Source `azure-risk`: one poll for all regions."""

    provider = "azure"

    def __init__(
        self,
        *,
        name: str = "azure-risk",
        call_s: float = 30.0,
        attempts: int = 3,
        connections: Connections | None = None,
    ) -> None:
        self.name = name
        self._connections = Connections(call_s=call_s, attempts=attempts) if connections is None else connections

    def regions(self) -> Sequence[str]:
        return [GLOBAL]

    def poll(self, region: str, now_ms: int, since_ms: int | None) -> PollResult:
        return gather(region, lambda finding: self._read(finding, now_ms), in_our_words)

    def _read(self, finding: Finding, now_ms: int) -> None:
        for rows in self._connections.graph(QUERY):
            finding.page(len(rows))
            for row in rows:
                _signal(finding, row, now_ms)


def _signal(finding: Finding, row: dict[str, Any], now_ms: int) -> None:
    size = sizes().get(str(row.get("sku", "")).lower())
    if size is None:
        return
    region = str(row.get("location", "")).lower()
    if row.get("rate") not in BUCKETS:
        finding.flag(Flag.MALFORMED, f"azure/{region}/{size.name}", f"an unknown eviction rate: {row.get('rate')!r}")
        return
    low, high = BUCKETS[str(row["rate"])]
    finding.signal(Signal("eviction_percent", "azure", region, "", size.name, low, high, now_ms, now_ms, SOURCE))
