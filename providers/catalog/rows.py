"""Parses the catalogue's files into rows.

An invalid line is reported as a finding; nothing is guessed or skipped silently. providers.catalog.check compares rows
with each other.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from providers.billing.egress import EgressRow
from providers.catalog.files import DATA, Finding, Report, day_ms, label, lines, number
from providers.catalog.flags import Flag
from providers.hardware import GPUS, canonical_gpu
from providers.money import NANO_USD, usd

PRICE_COLUMNS = ("provider", "region", "zone", "instance_type", "capacity", "usd_per_hour", "date", "source")
FLAGGED_COLUMNS = (*PRICE_COLUMNS, "flag")
OWN_COLUMNS = ("provider", "region", "instance_type", "capacity", "usd_per_hour", "date", "source")
OWN_OPTIONAL = ("zone", "gpu", "gpu_count", "gpu_memory_gb", "vcpu", "memory_gib", "interconnect")
TYPE_FACTS = ("gpu", "gpu_count", "gpu_memory_gb", "vcpu", "memory_gib", "interconnect")
TYPE_COLUMNS = ("provider", "instance_type", *TYPE_FACTS, "retired_on", "source")
SOURCE_COLUMNS = ("id", "publisher", "url", "valid_on", "licence", "taken")
REGION_COLUMNS = ("provider", "family", "region", "source")
CONTINENT_COLUMNS = ("provider", "region", "continent")
EGRESS_COLUMNS = ("provider", "source_place", "target_place", "usd_per_gb", "date", "source")
INTERRUPTION_COLUMNS = ("provider", "region", "instance_type", "low_percent", "high_percent", "date", "source")
CAPACITIES = ("spot", "on_demand")
MOST_USD_PER_HOUR = 1e6
MOST_OF_ANYTHING = 1e6  # CPUs, GPUs, gibibytes, percent
LEAST_USD_PER_GPU = 0.01
MOST_USD_PER_GPU = 100.0


class InstanceType(NamedTuple):
    """A machine type. `gpu_memory_gb` is per GPU as the cloud states it, 0 if unknown; `vcpu` and `memory_gib` are 0
    and `interconnect` is "" if no public source was found (or there is only one GPU).
    """

    provider: str
    name: str
    gpu: str
    gpu_count: int
    gpu_memory_gb: float
    vcpu: int
    memory_gib: float
    interconnect: str
    retired_on: str
    source: str
    file: str
    line: int


class PriceRow(NamedTuple):
    """The price of a whole machine in nano-USD per hour on `date` (UTC), which begins at `at_ms` (epoch ms). `flag` is
    a Flag or "".
    """

    provider: str
    region: str
    zone: str
    instance_type: str
    capacity: str
    nano_usd: int
    date: str
    at_ms: int
    source: str
    flag: str
    file: str
    line: int


class Source(NamedTuple):
    """The origin of facts. `valid_on` is the day on which they were true (for undated lists, the earliest possible
    day).
    """

    id: str
    publisher: str
    url: str
    valid_on: str
    licence: str
    taken: str
    line: int


class Bucket(NamedTuple):
    """The share of machines that were preempted within a month, in percent; `high_percent` is None if the range is
    open.
    """

    provider: str
    region: str
    instance_type: str
    low_percent: float
    high_percent: float | None
    date: str
    source: str
    line: int


Types = Mapping[tuple[str, str], InstanceType]
Fields = Mapping[str, str]


def read_sources(report: Report, path: Path = DATA / "sources.csv") -> dict[str, Source]:
    """The sources by id. Invalid lines are reported."""
    found: dict[str, Source] = {}
    for line, fields in lines(path, SOURCE_COLUMNS, report):
        for name in SOURCE_COLUMNS:
            if not fields[name].strip():
                report(
                    Finding(label(path), line, name, "is empty", "give the publisher, date and licence of every source")
                )
        if day_ms(fields["valid_on"]) is None:
            report(_bad_date(path, line, "valid_on", fields["valid_on"]))
        found[fields["id"]] = Source(**fields, line=line)
    return found


def read_types(report: Report, paths: Iterable[Path]) -> dict[tuple[str, str], InstanceType]:
    """Instance types by (provider, name). Invalid lines are reported."""
    found: dict[tuple[str, str], InstanceType] = {}
    for path in paths:
        for line, fields in lines(path, TYPE_COLUMNS, report):
            kind = _type(path, line, fields, report)
            if kind is None:
                continue
            if (kind.provider, kind.name) in found:
                report(Finding(label(path), line, "instance_type", f"{kind.name} is listed twice", "remove one line"))
            found[kind.provider, kind.name] = kind
    return found


def _type(path: Path, line: int, fields: Fields, report: Report) -> InstanceType | None:
    gpu = canonical_gpu(fields["gpu"])
    if gpu is None:
        report(Finding(label(path), line, "gpu", f'"{fields["gpu"]}" is not a known GPU', _near(fields["gpu"])))
    numbers = {name: _amount(path, line, name, fields.get(name, ""), report) for name in TYPE_FACTS[1:5]}
    count = numbers["gpu_count"]
    if count is not None and (count < 1 or count != int(count)):
        report(
            Finding(label(path), line, "gpu_count", f"is {fields['gpu_count']}", "write a whole number of at least 1")
        )
        count = None
    if gpu is None or count is None or None in numbers.values():
        return None
    return InstanceType(
        fields["provider"],
        fields["instance_type"],
        gpu,
        int(count),
        numbers["gpu_memory_gb"] or 0,
        int(numbers["vcpu"] or 0),
        numbers["memory_gib"] or 0,
        fields.get("interconnect", ""),
        fields.get("retired_on", ""),
        fields["source"],
        label(path),
        line,
    )


def read_prices(
    path: Path, types: Types, sources: Container[str], report: Report, *, flagged: bool = False
) -> list[PriceRow]:
    """The valid rows of one of the catalogue's price files; in a `flagged` file, each says why it is not an offer."""
    found, where = [], label(path)
    for line, fields in lines(path, FLAGGED_COLUMNS if flagged else PRICE_COLUMNS, report):
        row = _price(where, line, fields, report)
        if row is None:
            continue
        if (row.provider, row.instance_type) not in types:
            message = f"{row.provider} {row.instance_type} is not in instance_types.csv"
            report(Finding(label(path), line, "instance_type", message, "add it there, or to excluded.csv"))
        elif row.source not in sources:
            message = f'"{row.source}" is not in sources.csv'
            report(Finding(label(path), line, "source", message, "add it there with publisher, date and licence"))
        elif _plausible(row, types[row.provider, row.instance_type], report):
            found.append(row)
    return found


