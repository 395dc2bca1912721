"""Retail prices of Azure, spot and on-demand, from the public API, region by region.

Prices are regional, so offers have an empty zone. With a subscription, the resource SKUs say what it may start; without
one, every price is accepted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from providers.azure.hardware import REGIONS, Size, sizes
from providers.collect.facts import Finding, Flag, PollResult, SkipReason, gather, hourly_price, instant_ms
from providers.collect.http import Http, Patience, RefusedError
from providers.collect.pages import Pages
from providers.errors import FormatError, ProviderError
from providers.money import NANO_USD
from providers.offer import CapacityType, Offer
from providers.price import PricePoint

if TYPE_CHECKING:
    from providers.azure.session import Connections

SOURCE = "Azure Retail Prices"
PRICES = "https://prices.azure.com/api/retail/prices"
VERSION = "2023-01-01-preview"
GPU_SIZES = "Standard_N"
"""Names of all GPU machines start with this."""
NOT_PLAIN = re.compile(r"low priority|windows|\bwin\b|cloud ?services|dedicated|expired", re.I)
FOR_EVER = "9999-"
MOST_PAGES = 200
"""Pages of 1000 rows: far more than a region has. More means that the filter was not applied."""


class _Meter(NamedTuple):
    """The price in a row. If a machine has several, the greatest applies: a billed meter before an unbilled one
    ("non-primary meters are not used for charges"), then the latest start, then the highest price.
    """

    billed: bool
    effective_at_ms: int
    nano_usd_per_hour: int


class RetailPrices:
    """Source `azure-prices`. `subscription` True: omit what the account (AZURE_SUBSCRIPTION_ID) may not start.

    `currency` is what prices are requested in; rows in a currency other than USD are flagged unless `usd_per_unit`
    gives its rate in USD. `only`: these sizes, by lower-case name, instead of the catalogue's.
    """

    provider = "azure"

    def __init__(
        self,
        *,
        name: str = "azure-prices",
        regions: Sequence[str] = (),
        subscription: bool = False,
        url: str = PRICES,
        currency: str = "USD",
        usd_per_unit: str | None = None,
        read_s: float = 30.0,
        attempts: int = 3,
        connections: Connections | None = None,
        only: Mapping[str, Size] | None = None,
    ) -> None:
        self.name = name
        self._sizes = only
        self._only = tuple(region.lower() for region in regions)
        self._url = url
        self._currency = currency
        self._rates = {"USD": "1"} | ({} if usd_per_unit is None else {currency: usd_per_unit})
        self._http = Http(Patience(read_s=read_s, attempts=attempts))
        self._connections = connections
        if subscription and connections is None:
            from providers.azure.session import Connections

            self._connections = Connections(call_s=read_s, attempts=attempts)

    def regions(self) -> Sequence[str]:
        """The configured regions, else all public ones."""
        return self._only or REGIONS

    def poll(self, region: str, now_ms: int, since_ms: int | None) -> PollResult:
        """Spot and on-demand prices of one region."""
        return gather(region, lambda finding: self._read(finding, now_ms), self._to_provider_error)

    def _to_provider_error(self, error: Exception) -> ProviderError | None:
        if self._connections is None:
            return None  # without a subscription, Azure's libraries are not used
        from providers.azure.session import to_provider_error

        return to_provider_error(error)

    def _read(self, finding: Finding, now_ms: int) -> None:
        refused = self._refused(finding)
        newest: dict[tuple[str, CapacityType], _Meter] = {}
        try:
            for row in self._rows(finding):
                found = self._plain(row, finding, now_ms)
                if found is not None:
                    key, meter = found
                    if key in newest:
                        finding.skip(SkipReason.SUPERSEDED)
                    newest[key] = max(newest.get(key, meter), meter)
        finally:  # keep the pages that came before an error
            for (name, capacity_type), meter in sorted(newest.items()):
                size = (sizes() if self._sizes is None else self._sizes).get(name.lower())
                _add(finding, name, size, capacity_type, meter, now_ms, refused)

    def _rows(self, finding: Finding) -> Iterator[Mapping[str, Any]]:
        """All rows of a region. Azure answers 400 to a page past the end, so that ends the list."""
        which = f"contains(armSkuName, '{GPU_SIZES}')"
        if self._sizes is not None:
            which = " or ".join(f"armSkuName eq '{size.name}'" for size in self._sizes.values())
            which = f"({which})"
        only = " and ".join(
            (
                "serviceName eq 'Virtual Machines'",
                "priceType eq 'Consumption'",
                f"armRegionName eq '{finding.region}'",
                which,
            )
        )
        links = Pages("the retail prices", MOST_PAGES)
        url: str | None = self._url
        query: dict[str, str] | None = {"api-version": VERSION, "currencyCode": self._currency, "$filter": only}
        while url:
            try:
                body = self._http.get_json(url, query)
            except RefusedError as error:
                if error.status == 400 and finding.pages:
                    return
                raise
            items = body.get("Items") if isinstance(body, dict) else None
            if not isinstance(items, list):
                raise FormatError("the retail prices' answer has no list 'Items'")
            finding.page(len(items))
            damaged = [row for row in items if not isinstance(row, dict)]
            if damaged:
                finding.flag(Flag.MALFORMED, f"azure/{finding.region}", f"not a row: {str(damaged[0])[:200]}")
            rows = [row for row in items if isinstance(row, dict)]
            elsewhere = [row for row in rows if str(row.get("armRegionName", "")).lower() != finding.region]
            if elsewhere:
                raise FormatError("the retail prices API ignored the filter: the answer has rows of other regions")
            yield from rows
            url, query = body.get("NextPageLink"), None
            if url:
                url = links.follow(self._next(url))

    def _next(self, link: object) -> str:
        """The link to the next page if it is on the same host. Raises FormatError otherwise."""
        here, there = urlsplit(self._url), urlsplit(str(link))
        if (there.scheme, there.hostname) != (here.scheme, here.hostname):
            raise FormatError(f"the retail prices' next page is on another host: {str(link)[:100]!r}")
        return str(link)

    def _plain(
        self, row: Mapping[str, Any], finding: Finding, now_ms: int
    ) -> tuple[tuple[str, CapacityType], _Meter] | None:
        """(size, capacity type) and price of a row for a plain Linux machine that is in force now; None for others."""
        words = f"{row.get('productName', '')} {row.get('skuName', '')} {row.get('meterName', '')}"
        name = str(row.get("armSkuName", ""))
        if NOT_PLAIN.search(words) or row.get("type") != "Consumption" or row.get("tierMinimumUnits"):
            finding.skip(SkipReason.OTHER_PRODUCT)
            return None
        if row.get("retailPrice") == 0:
            finding.skip(SkipReason.BILLED_ELSEWHERE)
            return None
        subject = f"azure/{finding.region}/{name}"
        if row.get("unitOfMeasure") != "1 Hour":
            text = f"{str(row.get('retailPrice'))[:50]} per {str(row.get('unitOfMeasure'))[:50]!r}, not per hour"
            finding.flag(Flag.MALFORMED, subject, text)
            return None
        rate = self._rates.get(str(row.get("currencyCode")))
        if rate is None:
            finding.flag(
                Flag.CURRENCY,
                subject,
                f"{row.get('retailPrice')} {row.get('currencyCode')}: no exchange rate is configured",
            )
            return None
        try:
            price = hourly_price(row["retailPrice"]) * hourly_price(rate) // NANO_USD
            effective_ms = instant_ms(row["effectiveStartDate"])
            end = row.get("effectiveEndDate")
            ended = end is not None and not str(end).startswith(FOR_EVER) and instant_ms(end) <= now_ms
            billed = row.get("isPrimaryMeterRegion", True)
            if not isinstance(billed, bool):
                raise ValueError(f"isPrimaryMeterRegion is {str(billed)[:50]!r}")
        except (KeyError, ValueError) as error:
            finding.flag(Flag.MALFORMED, subject, f"{type(error).__name__} {error} in {str(dict(row))[:200]}")
            return None
        if effective_ms > now_ms or ended:
            finding.skip(SkipReason.OVER if ended else SkipReason.NOT_YET)
            return None
        spot = any(str(row.get(field, "")).lower().endswith(" spot") for field in ("skuName", "meterName"))
        return (name, CapacityType.SPOT if spot else CapacityType.ON_DEMAND), _Meter(billed, effective_ms, price)

    def _refused(self, finding: Finding) -> dict[tuple[str, CapacityType], str] | None:
        """Why the subscription cannot start a (lower-case size, capacity type). None without a subscription."""
        if self._connections is None:
            return None
        refused: dict[tuple[str, CapacityType], str] = {}
        offered = set()
        for sku in self._connections.resource_skus(finding.region):
            finding.rows += 1
            if sku is None or sku.resource_type != "virtualMachines":
                continue
            name = str(sku.name).lower()
            offered.add(name)
            capabilities = {row.name: row.value for row in sku.capabilities or ()}
            reasons = [_word(row.reason_code) for row in sku.restrictions or () if _word(row.type) == "Location"]
            for capacity_type in CapacityType:
                if reasons:
                    refused[name, capacity_type] = f"restricted: {', '.join(reasons)}"
                elif capacity_type is CapacityType.SPOT and capabilities.get("LowPriorityCapable") == "False":
                    refused[name, capacity_type] = "not sold as spot"
        for name in sizes().keys() - offered:
            for capacity_type in CapacityType:
                refused[name, capacity_type] = f"not offered in {finding.region}"
        return refused


def _word(value: Any) -> str:
    """The text of an enumeration value, which is a member or a string depending on the library's version."""
    return str(getattr(value, "value", value))


def _add(
    finding: Finding,
    name: str,
    size: Size | None,
    capacity_type: CapacityType,
    meter: _Meter,
    now_ms: int,
    refused: Mapping[tuple[str, CapacityType], str] | None,
) -> None:
    if size is None:
        subject = f"azure/{finding.region}/{name}/{capacity_type.value}"
        finding.flag(Flag.UNKNOWN_GPU, subject, "the size is not in the catalogue, or has only part of a GPU")
        return
    offer = Offer(
        "azure", finding.region, "", size.name, size.gpu, size.gpu_count, size.vcpu, size.memory_bytes, capacity_type
    )
    point = PricePoint(offer.id, meter.nano_usd_per_hour, meter.effective_at_ms, now_ms, SOURCE)
    reason = (refused or {}).get((name.lower(), capacity_type))
    if not meter.billed:
        finding.flag(Flag.AMBIGUOUS, offer.id, "Azure uses none of its meters for bills in this region", offer, point)
    elif reason is not None:
        finding.flag(Flag.NO_HARDWARE, offer.id, reason, offer, point)
    else:
        finding.price(offer, point)
