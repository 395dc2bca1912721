"""Computes the price of a GCP machine from the SKUs of its cores, memory, GPUs and disks.

GCP prices no machines. A machine is vCPU x core + GiB x RAM + GPUs x GPU + GiB of local SSD, each a SKU identified by
its description; exceptions are in the tables below. Whether a SKU is spot follows from its description or its usage
type: some spot SKUs (B200 slices, local SSD) are listed under OnDemand, and so are DWS Calendar SKUs, which are not
on-demand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from providers.collect.facts import MAX_PRICE_USD, Finding, Flag, SkipReason, instant_ms
from providers.money import format_usd

NANO = 1_000_000_000

NOT_PLAIN = re.compile(
    r"sole tenancy|reserved|premium|custom|suspended|commitment|dynamic workload|\bdws\b|calendar|flex.?start", re.I
)
"""Words of SKUs that are not plain on-demand or spot prices, whatever their usage type."""
SPOT = re.compile(r"spot preemptible|attached to (?:spot )?preemptible", re.I)
GPU = re.compile(r"^(?:Spot Preemptible )?(?:A4X? )?(?:Nvidia )?(?:Tesla )?(.+?) (?:GPU|\(1 gpu slice\))(?: |$)", re.I)
RTX = re.compile(r"^(?:Spot Preemptible )?(RTX 6000 96GB) ", re.I)
PART = re.compile(r"^(?:Spot Preemptible )?(.+?) (?:Predefined )?(?:Instance )?(Core|Ram)(?: |$)", re.I)
FAMILY_SSD = re.compile(r"^(?:Spot Preemptible )?(\S+) Instance Local SSD", re.I)
PLAIN_SSD = re.compile(r"^SSD backed Local Storage", re.I)

GPUS = {
    "nvidia-tesla-k80": ("K80", {"k80"}),
    "nvidia-tesla-p4": ("P4", {"p4"}),
    "nvidia-tesla-p100": ("P100", {"p100"}),
    "nvidia-tesla-v100": ("V100", {"v100"}),
    "nvidia-tesla-t4": ("T4", {"t4"}),
    "nvidia-l4": ("L4", {"l4"}),
    "nvidia-tesla-a100": ("A100-40GB", {"a100"}),
    "nvidia-a100-80gb": ("A100-80GB", {"a100 80gb"}),
    "nvidia-h100-80gb": ("H100", {"h100 80gb"}),
    "nvidia-h100-mega-80gb": ("H100", {"h100 80gb mega", "h100 mega 80gb", "h100 80gb plus", "h100 plus 80gb"}),
    "nvidia-h200-141gb": ("H200", {"h200 141gb", "h200"}),
    "nvidia-b200": ("B200", {"b200"}),
    "nvidia-rtx-pro-6000": ("RTX-PRO-6000", {"rtx 6000 96gb"}),
}
"""Accelerator type -> (our name, the names in SKUs, in lower case)."""
KNOWN_GPUS = frozenset().union(*(words for _, words in GPUS.values()))
UNIT = re.compile(r"(?P<count>[1-9]\d{0,6})? ?(?:(?P<size>[KMGT]i?By)\.)?(?P<time>s|min|h|d|mo)", re.ASCII)
TIMES = {"s": Fraction(1, 3600), "min": Fraction(1, 60), "h": Fraction(1), "d": Fraction(24), "mo": Fraction(730)}
"""Usage units in hours. The month is GCP's, which prices SSD by it."""
SIZES = {
    **{f"{letter}iBy": Fraction(1024) ** (power - 3) for power, letter in enumerate("KMGT", 1)},
    **{f"{letter}By": Fraction(1000**power, 1 << 30) for power, letter in enumerate("KMGT", 1)},
}
"""In GiB."""
FAMILIES = {"a3-megagpu": "a3plus", "a3-ultragpu": "a3ultra"}
"""Machine family -> its name in core and RAM SKUs, where that is not the first part of the machine's name."""
WHOLE_SLICE = {"a4"}
"""Families whose GPU SKU includes the cores, memory and disks of its share of the machine."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine type of a zone. `accelerator` is GCP's name of its GPU, "" if there is none; `local_ssd_gib` is the
    size of the disks that always come with it.
    """

    name: str
    vcpu: int
    memory_mib: int
    accelerator: str
    gpu_count: int
    local_ssd_gib: int = 0


