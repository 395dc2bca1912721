"""Compiles the price files of providers/catalog/data from re-encoded public price lists.

    python -m scripts.compile_catalog ../shared/market

The repository contains the compiled files but not the lists, which are needed only to refresh the catalogue. Each offer
gets its latest on-demand and its latest spot price. The same input gives the same bytes. Files that are maintained
manually (sources, instance types, regions, exclusions) are only read. An instance type that is neither known nor
excluded is an error.
"""

from __future__ import annotations

import csv
import gzip
import io
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from providers.catalog.files import DATA, CatalogError, Finding
from providers.catalog.flags import Flag, judge_spot
from providers.catalog.rows import (
    EGRESS_COLUMNS,
    FLAGGED_COLUMNS,
    INTERRUPTION_COLUMNS,
    PRICE_COLUMNS,
    TYPE_COLUMNS,
    Types,
    family,
    read_known_regions,
    read_types,
)
from providers.hardware import GB, GPUS, canonical_gpu

Row = dict[str, str]
Files = dict[str, str]

_SKYPILOT_DAY = {"aws": "2025-09-01", "azure": "2025-03-01"}  # undated: the earliest possible day
_SKYPILOT_OTHER_DAY = "2026-01-01"
_GCP_DAY = "2026-07-30"
_ADVISOR_DAY = "2025-06-28"
_BUCKETS = {"<5%": (0, 5), "5-10%": (5, 10), "10-15%": (10, 15), "15-20%": (15, 20), ">20%": (20, None)}
_COMPANY = {"datacrunch": "verda", "lambdalabs": "lambda", "crusoecloud": "crusoe"}
_MARKETPLACE = "primeintellect"  # also the company behind its own data centres, dc_* and primecompute


@dataclass(frozen=True, slots=True)
class Price:
    """One line of a price file, before it is written. `usd` is per hour of the whole machine."""

    provider: str
    region: str
    zone: str
    instance_type: str
    capacity: str
    usd: float
    date: str
    source: str
    flag: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        return (self.provider, self.region, self.zone, self.instance_type, self.capacity)

    def line(self) -> list[str]:
        return [*self.key, f"{self.usd:.6f}".rstrip("0").rstrip("."), self.date, self.source, self.flag]


def compile_from(folder: Path, *, parquet: bool = True) -> Files:
    """The text of every compiled file by name. Without `parquet`, files that need pyarrow are left out."""
    lists = {"aws": _aws(folder), "azure": _azure(folder), "gcp": _gcp(folder), "small": _small(folder)}
    prices = {name: _latest(found) for name, found in lists.items()}
    files = {
        **{f"prices_{name}.csv": _written(price for price in of if not price.flag) for name, of in prices.items()},
        "flagged.csv": _written((price for of in prices.values() for price in of if price.flag), flags=True),
        "interruptions_aws.csv": _interruptions(folder),
        "egress_aws.csv": _egress_aws(folder),
        "egress_gcp.csv": _egress_gcp(folder),
    }
    if parquet:
        files |= _marketplace(folder)
    return files


def _read(path: Path) -> Iterator[Row]:
    with gzip.open(path, "rt", newline="") as file:
        yield from csv.DictReader(file)


