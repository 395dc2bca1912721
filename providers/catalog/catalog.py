"""Catalog: the offers and prices of public lists, shipped with the product and usable offline.

Prices have the date of their list. Collected prices replace them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from types import MappingProxyType

from providers.billing.egress import EgressTable
from providers.catalog.accelerators import AcceleratorPrice, read_accelerators
from providers.catalog.files import DATA, CatalogError, Finding, day_ms
from providers.catalog.flags import Flag
from providers.catalog.hazard import Interruption
from providers.catalog.installed import in_force
from providers.catalog.manifest import Manifest, read_manifest, verify_files
from providers.catalog.rows import (
    InstanceType,
    PriceRow,
    Source,
    Types,
    read_buckets,
    read_continents,
    read_egress,
    read_own,
    read_prices,
    read_sources,
    read_types,
)
from providers.hardware import GIB
from providers.offer import CapacityType, Offer
from providers.price import PricePoint

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class FlaggedPrice:
    """A price that is kept but not offered, and why."""

    row: PriceRow
    flag: Flag

    @property
    def reason(self) -> str:
        """The reason in words."""
        return self.flag.reason


class Catalog:
    """The offers and facts of one set of files. Immutable."""

    def __init__(
        self,
        rows: Sequence[PriceRow],
        types: Types,
        sources: Mapping[str, Source],
        folder: Path = DATA,
        manifest: Manifest | None = None,
    ) -> None:
        """`rows` are the offers, in order. Use `load` or `extended`. Raises CatalogError if an offer is priced twice.

        `version` and `date` are those of the manifest, "" without one.
        """
        self.version = "" if manifest is None else manifest.version
        self.date = "" if manifest is None else manifest.date
        self._manifest = manifest
        self.rows = tuple(rows)
        self.types = types
        self._sources = sources
        self.folder = folder
        kinds = {capacity.value: capacity for capacity in CapacityType}
        self._offers = tuple(_offer(row, types[row.provider, row.instance_type], kinds) for row in self.rows)
        by_id: dict[str, PriceRow] = {}
        twice = []
        points = []
        texts: dict[tuple[str, str], str] = {}
        for row, offer in zip(self.rows, self._offers, strict=True):
            identity = offer.id
            first = by_id.setdefault(identity, row)
            if first is not row:
                remedy = f"keep this line or {first.file}:{first.line}"
                twice.append(Finding(row.file, row.line, "", f"prices {identity} a second time", remedy))
            key = (row.source, row.date)
            text = texts.get(key) or texts.setdefault(key, self._source_text(*key))
            points.append(PricePoint(identity, row.nano_usd, row.at_ms, row.at_ms, text))
        if twice:
            raise CatalogError(twice)
        self._prices = tuple(points)

    def offers(self) -> tuple[Offer, ...]:
        """The offers that may be chosen. A zone of "" means anywhere in the region; `vcpu` and `memory_bytes` are 0 if
        no public source was found.
        """
        return self._offers

    def prices(self) -> tuple[PricePoint, ...]:
        """The price of each of `offers()`, in the same order; effective and observed on the date of its source."""
        return self._prices

    def flagged(self) -> tuple[FlaggedPrice, ...]:
        """Prices in public lists that are not offers, and why. Raises CatalogError."""
        return self._flagged

    @cached_property
    def _flagged(self) -> tuple[FlaggedPrice, ...]:
        findings: list[Finding] = []
        path = self.folder / "flagged.csv"
        rows = read_prices(path, self.types, self._sources, findings.append, flagged=True)
        _refuse(findings)
        return tuple(FlaggedPrice(row, Flag(row.flag)) for row in rows)

    def accelerators(self) -> tuple[AcceleratorPrice, ...]:
        """Prices of accelerators that the trainers cannot use yet. Raises CatalogError."""
        return self._accelerators

    @cached_property
    def _accelerators(self) -> tuple[AcceleratorPrice, ...]:
        findings: list[Finding] = []
        rows = read_accelerators(self.folder / "accelerators.csv", self._sources, findings.append)
        _refuse(findings)
        return tuple(rows)

    def sources(self) -> tuple[Source, ...]:
        """The publishers of all facts, with their dates and licences."""
        return tuple(self._sources.values())

    def instance_type(self, offer: Offer) -> InstanceType:
        """The facts of an offer's machine: GPU memory, interconnect and their source. Raises KeyError."""
        return self.types[offer.provider, offer.instance_type]

    def age_days(self, now_ms: int) -> tuple[float, float] | None:
        """Age of the newest and the oldest offered price in days at `now_ms`; None if there are no offers."""
        instants = [point.effective_at_ms for point in self._prices]
        if not instants:
            return None
        return (now_ms - max(instants)) / DAY_MS, (now_ms - min(instants)) / DAY_MS

    @cached_property
    def interruptions(self) -> Mapping[tuple[str, str, str], Interruption]:
        """How often spot machines are preempted, by (provider, region, instance_type). Raises CatalogError."""
        findings: list[Finding] = []
        found = {}
        for path in sorted(self.folder.glob("interruptions*.csv")):
            for bucket in read_buckets(path, self._sources, findings.append):
                found[bucket.provider, bucket.region, bucket.instance_type] = Interruption(
                    bucket.low_percent / 100,
                    None if bucket.high_percent is None else bucket.high_percent / 100,
                    day_ms(bucket.date) or 0,
                    self._source_text(bucket.source, bucket.date),
                )
        _refuse(findings)
        return MappingProxyType(found)

    def egress(self) -> EgressTable:
        """List prices of moving bytes between locations. Raises CatalogError."""
        return self._egress

    @cached_property
    def _egress(self) -> EgressTable:
        findings: list[Finding] = []
        rows = []
        for path in sorted(self.folder.glob("egress*.csv")):
            rows += read_egress(path, self._sources, findings.append)
        continents = read_continents(findings.append, self.folder / "continents.csv")
        _refuse(findings)
        try:
            return EgressTable(rows, continents)
        except ValueError as error:
            raise CatalogError([Finding("egress*.csv", 0, "", str(error), "keep one of the lines")]) from error

    def extended(self, path: Path) -> Catalog:
        """This catalogue plus the rows of a user's own file (docs/catalog.md), which replace equal ones here.

        Raises CatalogError that lists every invalid line.
        """
        findings: list[Finding] = []
        own, brought = read_own(path, self.types, findings.append)
        _refuse(findings)
        replaced = {offer_key(row) for row in own}
        kept = [row for row in self.rows if offer_key(row) not in replaced]
        return Catalog([*kept, *own], {**self.types, **brought}, self._sources, self.folder, self._manifest)

    def _source_text(self, source: str, day: str) -> str:
        known = self._sources.get(source)
        return f"{known.publisher if known is not None else source}, {day}"


