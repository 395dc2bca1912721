"""Traces: recorded spot capacity and prices of aligned zones, and the window of one run inside them.

A trace with gaps, disorder or negative prices is refused. A window is refused if one of its series starts or ends
inside it, because a policy would then be rewarded for data that appear or disappear.
"""

from __future__ import annotations

import csv
import re
import stat
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orchestrator.errors import Problem, SpecError, did_you_mean

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_AWS = re.compile(r"((?:[a-z]{2}|us-gov|[a-z]{2}-iso[a-z]?)-[a-z]+-\d)[a-z]")
_DASHED = re.compile(r"([a-z]+(?:-[a-z]+)*-?[a-z]+\d+)-[a-z0-9]+")

_INTERNET_USD_PER_GB = {"aws": 0.09, "gcp": 0.12}
MOST_USD = 1e6
"""Higher prices per hour are mistakes."""
MAX_TICKS = 2_000_000
ABSENT = "paths are relative to the scenario's folder"
_DAMAGED = (ArithmeticError, EOFError, LookupError, MemoryError, OSError, RuntimeError, TypeError, ValueError)
"""Errors of the decoders of damaged files; those of pyarrow are subclasses."""


def refused(path: Path | str, row: int, field: str, message: str, hint: str = "") -> SpecError:
    """A SpecError about a file. `row` counts from 1 (0: the whole file)."""
    return SpecError([Problem(str(path), row, 1, field, message, hint)])


