"""Price exports: files from `tradewind prices export` (Parquet, CSV, CSV.gz) -> Trace.

An export lists changes: a price holds until the next one. It has no capacity, so the trace assumes that every zone is
up from its first price to the end of the file, and is marked as such (`Trace.assumed`).
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.arena.traces import MAX_TICKS, MOST_USD, Trace, checked, decoding, refused
from orchestrator.errors import MissingExtraError, did_you_mean
from providers.tables import named_rows, require_whole

COLUMNS = (
    *("provider", "region", "zone", "instance_type", "gpu", "gpu_count", "capacity_type"),
    *("price_per_hour", "effective_at", "observed_at"),
)
"""The columns of an export from which a trace is built."""

TICK_MS = 600_000

_Key = tuple[str, str, str, str]
"""Capacity type, provider, region, zone."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Values that a format may lack: `on_demand` and `spot` in US$ per hour; for an export, the instance type
    (`machine`) and the length of a tick (default: ten minutes)."""

    on_demand: float | None = None
    spot: float | None = None
    machine: str = ""
    tick_ms: int | None = None


NO_PRICES = Prices()


def is_price_export(path: Path) -> bool:
    """Whether a Parquet file has an export's columns. Raises MissingExtraError, SpecError."""
    return set(COLUMNS) <= set(_open(path).schema_arrow.names)


def price_export(path: Path, prices: Prices = NO_PRICES) -> Trace:
    """Read the spot prices of one instance type by zone, with the on-demand price of each zone or its region.

    Raises SpecError with file and row, MissingExtraError without pyarrow for Parquet.
    """
    changes: dict[_Key, list[tuple[int, int, float]]] = {}  # at, row, price
    machines: dict[str, str] = {}
    end_ms = 0
    for row, line in _rows(path):
        end_ms = max(end_ms, _ms(path, row, line, "effective_at"), _ms(path, row, line, "observed_at"))
        machines[str(line["instance_type"])] = str(line["gpu"] or "")
        if prices.machine in ("", line["instance_type"]):
            at, usd = _ms(path, row, line, "effective_at"), _usd(path, row, line)
            place = str(line["provider"]), str(line["region"]), str(line["zone"] or line["region"])
            key = str(line["capacity_type"]), *place
            changes.setdefault(key, []).append((at, row, usd))
    if prices.machine and prices.machine not in machines:
        hint = did_you_mean(prices.machine, machines) or f"it has {', '.join(sorted(machines)[:6])}"
        raise refused(path, 0, "machine", f"has no prices of {prices.machine!r}", hint)
    if len(machines) > 1 and not prices.machine:
        hint = f"add a `machine` to the trace, such as {', '.join(sorted(machines)[:6])}"
        raise refused(path, 0, "machine", f"has prices of {len(machines)} instance types", hint)
    for found in changes.values():
        found.sort()
        for before, after in pairwise(found):
            if before[0] == after[0] and before[2] != after[2]:
                raise refused(path, after[1], "effective_at", f"row {before[1]} has another price for the same time")
    spot = {key[1:]: found for key, found in sorted(changes.items()) if key[0] == "spot"}
    if not spot:
        raise refused(path, 0, "capacity_type", "has no spot prices", "export without --on-demand")
    names = [zone for _, _, zone in spot]
    for i, (provider, _, zone) in enumerate(spot):
        if zone in names[:i]:
            message = f"{zone} has prices of several providers, such as {provider}"
            raise refused(path, 0, "provider", message, "export the prices of one provider")
    on_demand = np.array([_on_demand(path, changes, *place, prices.on_demand) for place in spot])
    tick_ms = prices.tick_ms or TICK_MS
    start_ms = min(found[0][0] for found in spot.values()) // tick_ms * tick_ms
    ticks = (end_ms - start_ms) // tick_ms + 1
    if ticks > MAX_TICKS:
        raise refused(path, 0, "tick", f"{ticks} ticks of {tick_ms / 1000:g} s are too many", "choose a longer `tick`")
    at_ms = start_ms + tick_ms * np.arange(ticks)
    index = [np.searchsorted([at for at, _, _ in found], at_ms, side="right") - 1 for found in spot.values()]
    known = np.array([column >= 0 for column in index])
    columns = [
        np.array([price for _, _, price in found])[column] for found, column in zip(spot.values(), index, strict=True)
    ]
    return checked(
        Trace(
            name=str(path),
            zones=tuple(names),
            capacity=np.where(known, 2**31, 0),
            spot=np.where(known, np.array(columns), 1.0),
            on_demand=on_demand,
            tick_ms=tick_ms,
            known=known,
            filled=np.zeros(known.shape, np.bool_),
            start_ms=start_ms,
            gpu=machines[prices.machine] if prices.machine else next(iter(machines.values())),
            assumed=True,
        )
    )


def _on_demand(
    path: Path,
    changes: Mapping[_Key, list[tuple[int, int, float]]],
    provider: str,
    region: str,
    zone: str,
    given: float | None,
) -> float:
    """One on-demand price for the whole trace: the given one, otherwise the file's only one for the zone or its
    region."""
    if given is not None:
        return given
    found = changes.get(("on_demand", provider, region, zone)) or changes.get(("on_demand", provider, region, region))
    if not found:
        hint = "add `on_demand` in US$/h to the trace"
        raise refused(path, 0, "capacity_type", f"has no on-demand price for {zone}", hint)
    for _, row, usd in found[1:]:
        if usd != found[0][2]:
            hint = "export a shorter period, or add `on_demand` in US$/h to the trace"
            raise refused(path, row, "price_per_hour", f"the on-demand price of {zone} changes", hint)
    return found[0][2]


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield (line of a CSV file or row of a Parquet file; its values)."""
    if path.suffix == ".parquet":
        row = 0
        with decoding(path, "a valid Parquet file"):
            for batch in _open(path).iter_batches(columns=list(COLUMNS)):
                for line in batch.to_pylist():
                    row += 1
                    yield row, line
        return
    opened = gzip.open if path.suffix == ".gz" else open
    with decoding(path, "a readable table"), opened(path, "rt", encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            raise refused(
                path, 1, missing[0], "is not a column of this file", "files from `tradewind prices export` have it"
            )
        for row, line in named_rows(reader):
            _require_whole(path, row, line)
            yield row, line


def _require_whole(path: Path, row: int, line: Mapping[str, Any]) -> None:
    try:
        require_whole(line)
    except ValueError as error:
        raise refused(path, row, "trace", str(error), "correct it, or export it again") from None


def _open(path: Path) -> Any:
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtraError("pyarrow", "analysis") from error
    with decoding(path, "a valid Parquet file"):
        return pq.ParquetFile(path)


def _ms(path: Path, row: int, line: Mapping[str, Any], field: str) -> int:
    value = line[field]
    try:
        at = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError:
        raise refused(path, row, field, f"{value!r} is not a time such as 2026-11-21T13:00:00+00:00") from None
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def _usd(path: Path, row: int, line: Mapping[str, Any]) -> float:
    try:
        usd = float(line["price_per_hour"])
    except (TypeError, ValueError):
        usd = -1.0
    if not 0 < usd < MOST_USD:
        raise refused(
            path, row, "price_per_hour", f"{line['price_per_hour']!r} is not a price", "correct or remove the row"
        )
    return usd