def read(folder: Path) -> Catalog:
    """The catalogue in a folder. Raises CatalogError that lists every invalid line."""
    findings: list[Finding] = []
    manifest = read_manifest(folder, findings.append)
    sources = read_sources(findings.append, folder / "sources.csv")
    types = read_types(findings.append, sorted(folder.glob("instance_types*.csv")))
    rows = []
    for path in sorted(folder.glob("prices_*.csv")):
        rows += read_prices(path, types, sources, findings.append)
    _refuse(findings)
    return Catalog(rows, types, sources, folder, manifest)


def load() -> Catalog:
    """The active catalogue, read once per version.

    If the installed one is damaged (`damage` says how), the bundled one is used, so that a control plane keeps running;
    every price names the catalogue it comes from.
    """
    return _read_once(_folder())


def damage() -> tuple[Finding, ...]:
    """Why the installed catalogue is not used; empty if it is used or none is installed."""
    try:
        found = in_force()
    except CatalogError as error:
        return error.findings
    return _unusable(found.folder) if found.installed else ()


def _folder() -> Path:
    try:
        found = in_force()
    except CatalogError:
        return DATA
    return DATA if found.installed and _unusable(found.folder) else found.folder


@lru_cache(maxsize=2)
def _unusable(folder: Path) -> tuple[Finding, ...]:
    """What is wrong with an installed catalogue. Its rows were checked when it was installed."""
    findings = verify_files(folder)
    if not findings:
        try:
            _read_once(folder)
        except CatalogError as error:
            findings = error.findings
    return findings


@lru_cache(maxsize=2)
def _read_once(folder: Path) -> Catalog:
    return read(folder)


def instance_types(provider: str) -> tuple[InstanceType, ...]:
    """The GPU machines of a provider; reads no prices. Raises CatalogError."""
    return _types_once(_folder(), provider)


@lru_cache(maxsize=16)
def _types_once(folder: Path, provider: str) -> tuple[InstanceType, ...]:
    findings: list[Finding] = []
    types = read_types(findings.append, sorted(folder.glob("instance_types*.csv")))
    if findings:
        raise CatalogError(findings)
    return tuple(kind for (name, _), kind in types.items() if name == provider)


def age_days(at_ms: int, now_ms: int) -> float:
    """The age in days at `now_ms` of a fact from `at_ms` (epoch ms)."""
    return (now_ms - at_ms) / DAY_MS


def _offer(row: PriceRow, kind: InstanceType, capacities: Mapping[str, CapacityType]) -> Offer:
    return Offer(
        row.provider,
        row.region,
        row.zone,
        row.instance_type,
        kind.gpu,
        kind.gpu_count,
        kind.vcpu,
        round(kind.memory_gib * GIB),
        capacities[row.capacity],
    )


def offer_key(row: PriceRow) -> tuple[str, ...]:
    """The parts of an offer's id."""
    return (row.provider, row.region, row.zone, row.instance_type, row.capacity)


def _refuse(findings: Iterable[Finding]) -> None:
    found = list(findings)
    if found:
        raise CatalogError(found)