def _text(head: Iterable[str], lines: Iterable[Iterable[object]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(lines)
    return out.getvalue()


def _latest(found: Iterable[Price]) -> list[Price]:
    """The latest price of each offer, with the reason if it is flagged."""
    latest: dict[tuple[str, ...], Price] = {}
    types, excluded = _types(), _exclusions()
    for price in found:
        known = (price.provider, price.instance_type) in types
        if known == any(fnmatchcase(price.instance_type, p) for c, p in excluded if c == price.provider):
            problem = "both known and excluded" if known else "neither in instance_types.csv nor in excluded.csv"
            raise SystemExit(f"{price.provider} {price.instance_type} is {problem}")
        if known and (price.key not in latest or price.date >= latest[price.key].date):
            latest[price.key] = price
    on_demand = {
        (price.provider, price.region, price.instance_type): price.usd
        for price in latest.values()
        if price.capacity == "on_demand" and not price.flag
    }
    judged = []
    for price in latest.values():
        flag = price.flag
        if not flag and types[price.provider, price.instance_type].retired_on:
            flag = Flag.RETIRED.value
        if not flag and price.capacity == "spot":
            beside = on_demand.get((price.provider, price.region, price.instance_type))
            verdict = judge_spot(price.usd, beside) if beside is not None else None
            flag = verdict.value if verdict is not None else ""
        judged.append(replace(price, flag=flag))
    return judged


def _written(prices: Iterable[Price], *, flags: bool = False) -> str:
    lines = [price.line() for price in sorted(prices, key=lambda price: price.key)]
    return _text(FLAGGED_COLUMNS, lines) if flags else _text(PRICE_COLUMNS, (line[:-1] for line in lines))


@cache
def _types() -> Types:
    findings: list[Finding] = []
    types = read_types(findings.append, [DATA / "instance_types.csv"])
    if findings:
        raise CatalogError(findings)
    return types


def _known_regions() -> dict[tuple[str, str, str], str]:
    findings: list[Finding] = []
    known = read_known_regions(findings.append)
    if findings:
        raise CatalogError(findings)
    return known


def _exclusions() -> list[tuple[str, str]]:
    with (DATA / "excluded.csv").open(newline="") as file:
        return [(row["provider"], row["pattern"]) for row in csv.DictReader(file)]


def _of_row(row: Row, *, zone: str, date: str, source: str) -> Iterator[Price]:
    """On-demand prices by region and spot prices by zone."""
    where = (row["cloud"], row["region"])
    if row["ondemand_usd_h"]:
        yield Price(*where, "", row["instance_type"], "on_demand", float(row["ondemand_usd_h"]), date, source)
    if row["spot_usd_h"]:
        yield Price(*where, zone, row["instance_type"], "spot", float(row["spot_usd_h"]), date, source)


def _snapshot(folder: Path, choose: Callable[[str], bool]) -> Iterator[Row]:
    return (row for row in _read(folder / "snapshot_cross_cloud.csv.gz") if choose(row["cloud"]))


def _history(folder: Path, cloud: str) -> Iterator[Price]:
    rows = [row for row in _read(folder / "ondemand_gpu_history_aws_azure.csv.gz") if row["cloud"] == cloud]
    newest = max(row["observed_at"] for row in rows)[:10]
    for row in rows:
        date = row["observed_at"][:10]
        gone = "" if date == newest else Flag.WITHDRAWN.value
        usd = float(row["ondemand_usd_h"])
        yield Price(cloud, row["region"], "", row["instance_type"], "on_demand", usd, date, f"karpenter-{cloud}", gone)


def _aws(folder: Path) -> Iterator[Price]:
    seen = set()
    for row in _snapshot(folder, lambda cloud: cloud == "aws"):
        seen.add((row["region"], row["instance_type"]))
        yield from _of_row(row, zone=row["zone"], date=_SKYPILOT_DAY["aws"], source="skypilot-aws")
    history = [price for price in _history(folder, "aws") if (price.provider, price.instance_type) in _types()]
    yield from history
    # The advisor states a region's mean saving over a month; with the on-demand price of that day, that gives a price.
    then: dict[tuple[str, str], Price] = {}
    for price in sorted(history, key=lambda price: price.date):
        if price.date <= _ADVISOR_DAY:
            then[price.region, price.instance_type] = price
    for row in _advisor(folder):
        key = (row["region"], row["instance_type"])
        if key in then and key not in seen:
            usd = then[key].usd * (1 - int(row["savings_pct_vs_od"]) / 100)
            yield Price("aws", key[0], "", key[1], "spot", usd, _ADVISOR_DAY, "aws-spot-advisor")


def _azure(folder: Path) -> Iterator[Price]:
    for row in _snapshot(folder, lambda cloud: cloud == "azure"):
        yield from _of_row(row, zone="", date=_SKYPILOT_DAY["azure"], source="skypilot-azure")
    yield from _history(folder, "azure")


def _gcp(folder: Path) -> Iterator[Price]:
    known = _known_regions()
    for row in _snapshot(folder, lambda cloud: cloud == "gcp"):
        series = family("gcp", row["instance_type"])
        offered = ("gcp", series, row["region"]) in known
        if offered and row["offered_known"] == "False":
            raise SystemExit(f"known_regions.csv has {series} in {row['region']}, but the snapshot has none")
        for price in _of_row(row, zone="", date=_GCP_DAY, source="cyclenerd-gcp"):
            if not offered:
                yield replace(price, flag=Flag.PHANTOM.value)
            elif price.capacity == "on_demand" and series == "a3-highgpu" and not row["instance_type"].endswith("-8g"):
                yield replace(price, flag=Flag.SPOT_ONLY.value)
            else:
                yield price


def _small(folder: Path) -> Iterator[Price]:
    for row in _snapshot(folder, lambda cloud: cloud not in ("aws", "azure", "gcp")):
        yield from _of_row(row, zone="", date=_SKYPILOT_OTHER_DAY, source=f"skypilot-{row['cloud']}")


def _advisor(folder: Path) -> Iterator[Row]:
    types = _types()
    for row in _read(folder / "aws_spot_advisor_gpu.csv.gz"):
        if row["snapshot"] == _ADVISOR_DAY and ("aws", row["instance_type"]) in types:
            yield row


def _interruptions(folder: Path) -> str:
    lines = []
    for row in _advisor(folder):
        low, high = _BUCKETS[row["interruption_label"]]
        ends = [str(low), "" if high is None else str(high)]
        lines.append(["aws", row["region"], row["instance_type"], *ends, _ADVISOR_DAY, "aws-spot-advisor"])
    return _text(INTERRUPTION_COLUMNS, sorted(lines))


def _egress_aws(folder: Path) -> str:
    """Each region's usual egress price to other regions, the pairs with another price, and its price to the
    internet."""
    by_source: dict[str, dict[str, str]] = {}
    for row in _read(folder / "egress_prices.csv.gz"):
        if row["cloud"] == "aws":
            by_source.setdefault(row["src"], {})[row["dst"]] = row["usd_per_gb"]
    lines = []
    for region, prices in by_source.items():
        usual = Counter(usd for target, usd in prices.items() if target != "internet").most_common(1)[0][0]
        kept = {"region": usual} | {to: usd for to, usd in prices.items() if usd != usual or to == "internet"}
        lines += [["aws", region, to, _number(usd), "2024-01-01", "skyplane-aws"] for to, usd in kept.items()]
    return _text(EGRESS_COLUMNS, sorted(lines))


def _egress_gcp(folder: Path) -> str:
    lines = [
        ["gcp", row["src"], "internet", _number(row["usd_per_gb"]), "2026-07-22", "cyclenerd-gcp-network"]
        for row in _read(folder / "egress_prices.csv.gz")
        if row["cloud"] == "gcp" and row["dst"] == "internet (tier 0-1 TB)"
    ]
    return _text(EGRESS_COLUMNS, sorted(lines))


def _number(usd: str) -> str:
    return f"{float(usd):.6f}".rstrip("0").rstrip(".")


def _marketplace(folder: Path) -> Files:
    """The cheapest offer of each GPU, count, provider and country on the marketplace's last day."""
    import pyarrow.parquet

    rows: list[dict[str, Any]] = pyarrow.parquet.read_table(folder / "neocloud_by_config_2025.parquet").to_pylist()
    last = max(row["t"] for row in rows).date()
    types: dict[tuple[str, str], list[object]] = {}
    prices: dict[tuple[str, ...], Price] = {}
    for row in sorted(rows, key=lambda row: row["t"]):
        if row["t"].date() != last or not row["provider"] or not row["location"] or row["spot"] is None:
            continue
        provider, gpu = _company(row["provider"]), canonical_gpu(row["gpu"])
        if gpu is None:
            raise SystemExit(f"the marketplace names a GPU that hardware.py does not know: {row['gpu']}")
        name = f"{row['provider']}-{row['gpus']}x{row['gpu'].replace('_', '-')}"
        link = GPUS[gpu].interconnect if "SXM" in row["gpu"] and row["gpus"] > 1 else ""
        memory = GPUS[gpu].memory_bytes // GB
        types[provider, name] = [provider, name, gpu, row["gpus"], memory, "", "", link, "", "prime-intellect"]
        capacity = "spot" if row["spot"] else "on_demand"
        usd = row["min_usd_gpu_h"] * row["gpus"]
        price = Price(provider, row["location"], "", name, capacity, usd, str(last), "prime-intellect")
        prices[price.key] = price
    return {
        "instance_types_marketplace.csv": _text(TYPE_COLUMNS, (types[key] for key in sorted(types))),
        "prices_marketplace.csv": _written(prices.values()),
    }


def _company(name: str) -> str:
    return _MARKETPLACE if name.startswith("dc_") or name == "primecompute" else _COMPANY.get(name, name)


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m scripts.compile_catalog FOLDER")
    for name, text in compile_from(Path(sys.argv[1])).items():
        (DATA / name).write_text(text)
        print(f"{name}: {text.count(chr(10)) - 1} rows")


if __name__ == "__main__":
    main()
