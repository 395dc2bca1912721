"""List prices of GCP, on-demand and spot: the Billing Catalog's SKUs for machine types that zones actually offer.

GCP has SKUs for regions without the hardware, at a ninth of the usual price. So a machine type has a price here only if
the Compute API lists it in a zone.
"""

from __future__ import annotations

import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from providers.collect.facts import Finding, Flag, PollResult, SkipReason, gather
from providers.collect.http import Http, Patience
from providers.errors import ProviderError
from providers.gcp.prices.billing import BILLING, BillingCatalog
from providers.gcp.prices.skus import GPUS, Machine, PriceList, parts_of, price_list
from providers.gcp.session import Connections, listed_regions, to_provider_error
from providers.hardware import canonical_gpu
from providers.money import format_usd
from providers.offer import CapacityType, Offer
from providers.price import PricePoint

SOURCE = "GCP Cloud Billing Catalog"
SSD_GIB = 375
WANTED = 'name eq "(a2|a3|a4|g2|g4|n1-standard)-.*"'
SPOT_ONLY = re.compile(r"a3-highgpu-[124]g|a3-ultragpu-|a4-")
"""Sold as spot or by DWS, never on-demand, although their parts have on-demand SKUs."""
N1_VCPU_PER_GPU = 8
N1_COUNTS = (1, 2, 4, 8)
"""How many GPUs are attached to N1 machines: one machine shape per count, within GCP's limits for all of them."""


class CatalogSource(ABC):
    """Base of the sources that read the catalogue. `project` None: the credentials' own. The endpoints are for
    emulators.
    """

    provider = "gcp"
    kind: ClassVar[str]

    def __init__(
        self,
        *,
        name: str = "",
        regions: Sequence[str] = (),
        project: str | None = None,
        compute: str | None = None,
        billing: str = BILLING,
        call_s: float = 30.0,
        attempts: int = 3,
        connections: Connections | None = None,
    ) -> None:
        self.name = name or self.kind
        self._only = tuple(regions)
        self._connections = connections or Connections(project, compute, call_s, patience_s=call_s * attempts)
        self._billing = BillingCatalog(Http(Patience(read_s=call_s, attempts=attempts)), self._connections, billing)
        self._reading = threading.Lock()

    def regions(self) -> Sequence[str]:
        """The configured regions, else the project's. Raises ProviderError if they cannot be listed."""
        return self._only or listed_regions(self._connections)

    def poll(self, region: str, now_ms: int, since_ms: int | None) -> PollResult:
        """All prices of one region in the catalogue."""
        return gather(region, lambda finding: self._read(finding, now_ms, since_ms), to_provider_error)

    @abstractmethod
    def _read(self, finding: Finding, now_ms: int, since_ms: int | None) -> None:
        """Add the prices of a region."""

    def _skus(self, finding: Finding, period: Mapping[str, str] | None = None) -> Iterator[dict[str, Any]]:
        """The SKUs of Compute Engine. `period` (startTime, endTime) requests the versions of that time. Raises
        ProviderError.
        """
        for rows in self._billing.pages({"currencyCode": "USD", **(period or {})}):
            finding.page(len(rows))
            yield from rows


class ListPrices(CatalogSource):
    """Source `gcp-prices`: current prices, spot and on-demand, of `machine_types`, with or without GPUs, or else of all
    types with GPUs."""

    kind = "gcp-prices"
    _prices: PriceList | ProviderError | None = None

    def __init__(self, *, machine_types: Sequence[str] = (), **options: Any) -> None:
        super().__init__(**options)
        self._machine_types = tuple(machine_types)

    def _read(self, finding: Finding, now_ms: int, since_ms: int | None) -> None:
        prices = self._all_prices(finding, now_ms)
        seen: set[str] = set()
        failed: ProviderError | None = None
        for zone in self._connections.zones_by_region().get(finding.region, []):
            try:
                found = machines_in(self._connections, zone, finding, self._machine_types)
            except Exception as error:
                failed = to_provider_error(error)
                if failed is None:
                    raise
                continue  # a failure in one zone does not affect the others
            for machine in found:
                seen.add(machine.accelerator)
                _add(finding, zone, machine, prices, now_ms)
        if failed is not None:
            raise failed
        _flag_phantoms(finding, seen, prices)

    def _all_prices(self, finding: Finding, now_ms: int) -> PriceList:
        """The prices of all regions: the first poll that needs them reads the catalogue, and its result or error is
        shared.
        """
        with self._reading:
            if self._prices is None:
                try:
                    self._prices = price_list(parts_of(self._skus(finding), finding), now_ms, finding)
                except ProviderError as error:
                    self._prices = error
            if isinstance(self._prices, ProviderError):
                raise self._prices
            return self._prices