@dataclass(slots=True)
class PriceList:
    """Prices in nano-USD per hour and unit, by (name, region, spot)."""

    cores: dict[tuple[str, str, bool], int] = field(default_factory=dict)
    ram: dict[tuple[str, str, bool], int] = field(default_factory=dict)
    gpus: dict[tuple[str, str, bool], int] = field(default_factory=dict)
    ssd: dict[tuple[str, str, bool], int] = field(default_factory=dict)

    def price(self, machine: Machine, region: str, spot: bool) -> int:
        """nano-USD per hour for the whole machine. Raises LookupError that names the part without a SKU."""
        gpu = self._gpu(machine.accelerator, region, spot) * machine.gpu_count if machine.accelerator else 0
        family = machine.name.split("-")[0]
        if family in WHOLE_SLICE:
            return gpu
        words = machine.name.split("-")
        sku_family = FAMILIES.get("-".join(words[:2]), words[0])
        core = _part(self.cores, sku_family, region, spot, "core")
        ram = _part(self.ram, sku_family, region, spot, "RAM")
        total = gpu + machine.vcpu * core + machine.memory_mib * ram // 1024
        if machine.local_ssd_gib:
            rate = self.ssd.get((sku_family, region, spot))
            total += machine.local_ssd_gib * (_part(self.ssd, "", region, spot, "local SSD") if rate is None else rate)
        return total

    def _gpu(self, accelerator: str, region: str, spot: bool) -> int:
        for name in sorted(GPUS[accelerator][1]):
            if (name, region, spot) in self.gpus:
                return self.gpus[name, region, spot]
        raise LookupError(f"no SKU for GPU {accelerator}")


def _part(rates: Mapping[tuple[str, str, bool], int], name: str, region: str, spot: bool, what: str) -> int:
    try:
        return rates[name, region, spot]
    except KeyError:
        raise LookupError(f"no SKU for {what} {name}".strip()) from None


@dataclass(frozen=True, slots=True)
class Part:
    """What one SKU prices. `versions` are (effective_at_ms, nano-USD per hour and unit), the oldest first."""

    table: str
    name: str
    spot: bool
    regions: tuple[str, ...]
    description: str
    versions: tuple[tuple[int, int], ...]


def parts_of(skus: Iterable[Mapping[str, Any]], finding: Finding) -> Iterator[Part]:
    """The SKUs of Compute Engine that are part of a machine. Invalid ones are flagged, all others skipped."""
    for sku in skus:
        try:
            part = _part_of(sku, finding)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
            text = f"{type(error).__name__} {error} in {str(sku)[:200]}"
            finding.flag(Flag.MALFORMED, f"gcp/{finding.region}/catalog", text)
            continue
        if part is None:
            continue
        if part.table == "gpus" and part.name not in KNOWN_GPUS:
            subject = f"gcp/catalog/{part.name}"
            finding.flag(Flag.UNKNOWN_GPU, subject, f"a price of an unknown GPU: {part.description}")
        yield part


def price_list(parts: Iterable[Part], at_ms: int, finding: Finding | None = None) -> PriceList:
    """The prices in force at `at_ms`, because versions may be dated ahead. Two SKUs for the same part are flagged in
    `finding`.
    """
    prices = PriceList()
    for part in parts:
        rates = getattr(prices, part.table)
        known = [nano for effective_ms, nano in part.versions if effective_ms <= at_ms]
        if not known or not known[-1]:
            if finding is not None:
                finding.skip(SkipReason.OVER if known else SkipReason.NOT_YET)
            continue
        for region in part.regions:
            other = rates.setdefault((part.name, region, part.spot), known[-1])
            if other != known[-1]:
                rates[part.name, region, part.spot] = max(other, known[-1])
                if finding is not None:
                    both = f"{format_usd(known[-1])} and {format_usd(other)}"
                    text = f"{part.description}: {both}; the higher price counts"
                    finding.flag(Flag.AMBIGUOUS, f"gcp/{region}/{part.name}", text)
    return prices