def require_file(path: Path, *, folder: bool = False, absent: str = ABSENT) -> None:
    """Raises SpecError unless there is a regular file, or with `folder` a folder; it waits for no pipe. `absent` is the
    remedy if there is nothing."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        message = "the file or folder does not exist" if folder else "the file does not exist"
        raise refused(path, 0, "trace", message, absent) from None
    except OSError as error:
        raise refused(path, 0, "trace", f"cannot be read: {error.strerror}", "check the path") from None
    if not stat.S_ISREG(mode) and not (folder and stat.S_ISDIR(mode)):
        what = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
        raise refused(path, 0, "trace", f"is {what}, not a file", "give the path of a file")


@contextmanager
def decoding(path: Path, what: str) -> Iterator[None]:
    """Raises SpecError with the name of the file, if it cannot be read or is damaged."""
    try:
        yield
    except (*_DAMAGED, csv.Error, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        message = f"is not {what}: {reason}"
        raise refused(path, 0, "trace", message, "check the file, or record or export it again") from error


def region_of(zone: str) -> str:
    """The region of an availability zone of AWS (us-east-1a) or GCP (us-central1-a), also with a kind of machine in
    front (V100:8/us-east-1a). Raises ValueError."""
    return _place(zone)[1]


def _place(zone: str) -> tuple[str, str]:
    """(cloud, region) of a zone. Raises ValueError."""
    name = zone.rpartition("/")[2]
    for cloud, pattern in (("aws", _AWS), ("gcp", _DASHED)):
        found = pattern.fullmatch(name)
        if found is not None:
            return cloud, found[1]
    raise ValueError(f"{zone!r} is not an availability zone of AWS or GCP")


def egress_usd_per_gb(source: str, target: str) -> float:
    """US$ per GB between two zones: 0 inside a region, 0.01 us-east-1 <-> us-east-2, 0.08 inside Asia-Pacific,
    otherwise 0.02; to another cloud 0.09 from AWS, 0.12 from GCP. Sources: public price lists of 2024, as used by the
    reference results, and for the internet the first 10 TB of 2026-07. Raises ValueError."""
    (cloud, here), (other, there) = _place(source), _place(target)
    if cloud != other:
        return _INTERNET_USD_PER_GB[cloud]
    if here == there:
        return 0.0
    if {here, there} == {"us-east-1", "us-east-2"}:
        return 0.01
    if here.startswith(("ap-", "asia-")) and there.startswith(("ap-", "asia-")):
        return 0.08
    return 0.02


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Columns over (zone, tick). `capacity` counts available machines, `spot` is US$ per machine-hour.

    `known` is False before a zone's series starts and after it ends. `filled` marks ticks that were not recorded
    (outages, filled with the state before). `start_ms` is None if the source has no times. `speed` per zone is empty if
    all machines are of one kind. `assumed`: only prices were recorded, not capacity.
    """

    name: str
    zones: tuple[str, ...]
    capacity: Ints
    spot: Floats
    on_demand: Floats
    tick_ms: int
    known: Bools
    filled: Bools
    start_ms: int | None = None
    gpu: str = ""
    cloud: str = ""
    speed: tuple[float, ...] = ()
    assumed: bool = False

    def __post_init__(self) -> None:
        for column in (self.capacity, self.spot, self.on_demand, self.known, self.filled):
            column.setflags(write=False)

    @property
    def ticks(self) -> int:
        """The number of ticks."""
        return int(self.capacity.shape[1])

    @property
    def hours(self) -> float:
        """The length in hours."""
        return self.ticks * self.tick_ms / 3_600_000

    def availability(self, gang: int = 1) -> tuple[float, ...]:
        """The share of recorded ticks with capacity for `gang` machines, by zone."""
        counted = self.known & ~self.filled
        up = counted & (self.capacity >= gang)
        return tuple((up.sum(axis=1) / np.maximum(counted.sum(axis=1), 1)).tolist())

    def window(self, start: int, ticks: int, *, zones: Sequence[str] = (), gang: int = 1) -> Window:
        """The window of `ticks` ticks from tick `start` on, for these zones (none: all).

        Raises SpecError for an unknown zone, or if a series does not cover the whole window.
        """
        names = tuple(zones) or self.zones
        for name in names:
            if name not in self.zones:
                hint = did_you_mean(name, self.zones) or f"it has {', '.join(self.zones)}"
                raise refused(self.name, 0, "zones", f"the trace has no zone {name!r}", hint)
        if len(set(names)) < len(names):
            raise refused(self.name, 0, "zones", f"a zone is listed twice: {', '.join(names)}", "list each zone once")
        if start < 0 or ticks <= 0 or start + ticks > self.ticks:
            message = f"ticks {start} to {start + ticks} are not inside the trace, which has {self.ticks}"
            raise refused(self.name, 0, "start", message, "choose an earlier start or an earlier deadline")
        rows = [self.zones.index(name) for name in names]
        part = slice(start, start + ticks)
        missing = ~self.known[rows, part]
        if missing.any():
            zone, tick = (int(x) for x in np.argwhere(missing)[0])
            message = f"the series of {names[zone]} starts or ends inside the window (no data at tick {start + tick})"
            raise refused(self.name, start + tick + 1, "zones", message, "remove the zone, or choose another start")
        return Window(
            name=self.name,
            zones=names,
            start=start,
            up=np.ascontiguousarray(self.capacity[rows, part] >= gang),
            spot=np.ascontiguousarray(self.spot[rows, part]),
            on_demand=self.on_demand[rows],
            egress=np.array([[egress_usd_per_gb(a, b) for b in names] for a in names]),
            filled=int(self.filled[rows, part].any(axis=0).sum()),
            tick_ms=self.tick_ms,
            speed=tuple(self.speed[row] for row in rows) if self.speed else (1.0,) * len(rows),
            assumed=self.assumed,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """The market during one run. `up[z, t]`: whether the whole gang was available. `filled` counts filled ticks.

    `speed`: hours of the job's work per hour in each zone.
    """

    name: str
    zones: tuple[str, ...]
    start: int
    up: Bools
    spot: Floats
    on_demand: Floats
    egress: Floats
    filled: int
    tick_ms: int
    speed: tuple[float, ...]
    assumed: bool

    @property
    def ticks(self) -> int:
        """The number of ticks."""
        return int(self.up.shape[1])

    @property
    def mixed(self) -> bool:
        """Whether there are machines of several speeds."""
        return len(set(self.speed)) > 1

    def only(self, speed: float) -> Window:
        """The same window with only the machines of one speed."""
        rows = [row for row, of in enumerate(self.speed) if of == speed]
        return replace(
            self,
            zones=tuple(self.zones[row] for row in rows),
            up=self.up[rows],
            spot=self.spot[rows],
            on_demand=self.on_demand[rows],
            egress=self.egress[np.ix_(rows, rows)],
            speed=(speed,) * len(rows),
        )


def mixed(parts: Sequence[tuple[Trace, str, float]]) -> Trace:
    """Traces of the same time as one market: (trace, kind, speed) each; zones are then named KIND/ZONE.

    Raises SpecError if they do not have the same ticks from the same start, or two are of the same kind.
    """
    first = parts[0][0]
    kinds = [kind for _, kind, _ in parts]
    for (trace, kind, _), before in zip(parts, (kinds[:i] for i in range(len(kinds))), strict=True):
        if kind in before:
            raise refused(
                trace.name, 0, "kind", f"another trace also has the kind {kind!r}", "give each its own `kind`"
            )
        if (trace.tick_ms, trace.start_ms) != (first.tick_ms, first.start_ms):
            message = f"does not have the ticks or the start of {first.name}"
            raise refused(trace.name, 0, "mixed", message, "mix traces that were recorded together")
    ticks = min(trace.ticks for trace, _, _ in parts)

    def rows(column: str) -> NDArray[Any]:
        return np.concatenate([getattr(trace, column)[:, :ticks] for trace, _, _ in parts])

    return checked(
        Trace(
            name=" + ".join(trace.name for trace, _, _ in parts),
            zones=tuple(f"{kind}/{zone}" for trace, kind, _ in parts for zone in trace.zones),
            capacity=rows("capacity"),
            spot=rows("spot"),
            on_demand=np.concatenate([trace.on_demand for trace, _, _ in parts]),
            tick_ms=first.tick_ms,
            known=rows("known"),
            filled=rows("filled"),
            start_ms=first.start_ms,
            speed=tuple(speed for trace, _, speed in parts for _ in trace.zones),
            assumed=any(trace.assumed for trace, _, _ in parts),
        )
    )


def checked(trace: Trace) -> Trace:
    """Check a trace and return it. Raises SpecError for negative or missing prices or negative capacity."""
    shape = (len(trace.zones), trace.ticks)
    for field, column in (("capacity", trace.capacity), ("spot_price", trace.spot), ("known", trace.known)):
        if column.shape != shape:
            raise refused(trace.name, 0, field, f"has the shape {column.shape}, not {shape} (zones, ticks)")
    if trace.on_demand.shape != shape[:1]:
        raise refused(trace.name, 0, "on_demand_price", "must have one price per zone")
    if shape[0] == 0 or shape[1] == 0:
        raise refused(trace.name, 0, "zones", "the trace is empty")
    if trace.tick_ms <= 0:
        raise refused(trace.name, 0, "tick_seconds", "must be positive")
    if len(set(trace.zones)) < len(trace.zones):
        raise refused(trace.name, 0, "zones", "a zone appears twice")
    for zone in trace.zones:
        try:
            region_of(zone)
        except ValueError as error:
            raise refused(trace.name, 0, "zones", str(error), "egress prices depend on its region") from None
    for field, bad in (
        ("spot_price", trace.known & ~((trace.spot > 0) & (trace.spot < MOST_USD))),
        ("capacity", trace.known & (trace.capacity < 0)),
    ):
        if bad.any():
            row, tick = (int(x) for x in np.argwhere(bad)[0])
            value = trace.spot[row, tick] if field == "spot_price" else trace.capacity[row, tick]
            message = f"{trace.zones[row]} has {value} in tick {tick}"
            raise refused(trace.name, tick + 1, field, message, "correct the row, or end the series before it")
    bad_price = ~((trace.on_demand > 0) & (trace.on_demand < MOST_USD))
    if bad_price.any():
        row = int(np.flatnonzero(bad_price)[0])
        raise refused(trace.name, 0, "on_demand_price", f"{trace.zones[row]} has {trace.on_demand[row]}")
    return trace
