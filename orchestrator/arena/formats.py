"""Formats: trace files: Tradewind's .npz and Parquet, SkyPilot's spot-traces JSON, SkyNomad's JSON, exported prices ->
Trace.

load(path)                               one .npz or .parquet
load(path, Prices(machine=..))           a file from `tradewind prices export` (price_export.py)
load(folder, Prices(3.06, 0.92))         a folder of spot-traces JSON, one file per zone (us-west-2a_v100_1.json)
load(folder)                             a folder of SkyNomad's, one folder per zone (us-east-1a_v100_1/full.json)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from orchestrator.arena.price_export import NO_PRICES, Prices, is_price_export, price_export
from orchestrator.arena.traces import (
    MAX_TICKS,
    MOST_USD,
    Bools,
    Floats,
    Trace,
    checked,
    decoding,
    refused,
    region_of,
    require_file,
)
from orchestrator.errors import MissingExtraError

_NPZ = ("zones", "capacity", "spot_price", "on_demand_price", "tick_seconds")
_MOST = 2**53
"""Above this, floats cannot represent every whole number."""
_SAME_TICK_S = 0.001_001
"""Times are compared to the millisecond."""
_COLUMNS = ("at", "zone", "capacity", "spot_usd_per_hour", "on_demand_usd_per_hour")


def load(path: Path, prices: Prices = NO_PRICES) -> Trace:
    """Read a trace. `prices` supplies values that its format does not contain.

    Raises SpecError with the file and, if known, the row; MissingExtraError without pyarrow for Parquet.
    """
    require_file(path, folder=True)
    if path.is_dir():
        return _json_folder(path, prices)
    if path.suffix == ".npz":
        _open_only(path, prices)
        return _npz(path)
    if path.name.endswith((".csv", ".csv.gz")) or (path.suffix == ".parquet" and is_price_export(path)):
        _open_only(path, prices, "on_demand", "machine", "tick")
        return price_export(path, prices)
    if path.suffix == ".parquet":
        _open_only(path, prices)
        return _parquet(path)
    known = "one of .npz, .parquet, .csv, .csv.gz, or a folder"
    raise refused(path, 0, "trace", f"unknown format: {path.suffix or 'no suffix'}", known)


def _open_only(path: Path, prices: Prices, *leaves_open: str) -> None:
    """Raises SpecError for a field that the file already contains and that would be ignored."""
    given = {"on_demand": prices.on_demand, "spot": prices.spot, "machine": prices.machine, "tick": prices.tick_ms}
    for field, value in given.items():
        if value not in (None, "") and field not in leaves_open:
            hint = "remove the field" + (f"; this format takes {', '.join(leaves_open)}" if leaves_open else "")
            raise refused(path, 0, field, "would be ignored: files of this format contain it", hint)


def _npz(path: Path) -> Trace:
    with decoding(path, "a readable .npz file"), np.load(path, allow_pickle=False) as file:
        missing = [key for key in _NPZ if key not in file.files]
        if missing:
            raise refused(path, 0, missing[0], "is missing", f"a trace has {', '.join(_NPZ)}")
        columns = {key: file[key] for key in file.files}
    for key, column in columns.items():
        if not isinstance(column, np.ndarray):
            raise refused(path, 0, key, "is not an array", "write the file with numpy.savez")
    zones, capacity = columns["zones"], columns["capacity"]
    if zones.ndim != 1 or capacity.ndim != 2 or len(capacity) != len(zones):
        message = f"has the shape {capacity.shape}, not (zones, ticks), for zones of shape {zones.shape}"
        raise refused(path, 0, "capacity", message)
    numbers = {key: _floats(path, key, columns[key]) for key in ("capacity", *_NPZ[2:])}
    tick_s = numbers["tick_seconds"]
    if tick_s.size != 1 or not 0 < float(tick_s.sum()) < 1e7:
        raise refused(path, 0, "tick_seconds", f"must be one positive number, not {columns['tick_seconds']}")
    tick_ms = round(float(tick_s.sum()) * 1000)
    bad = _fractional(numbers["capacity"])
    if bad.any():
        row, tick = (int(x) for x in np.argwhere(bad)[0])
        message = f"{zones[row]} has {capacity[row, tick]} in tick {tick}"
        raise refused(path, tick + 1, "capacity", message, "machine counts must be whole numbers")
    if "at_seconds" in columns:
        at_s = _floats(path, "at_seconds", columns["at_seconds"])
        if at_s.shape != capacity.shape[1:]:
            message = f"has the shape {at_s.shape} for {capacity.shape[1]} ticks"
            raise refused(path, 0, "at_seconds", message, "give one time per tick")
        _even(path, at_s, tick_ms / 1000)
    meta = _meta(path, columns)
    filled = np.zeros(capacity.shape, np.bool_)
    begin, end = meta.get("gapfill", (0, 0))
    if not begin <= end <= capacity.shape[1]:
        message = f"[{begin}, {end}) is not inside the {capacity.shape[1]} ticks"
        raise refused(path, 0, "meta.gapfill", message, "it is [from, to) in ticks of this file")
    filled[:, begin:end] = True
    start = str(columns["start_utc"]) if "start_utc" in columns else ""
    return checked(
        Trace(
            name=str(path),
            zones=tuple(str(zone) for zone in zones),
            capacity=numbers["capacity"].astype(np.int64),
            spot=numbers["spot_price"],
            on_demand=numbers["on_demand_price"],
            tick_ms=tick_ms,
            known=np.ones(capacity.shape, np.bool_),
            filled=filled,
            start_ms=_instant(path, "start_utc", start),
            gpu=str(meta.get("gpu", "")),
            cloud=str(meta.get("cloud", "")),
        )
    )


def _floats(path: Path, field: str, column: np.ndarray[Any, np.dtype[Any]]) -> Floats:
    if column.dtype.kind in "cmM":
        raise refused(path, 0, field, f"must contain numbers, not {column.dtype}")
    try:
        return column.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise refused(path, 0, field, f"must contain numbers: {error}") from error


def _fractional(counts: Floats) -> Bools:
    """Whether each count is not a finite whole number."""
    whole: Bools = (np.abs(counts) < _MOST) & (counts == np.floor(counts))
    return ~whole


def _meta(path: Path, columns: Mapping[str, Any]) -> Mapping[str, Any]:
    """The file's JSON metadata. `gapfill` must be two whole numbers."""
    try:
        meta = json.loads(str(columns["meta"])) if "meta" in columns else {}
    except (RecursionError, ValueError) as error:
        raise refused(path, 0, "meta", f"is not valid JSON: {error}") from error
    if not isinstance(meta, dict):
        raise refused(path, 0, "meta", "must be a JSON object")
    gap = meta.get("gapfill", [0, 0])
    if not isinstance(gap, list) or len(gap) != 2 or not all(isinstance(tick, int) and tick >= 0 for tick in gap):
        raise refused(path, 0, "meta.gapfill", f"must be [from, to) in ticks, not {gap!r}")
    return meta