def read_own(path: Path, types: Types, report: Report) -> tuple[list[PriceRow], dict[tuple[str, str], InstanceType]]:
    """The valid rows of a user's own file, and the instance types it adds to the catalogue.

    `source` may be any text that says where the price was found.
    """
    rows, brought, where = [], dict[tuple[str, str], InstanceType](), label(path)
    for line, fields in lines(path, OWN_COLUMNS, report, optional=OWN_OPTIONAL):
        row = _price(where, line, fields, report)
        if row is None:
            continue
        key = (row.provider, row.instance_type)
        if fields.get("gpu") or key not in types:
            if not fields.get("gpu"):
                message = f"{row.provider} {row.instance_type} is not in the catalogue"
                report(Finding(label(path), line, "gpu", message, "add columns gpu and gpu_count, and fill them in"))
                continue
            kind = _type(path, line, fields, report)
            if kind is None:
                continue
            if key not in types:
                brought.setdefault(key, kind)
            known = types.get(key) or brought[key]
            if (known.gpu, known.gpu_count) != (kind.gpu, kind.gpu_count):
                message = f"{row.instance_type} has {kind.gpu_count} x {kind.gpu} here, {known.gpu_count} x {known.gpu}"
                remedy = f"correct it, or see {known.file}:{known.line}"
                report(Finding(label(path), line, "gpu", f"{message} elsewhere", remedy))
                continue
        if _plausible(row, types.get(key) or brought[key], report):
            rows.append(row)
    return rows, brought


def _price(where: str, line: int, fields: Fields, report: Report) -> PriceRow | None:
    price = number(fields["usd_per_hour"])
    row = PriceRow(
        fields["provider"],
        fields["region"],
        fields.get("zone", ""),
        fields["instance_type"],
        fields["capacity"],
        usd(fields["usd_per_hour"]) if price is not None and price <= MOST_USD_PER_HOUR else 0,
        fields["date"],
        day_ms(fields["date"]) or 0,
        fields["source"],
        fields.get("flag", ""),
        where,
        line,
    )
    named = row.provider.strip() and row.region.strip() and row.instance_type.strip() and row.source.strip()
    known = row.capacity in CAPACITIES and ("flag" not in fields or row.flag in _FLAGS)
    if named and known and row.nano_usd > 0 and row.at_ms:
        return row
    for field, message, remedy in _wrong(row, fields):
        report(Finding(row.file, line, field, message, remedy))
    return None