def machines_in(connections: Connections, zone: str, finding: Finding, only: Sequence[str] = ()) -> list[Machine]:
    """The machine types that a zone actually offers: those of `only`, or else all with GPUs. Those with an unknown GPU
    are flagged."""
    shapes_of_only = "|".join(sorted({name.partition("+")[0] for name in only}))
    wanted = f'name eq "({shapes_of_only})"' if only else WANTED
    rows = connections.list("MachineTypesClient", finding.page, zone=zone, filter=wanted, max_results=500)
    cards = connections.list("AcceleratorTypesClient", finding.page, zone=zone)
    found = []
    shapes = {}
    for row in rows:
        if row.deprecated.state in ("DEPRECATED", "OBSOLETE", "DELETED"):
            finding.skip(SkipReason.OVER)
            continue
        if not row.accelerators:
            shapes[row.name] = row
            if row.name in only and row.is_shared_cpu:
                finding.skip(SkipReason.OTHER_PRODUCT)  # it is billed for a part of its cores
            elif row.name in only:
                found.append(Machine(row.name, row.guest_cpus, row.memory_mb, "", 0))
            continue
        accelerator, count = row.accelerators[0].guest_accelerator_type, row.accelerators[0].guest_accelerator_count
        ssd = row.bundled_local_ssds.partition_count * SSD_GIB
        machine = Machine(row.name, row.guest_cpus, row.memory_mb, accelerator, count, ssd)
        if accelerator in GPUS:
            found.append(machine)
        else:
            subject = f"gcp/{finding.region}/{zone}/{row.name}"
            finding.flag(Flag.UNKNOWN_GPU, subject, f"its GPU is not in Tradewind's list: {accelerator}")
    for card in cards:
        if card.name not in GPUS:
            continue
        for count in N1_COUNTS:
            shape = shapes.get(f"n1-standard-{N1_VCPU_PER_GPU * count}")
            if shape is not None and count <= card.maximum_cards_per_instance and _goes_with_n1(card.name):
                name = f"{shape.name}+{count}x{card.name}"
                if not only or name in only:
                    found.append(Machine(name, shape.guest_cpus, shape.memory_mb, card.name, count))
    return found


def _goes_with_n1(accelerator: str) -> bool:
    return accelerator.startswith("nvidia-tesla-") and accelerator != "nvidia-tesla-a100"


def sold_as(machine: Machine) -> Iterator[CapacityType]:
    """The capacity types in which a machine type is sold."""
    if not SPOT_ONLY.match(machine.name):
        yield CapacityType.ON_DEMAND
    yield CapacityType.SPOT


def offer_of(region: str, zone: str, machine: Machine, capacity_type: CapacityType) -> Offer:
    """The offer of a machine type in a zone. Its `gpu` is None if it has no GPU, or one that providers.hardware does
    not list."""
    gpu = canonical_gpu(GPUS[machine.accelerator][0]) if machine.accelerator else None
    memory_bytes = machine.memory_mib << 20
    return Offer("gcp", region, zone, machine.name, gpu, machine.gpu_count, machine.vcpu, memory_bytes, capacity_type)


def _add(finding: Finding, zone: str, machine: Machine, prices: PriceList, now_ms: int) -> None:
    for capacity_type in sold_as(machine):
        offer = offer_of(finding.region, zone, machine, capacity_type)
        try:
            price = prices.price(machine, finding.region, capacity_type is CapacityType.SPOT)
        except LookupError as error:
            text = f"{zone} offers it, but its price is incomplete: {error.args[0]} ({capacity_type.value})"
            finding.flag(Flag.RENAMED_SKU, offer.id, text, offer)
            continue
        point = PricePoint(offer.id, price, now_ms, now_ms, SOURCE)
        if offer.gpu is None and machine.accelerator:
            finding.flag(Flag.UNKNOWN_GPU, offer.id, f"unknown GPU: {machine.accelerator}", offer, point)
        else:
            finding.price(offer, point)


def _flag_phantoms(finding: Finding, seen: set[str], prices: PriceList) -> None:
    """Flag GPUs that have a price in this region but are in none of its zones."""
    for accelerator, (_, words) in GPUS.items():
        if accelerator in seen:
            continue
        for (word, region, spot), rate in prices.gpus.items():
            if word in words and region == finding.region:
                kind = CapacityType.SPOT if spot else CapacityType.ON_DEMAND
                text = f"priced at {format_usd(rate)} per GPU-hour, but no zone of {region} has the hardware"
                finding.flag(Flag.NO_HARDWARE, f"gcp/{region}/{accelerator}/{kind.value}", text)
