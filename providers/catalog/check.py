"""Checks a catalogue as a whole: contradictions between rows, offers that do not exist, impossible prices.

Every finding names file, line, field and remedy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from providers.catalog.accelerators import AcceleratorPrice
from providers.catalog.catalog import Catalog, offer_key, read
from providers.catalog.files import DATA, CatalogError, Finding, day_ms
from providers.catalog.flags import Flag, judge_spot
from providers.catalog.rows import InstanceType, PriceRow, family, read_known_regions, read_own
from providers.hardware import GB, GPUS, canonical_gpu
from providers.money import NANO_USD

MEMORY_TOLERANCE = 0.1  # clouds give GPU memory in 10^9 or 2^30 bytes, with or without the part that ECC uses
MOST_GPUS = 16

OnDemand = Mapping[tuple[str, str, str], PriceRow]
Known = Mapping[tuple[str, str, str], str]


@dataclass(frozen=True, slots=True)
class Verdict:
    """`checked` is the number of prices checked, including flagged ones. `findings` is empty if nothing is wrong."""

    checked: int
    findings: tuple[Finding, ...]


def verify(now_ms: int, folder: Path = DATA) -> Verdict:
    """Check the catalogue in a folder as of `now_ms` (epoch ms)."""
    findings: list[Finding] = []
    try:
        catalog = read(folder)
        flagged = [each.row for each in catalog.flagged()]
        accelerators = catalog.accelerators()
        _ = catalog.interruptions, catalog.egress()
    except CatalogError as error:
        return Verdict(0, error.findings)
    known = read_known_regions(findings.append, folder / "known_regions.csv")
    for source in catalog.sources():
        if (day_ms(source.valid_on) or 0) > now_ms:
            findings.append(Finding("sources.csv", source.line, "valid_on", *_future(source.valid_on)))
    for kind in catalog.types.values():
        findings += _hardware(kind)
    findings += _prices(catalog.rows, catalog, known, now_ms)
    findings += _flags(flagged, catalog, known)
    findings += _accelerators(accelerators, now_ms)
    return Verdict(len(catalog.rows) + len(flagged) + len(accelerators), tuple(findings))


def verify_own(path: Path, catalog: Catalog, now_ms: int) -> Verdict:
    """Check a user's own file, by itself and together with `catalog`, as of `now_ms` (epoch ms)."""
    findings: list[Finding] = []
    own, brought = read_own(path, catalog.types, findings.append)
    known = read_known_regions(findings.append)
    for kind in brought.values():
        findings += _hardware(kind)
    if not findings:
        try:
            findings += _prices(own, catalog.extended(path), known, now_ms)
        except CatalogError as error:
            findings += error.findings
    return Verdict(len(own), tuple(findings))


def _prices(rows: Sequence[PriceRow], catalog: Catalog, known: Known, now_ms: int) -> Iterator[Finding]:
    on_demand = _on_demand(catalog)
    families = {(provider, kind) for provider, kind, _ in known}
    for row in rows:
        kind = catalog.types[row.provider, row.instance_type]
        if row.at_ms > now_ms:
            yield Finding(row.file, row.line, "date", *_future(row.date))
        beside = on_demand.get((row.provider, row.region, row.instance_type))
        if row.capacity == "spot" and beside is not None:
            verdict = judge_spot(row.nano_usd, beside.nano_usd)
            if verdict is not None:
                message = (
                    f"{verdict.reason}: {row.nano_usd / NANO_USD:g} here, on-demand {beside.nano_usd / NANO_USD:g}"
                )
                remedy = f"remove it or correct it; on-demand: {beside.file}:{beside.line}"
                yield Finding(row.file, row.line, "usd_per_hour", message, remedy)
        kin = family(row.provider, row.instance_type)
        if (row.provider, kin) in families and (row.provider, kin, row.region) not in known:
            message = f"{kin} is not known to exist in {row.region}"
            remedy = "remove it, unless its publisher documents machines there (known_regions.csv)"
            yield Finding(row.file, row.line, "region", message, remedy)
        if kind.retired_on and row.date >= kind.retired_on:
            message = f"{row.instance_type} was retired on {kind.retired_on}"
            yield Finding(row.file, row.line, "instance_type", message, "remove it")


def _flags(flagged: Sequence[PriceRow], catalog: Catalog, known: Known) -> Iterator[Finding]:
    """Check that every flagged row is flagged for a valid reason and is not an offer as well."""
    offered = {offer_key(row): row for row in catalog.rows}
    for row in flagged:
        beside = offered.get(offer_key(row))
        if beside is not None:
            remedy = "keep one of the two"
            yield Finding(row.file, row.line, "", f"is also an offer at {beside.file}:{beside.line}", remedy)
        if row.flag == Flag.PHANTOM and (row.provider, family(row.provider, row.instance_type), row.region) in known:
            yield Finding(
                row.file,
                row.line,
                "flag",
                "is phantom, but known_regions.csv lists the hardware",
                "compile the files again",
            )
        if row.flag == Flag.RETIRED and not catalog.types[row.provider, row.instance_type].retired_on:
            yield Finding(
                row.file,
                row.line,
                "flag",
                "is retired, but the instance type has no retired_on",
                "set retired_on, or remove the flag",
            )


def _accelerators(prices: Sequence[AcceleratorPrice], now_ms: int) -> Iterator[Finding]:
    seen: dict[tuple[str, ...], AcceleratorPrice] = {}
    for row in prices:
        if (day_ms(row.date) or 0) > now_ms:
            yield Finding(row.file, row.line, "date", *_future(row.date))
        if canonical_gpu(row.accelerator) is not None:
            message = f"{row.accelerator} is a GPU, so its price is an offer"
            yield Finding(row.file, row.line, "accelerator", message, "move it to prices_by_hand.csv")
        key = (row.provider, row.region, row.zone, row.instance_type, row.capacity)
        first = seen.setdefault(key, row)
        if first is not row:
            message = f"{row.instance_type} is priced twice"
            yield Finding(row.file, row.line, "", message, f"keep this line or {first.file}:{first.line}")


def _hardware(kind: InstanceType) -> Iterator[Finding]:
    facts = GPUS[kind.gpu]
    memory_gb = facts.memory_bytes / GB
    if kind.gpu_memory_gb and abs(kind.gpu_memory_gb - memory_gb) > MEMORY_TOLERANCE * memory_gb:
        message = f"{kind.gpu_memory_gb:g} GB, but a {kind.gpu} has {memory_gb:g} GB ({facts.source})"
        yield Finding(kind.file, kind.line, "gpu_memory_gb", message, "write the memory of one GPU, or correct the GPU")
    if kind.gpu_count > MOST_GPUS:
        message = f"{kind.gpu_count} GPUs in one machine"
        yield Finding(kind.file, kind.line, "gpu_count", message, f"no machine has more than {MOST_GPUS}")


def _on_demand(catalog: Catalog) -> OnDemand:
    return {(row.provider, row.region, row.instance_type): row for row in catalog.rows if row.capacity == "on_demand"}


def _future(day: str) -> tuple[str, str]:
    return f"{day} is in the future", "write the day on which the fact was true"