def _wrong(row: PriceRow, fields: Fields) -> Iterator[tuple[str, str, str]]:
    """(field, message, remedy) for each invalid field."""
    for name in ("provider", "region", "instance_type", "source"):
        if not fields[name].strip():
            yield name, "is empty", "give provider, region, instance type and the source of the price"
    if row.capacity not in CAPACITIES:
        yield "capacity", f'is "{row.capacity}"', f"write one of: {', '.join(CAPACITIES)}"
    if row.nano_usd <= 0:
        remedy = "write dollars per hour of the whole machine, above 0"
        yield "usd_per_hour", f'is "{fields["usd_per_hour"]}"', remedy
    if not row.at_ms:
        yield "date", f'is "{row.date}"', "write the day of the price as YYYY-MM-DD"
    if "flag" in fields and row.flag not in _FLAGS:
        yield "flag", f'is "{row.flag}"', f"write one of: {', '.join(_FLAGS)}"


def _plausible(row: PriceRow, kind: InstanceType, report: Report) -> bool:
    per_gpu = row.nano_usd / NANO_USD / kind.gpu_count
    if LEAST_USD_PER_GPU <= per_gpu <= MOST_USD_PER_GPU:
        return True
    message = f"${per_gpu:,.6g} per GPU-hour is not plausible for {kind.gpu_count} x {kind.gpu}"
    report(Finding(row.file, row.line, "usd_per_hour", message, "write dollars per hour of the whole machine"))
    return False


_FLAGS = tuple(flag.value for flag in Flag)


def family(provider: str, instance_type: str) -> str:
    """The name used in known_regions.csv: for GCP the machine series (`a3-highgpu`), otherwise the instance type."""
    return instance_type.rsplit("-", 1)[0] if provider == "gcp" else instance_type


def read_known_regions(report: Report, path: Path = DATA / "known_regions.csv") -> dict[tuple[str, str, str], str]:
    """(provider, family, region) where the hardware is known to exist -> the source that says so."""
    rows = lines(path, REGION_COLUMNS, report)
    return {(row["provider"], row["family"], row["region"]): row["source"] for _, row in rows}


def read_continents(report: Report, path: Path = DATA / "continents.csv") -> dict[tuple[str, str], str]:
    """The continent of each (provider, region)."""
    rows = lines(path, CONTINENT_COLUMNS, report)
    return {(row["provider"], row["region"]): row["continent"] for _, row in rows}


def read_egress(path: Path, sources: Container[str], report: Report) -> list[EgressRow]:
    """The valid egress rates of a file. Invalid lines are reported."""
    found = []
    for line, fields in lines(path, EGRESS_COLUMNS, report):
        rate = _amount(path, line, "usd_per_gb", fields["usd_per_gb"], report)
        _sourced(path, line, fields, sources, report)
        if rate is not None:
            places = (fields["provider"], fields["source_place"], fields["target_place"])
            found.append(EgressRow(*places, usd(fields["usd_per_gb"])))
    return found


def read_buckets(path: Path, sources: Container[str], report: Report) -> list[Bucket]:
    """The valid interruption rates of a file. Invalid lines are reported."""
    found = []
    for line, fields in lines(path, INTERRUPTION_COLUMNS, report):
        low = _amount(path, line, "low_percent", fields["low_percent"], report)
        high = _amount(path, line, "high_percent", fields["high_percent"] or "100", report)
        _sourced(path, line, fields, sources, report)
        if low is None or high is None:
            continue
        if not low < high <= 100:
            report(Finding(label(path), line, "high_percent", f"{low} to {high}", "write low < high <= 100"))
            continue
        where = (fields["provider"], fields["region"], fields["instance_type"])
        found.append(
            Bucket(*where, low, high if fields["high_percent"] else None, fields["date"], fields["source"], line)
        )
    return found


def _amount(path: Path, line: int, field: str, text: str, report: Report) -> float | None:
    """A number of at least 0; 0 for an empty field; None (and a finding) for anything else."""
    value = number(text) if text else 0.0
    if value is None or not 0 <= value <= MOST_OF_ANYTHING:
        remedy = f"write a number from 0 to {MOST_OF_ANYTHING:g}, or leave it empty"
        report(Finding(label(path), line, field, f'is "{text}"', remedy))
        return None
    return value


def _sourced(path: Path, line: int, fields: Fields, sources: Container[str], report: Report) -> None:
    if fields["source"] not in sources:
        remedy = "add it there with publisher, date and licence"
        report(Finding(label(path), line, "source", f'"{fields["source"]}" is not in sources.csv', remedy))
    if day_ms(fields["date"]) is None:
        report(_bad_date(path, line, "date", fields["date"]))


def _bad_date(path: Path, line: int, field: str, text: str) -> Finding:
    return Finding(label(path), line, field, f'is "{text}"', "write a day as YYYY-MM-DD")


def _near(name: str) -> str:
    from difflib import get_close_matches

    by_folded = {known.casefold(): known for known in GPUS}
    near = get_close_matches(name.casefold(), by_folded, n=1)
    return f'did you mean "{by_folded[near[0]]}"?' if near else f"known: {', '.join(GPUS)}"