def _even(path: Path, at_s: np.ndarray[Any, np.dtype[np.float64]], tick_s: float) -> None:
    """Check that ticks are equally spaced. Raises SpecError with the first row that is not."""
    steps = np.diff(at_s)
    gaps = ~(np.abs(steps - tick_s) <= _SAME_TICK_S)
    for bad, message in ((steps == 0, "is duplicated"), (steps < 0, "is out of order"), (gaps, "has a gap")):
        if bad.any():
            row = int(np.flatnonzero(bad)[0]) + 1
            raise refused(path, row + 1, "at_seconds", f"tick {row} {message}", f"ticks are {tick_s:g} s apart")


def _instant(path: Path, field: str, text: str) -> int | None:
    if not text:
        return None
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise refused(path, 0, field, f"{text!r} is not a time such as 2025-10-04T00:10:00") from None
    return round((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)


def _parquet(path: Path) -> Trace:
    """Read a long table: one row per (zone, tick), in order of time within each zone."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtraError("pyarrow", "analysis") from error
    with decoding(path, "a valid Parquet file"):
        table = pq.read_table(path)
    missing = [name for name in _COLUMNS if name not in table.column_names]
    if missing:
        raise refused(path, 0, missing[0], "is not a column of this file", f"a trace has {', '.join(_COLUMNS)}")
    for name in _COLUMNS:
        if table.column(name).null_count:
            row = table.column(name).is_null().to_pylist().index(True)
            raise refused(path, row + 1, name, "is empty", "fill the gap, or end the series before it")
    names = [each for each in table.column("zone").to_pylist() if isinstance(each, str)]
    if len(names) < table.num_rows:
        raise refused(path, 0, "zone", f"must be text, not {table.column('zone').type}")
    zone = np.array(names, dtype=str)
    if not pa.types.is_timestamp(table.column("at").type):
        raise refused(path, 0, "at", f"must be timestamps, not {table.column('at').type}")
    at_ms = table.column("at").to_numpy().astype("datetime64[ms]").astype(np.int64)
    zones = tuple(sorted(set(zone.tolist())))
    rows = {name: np.flatnonzero(zone == name) for name in zones}
    steps = [np.diff(at_ms[mine]) for mine in rows.values()]
    for name, step in zip(zones, steps, strict=True):
        for bad, message in ((step == 0, "is duplicated"), (step < 0, "is out of order")):
            if bad.any():
                row = int(rows[name][int(np.flatnonzero(bad)[0]) + 1])
                raise refused(path, row + 1, "at", f"the tick of {name} {message}", "sort by zone and time, once each")
    tick_ms = min((int(step.min()) for step in steps if step.size), default=0)
    if tick_ms <= 0:
        raise refused(path, 0, "at", "no zone of the trace has two ticks")
    first = int(at_ms.min())
    shape = (len(zones), (int(at_ms.max()) - first) // tick_ms + 1)
    if shape[1] > MAX_TICKS:
        message = f"{shape[1]} ticks of {tick_ms / 1000:g} s from the first row to the last are too many"
        raise refused(path, 0, "at", message, "keep the zones of one period, or use longer ticks")
    capacity, spot = np.zeros(shape, np.int64), np.ones(shape)
    known, filled = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
    on_demand = np.zeros(len(zones))
    values = {name: _floats(path, name, table.column(name).to_numpy()) for name in _COLUMNS[2:]}
    for name, bad in (
        ("capacity", _fractional(values["capacity"]) | (values["capacity"] < 0)),
        *((name, ~((values[name] > 0) & (values[name] < MOST_USD))) for name in _COLUMNS[3:]),
    ):
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            hint = "correct the row, or end the series before it"
            raise refused(path, row + 1, name, f"{zone[row]} has {values[name][row]:g}", hint)
    marks = None
    if "filled" in table.column_names:
        column = table.column("filled")
        if not (pa.types.is_boolean(column.type) or pa.types.is_integer(column.type)):
            raise refused(path, 0, "filled", f"must be true or false, not {column.type}")
        marks = column.to_numpy(zero_copy_only=False)
    for index, (name, step) in enumerate(zip(zones, steps, strict=True)):
        mine = rows[name]
        gaps = step != tick_ms
        if gaps.any():
            row = int(mine[int(np.flatnonzero(gaps)[0]) + 1])
            message = f"{name} has a gap before this tick ({int(step[gaps][0]) / 1000:g} s, not {tick_ms / 1000:g} s)"
            raise refused(path, row + 1, "at", message, "fill the gap and mark its ticks in a column `filled`")
        off = (int(at_ms[mine[0]]) - first) % tick_ms
        if off:
            raise refused(path, int(mine[0]) + 1, "at", f"{name} is not aligned with the other zones")
        ticks = (at_ms[mine] - first) // tick_ms
        capacity[index, ticks] = values["capacity"][mine]
        spot[index, ticks] = values["spot_usd_per_hour"][mine]
        known[index, ticks] = True
        if marks is not None:
            filled[index, ticks] = marks[mine].astype(np.bool_)
        prices = values["on_demand_usd_per_hour"][mine]
        if (prices != prices[0]).any():
            row = int(mine[int(np.flatnonzero(prices != prices[0])[0])])
            raise refused(path, row + 1, "on_demand_usd_per_hour", f"changes within {name}", "one price per zone")
        on_demand[index] = prices[0]
    return checked(Trace(str(path), zones, capacity, spot, on_demand, tick_ms, known, filled, first))


def _json_folder(folder: Path, prices: Prices) -> Trace:
    files = sorted(folder.glob("*.json"))
    skynomad = not files
    if skynomad:
        files = sorted(folder.glob("*/full.json"))
    if not files:
        raise refused(folder, 0, "trace", "has neither ZONE_GPU_COUNT.json nor ZONE_GPU_COUNT/full.json")
    _open_only(folder, prices, *(() if skynomad else ("on_demand", "spot")))
    series = [_skynomad(file) if skynomad else _skypilot(file, prices.on_demand, prices.spot) for file in files]
    for file, one in zip(files, series, strict=True):
        try:
            region_of(one["zone"])
        except ValueError as error:
            raise refused(file, 0, "zones", str(error), "egress prices depend on its region") from None
    ticks = {one["tick_s"] for one in series}
    if len(ticks) > 1:
        raise refused(folder, 0, "gap_seconds", f"the files differ: {', '.join(f'{t:g}' for t in sorted(ticks))}")
    starts = {one["start"] for one in series}
    if len(starts) > 1:
        raise refused(folder, 0, "start_time", "the files start at different times", "cut them to a common start")
    length = max(len(one["capacity"]) for one in series)
    shape = (len(series), length)
    capacity, price, known = np.zeros(shape, np.int64), np.ones(shape), np.zeros(shape, np.bool_)
    for index, one in enumerate(series):
        size = len(one["capacity"])
        capacity[index, :size], price[index, :size], known[index, :size] = one["capacity"], one["prices"], True
    return checked(
        Trace(
            name=str(folder),
            zones=tuple(one["zone"] for one in series),
            capacity=capacity,
            spot=price,
            on_demand=np.array([one["on_demand"] for one in series], np.float64),
            tick_ms=round(ticks.pop() * 1000),
            known=known,
            filled=np.zeros(shape, np.bool_),
            start_ms=_instant(files[0], "metadata.start_time", starts.pop()),
            gpu=series[0]["gpu"],
        )
    )


def _skypilot(file: Path, on_demand: float | None, spot: float | None) -> dict[str, Any]:
    """skypilot-org/spot-traces (Can't Be Late, NSDI '24): `data` counts the available machines; there are no prices."""
    content = _content(file)
    if on_demand is None or spot is None:
        raise refused(
            file,
            0,
            "prices",
            "files of this format have no prices",
            "add `on_demand` and `spot` in US$/h to the scenario",
        )
    zone, _, gpu = file.stem.partition("_")
    counts = _numbers(file, content, "data")
    return {
        "zone": zone,
        "gpu": gpu.partition("_")[0].upper(),
        "capacity": counts,
        "prices": [spot] * len(counts),
        "on_demand": on_demand,
        "tick_s": _gap(file, content),
        "start": "",
    }


def _skynomad(file: Path) -> dict[str, Any]:
    """andylizf/skynomad-artifact (NSDI '27): `data` is 1 where a machine is *preempted*; prices are per tick."""
    content = _content(file)
    metadata = content["metadata"]
    zone, _, gpu = file.parent.name.partition("_")
    info = metadata.get("price_info")
    if not isinstance(info, dict) or not _is_price(info.get("on_demand_price")):
        raise refused(file, 0, "metadata.price_info.on_demand_price", "must be a positive number")
    if "prices" not in content and not _is_price(info.get("price")):
        raise refused(file, 0, "prices", "are missing", "give a price per tick, or metadata.price_info.price for all")
    lost = _numbers(file, content, "data")
    for row, value in enumerate(lost, 1):
        if value not in (0, 1):
            raise refused(
                file, row, "data", f"row {row} is {value!r}", "write 1 where the machine is preempted, else 0"
            )
    prices = _numbers(file, content, "prices") if "prices" in content else [float(info["price"])] * len(lost)
    if len(prices) != len(lost):
        row = min(len(prices), len(lost)) + 1
        raise refused(file, row, "prices", f"there are {len(prices)} prices for {len(lost)} ticks")
    for row, price in enumerate(prices, 1):
        if not _is_price(price):
            raise refused(file, row, "prices", f"row {row} is {price!r}", "correct it, or end the series before it")
    return {
        "zone": str(metadata.get("zone", zone)),
        "gpu": gpu.partition("_")[0].upper(),
        "capacity": [0 if value else 1 for value in lost],
        "prices": prices,
        "on_demand": float(info["on_demand_price"]),
        "tick_s": _gap(file, content),
        "start": str(metadata.get("start_time", "")),
    }


def _content(file: Path) -> Mapping[str, Any]:
    require_file(file)
    with decoding(file, "a readable text file"):
        text = file.read_text("utf-8-sig")
    try:
        content = json.loads(text)
    except (RecursionError, ValueError) as error:
        raise refused(file, getattr(error, "lineno", 0), "trace", f"is not valid JSON: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("metadata"), dict):
        raise refused(
            file, 0, "metadata", "is missing", "spot-traces JSON is {metadata: {gap_seconds: ..}, data: [..]}"
        )
    return content


def _gap(file: Path, content: Mapping[str, Any]) -> float:
    gap = content["metadata"].get("gap_seconds")
    if not _is_number(gap) or not 0.001 <= gap < 1e7:
        raise refused(file, 0, "metadata.gap_seconds", f"must be a positive number of seconds, not {gap!r}")
    return float(gap)


def _numbers(file: Path, content: Mapping[str, Any], field: str) -> list[float]:
    values = content.get(field)
    if not isinstance(values, list) or not values:
        raise refused(file, 0, field, "must be a list of numbers")
    for row, value in enumerate(values, 1):
        if not _is_number(value) or not 0 <= value < _MOST:
            raise refused(file, row, field, f"row {row} is {value!r}", "fill the gap, or end the series before it")
        if field == "data" and value % 1:
            raise refused(file, row, field, f"row {row} is {value!r}", "machine counts must be whole numbers")
    return values


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_price(value: object) -> bool:
    return _is_number(value) and 0 < value < MOST_USD