def _part_of(sku: Mapping[str, Any], finding: Finding) -> Part | None:
    description, category = str(sku["description"]), sku["category"]
    if category["usageType"] not in ("OnDemand", "Preemptible") or NOT_PLAIN.search(description):
        finding.skip(SkipReason.OTHER_PRODUCT)
        return None
    found = _what(description, category["resourceFamily"])
    if found is None:
        finding.skip(SkipReason.OTHER_PRODUCT)
        return None
    versions = []
    table, name = found
    for row in sku["pricingInfo"]:
        expression = row["pricingExpression"]
        price = _tier(expression["tieredRates"])
        if price.get("currencyCode", "USD") != "USD":
            text = f"{description} is priced in {price['currencyCode']}"
            finding.flag(Flag.CURRENCY, f"gcp/{sku.get('skuId', '')}", text)
            return None
        nano = round(_nano(price) / _hours(expression["usageUnit"], table))
        if not 0 <= nano <= MAX_PRICE_USD * NANO:
            raise ValueError(f"{nano / NANO:g} USD per hour is not a valid price")
        versions.append((instant_ms(row["effectiveTime"]) if "effectiveTime" in row else 0, nano))
    spot = category["usageType"] == "Preemptible" or bool(SPOT.search(description))
    return Part(table, name, spot, tuple(map(str, sku["serviceRegions"])), description, tuple(sorted(versions)))


def _tier(rates: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The price of the first unit that is not free. A first tier may be a free allowance, which one machine uses up;
    later tiers are volume discounts. The list may be in any order.
    """
    tiers = [(float(rate.get("startUsageAmount", 0)), index) for index, rate in enumerate(rates)]
    if not tiers or not all(0 <= start < float("inf") for start, _ in tiers):
        raise ValueError(f"invalid price tiers, starting at {[start for start, _ in tiers]}")
    in_order: list[Mapping[str, Any]] = [rates[index]["unitPrice"] for _, index in sorted(tiers)]
    return next((price for price in in_order if _nano(price)), in_order[0])


def _nano(price: Mapping[str, Any]) -> int:
    nano = int(price.get("units") or 0) * NANO + int(price.get("nanos") or 0)
    if nano < 0:
        raise ValueError(f"{nano / NANO:g} USD is not a valid price")
    return nano


def _hours(unit: str, table: str) -> Fraction:
    """Hours (times GiB for memory and disks) in a usage unit: "h", "100h", "s", "GiBy.h", "GiBy.mo".

    Raises ValueError for any other unit.
    """
    found = UNIT.fullmatch(unit)
    if found is None or bool(found["size"]) is not (table in ("ram", "ssd")):
        raise ValueError(f"{unit[:50]!r} is not the unit of a {table} price")
    size = SIZES[found["size"]] if found["size"] else Fraction(1)
    return int(found["count"] or 1) * size * TIMES[found["time"]]


def _what(description: str, resource_family: str) -> tuple[str, str] | None:
    """(table of the PriceList, name there) of a SKU; None if it is not part of a machine."""
    if resource_family == "Storage":
        family = FAMILY_SSD.match(description)
        if family:
            return "ssd", family.group(1).lower()
        return ("ssd", "") if PLAIN_SSD.match(description) else None
    gpu = RTX.match(description) or GPU.match(description)
    if gpu:
        return "gpus", gpu.group(1).lower()
    part = PART.match(description)
    if part:
        table = "cores" if part.group(2).lower() == "core" else "ram"
        return table, part.group(1).lower().removesuffix(" instance").replace(" ", "")
    return None
