"""Past spot prices of Azure from Resource Graph; needs a subscription.

Source: learn.microsoft.com, "Use Azure Spot Virtual Machines", pricing and eviction history.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from providers.azure.hardware import sizes
from providers.azure.prices.graph import ORDER, SOURCE, GraphSource
from providers.collect.facts import Finding, Flag, hourly_price, instant_ms
from providers.offer import CapacityType, Offer
from providers.price import PricePoint


class SpotHistory(GraphSource):
    """Source `azure-history`: spot prices of the past months, all regions in one poll."""

    kind = "azure-history"
    query = (
        "SpotResources | where type =~ 'microsoft.compute/skuspotpricehistory/ostype/location' "
        "| where properties.osType =~ 'linux' "
        "| project sku = tostring(sku.name), location = location, prices = properties.spotPrices "
        f"{ORDER}"
    )

    def add(self, finding: Finding, row: Mapping[str, Any], now_ms: int, since_ms: int) -> None:
        """Add the price changes of one size in one region."""
        size = sizes().get(str(row.get("sku", "")).lower())
        if size is None:
            return
        region = str(row.get("location", "")).lower()
        offer = Offer(
            "azure", region, "", size.name, size.gpu, size.gpu_count, size.vcpu, size.memory_bytes, CapacityType.SPOT
        )
        changes = []
        for change in row.get("prices") or ():
            try:
                changes.append((instant_ms(change["effectiveDate"]), hourly_price(change["priceUSD"])))
            except (KeyError, TypeError, ValueError) as error:
                finding.flag(Flag.MALFORMED, offer.id, f"{type(error).__name__} {error} in {str(change)[:200]}", offer)
        before = None
        for effective_ms, price in sorted(changes):
            if price != before and effective_ms <= now_ms:
                finding.price(offer, PricePoint(offer.id, price, effective_ms, now_ms, SOURCE))
            before = price
