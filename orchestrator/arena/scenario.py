"""Scenario: the traces, jobs, starts and policies of a back-test. Read from YAML; every mistake has its line.

name: V100 in six zones
traces:
  # `path` is relative to the scenario; also zones: [..], on_demand: 3.06, spot: 0.92 (US$ per hour)
  - path: aws_v100x1_2023.npz
  # several kinds of machine; `speed` is relative to the first
  - mixed: [{path: one.npz, kind: "V100:1"}, {path: eight.npz, kind: "V100:8", speed: 7}]
  # from `tradewind prices export`
  - {path: prices.parquet, machine: p5.48xlarge, tick: 10 min}
jobs:
  # `deadline` or `ratio`: [1.1, 2]
  - {work: 40h, deadline: [44h, 50h], overhead: 12 min, checkpoint: 50 GB, gang: 1}
starts: 6  # this many, evenly over the trace; or a list of ticks
policies: [greedy, uniform-progress, deadline, {policy: daily, replan_hours: 12}]
reference: greedy  # paired differences are relative to it
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.arena.baselines.daily import Daily
from orchestrator.arena.baselines.registry import BASELINES
from orchestrator.arena.price_export import Prices
from orchestrator.arena.protocol import TickPolicy
from orchestrator.config.paths import why_no_path
from orchestrator.errors import Problem, SpecError, did_you_mean
from orchestrator.jobfile.parse import read_text
from orchestrator.jobfile.source.source_map import Finding, Loc, SourceMap, YamlSyntaxError, read_yaml
from orchestrator.jobfile.units import BadValueError, parse_duration, parse_size, quoted
from orchestrator.policy import online

HINDSIGHT = "static-in-hindsight"
POLICIES = (online.NAME, *BASELINES, HINDSIGHT)
WITH_OPTIONS = (Daily.name,)
MOST = 1_000_000
"""The largest number in a scenario: a price in US dollars, a ratio, a speed, a number of machines."""


@dataclass(frozen=True, slots=True)
class TraceSource:
    """A trace file, or `parts` that cover the same time with several kinds of machine. `zones` empty: all.

    `speed` is the speed of `kind` relative to the first part's.
    """

    path: Path
    zones: tuple[str, ...] = ()
    prices: Prices = Prices()  # noqa: RUF009 - frozen
    kind: str = ""
    speed: float = 1.0
    parts: tuple[TraceSource, ...] = ()

    @property
    def title(self) -> str:
        """The file names, for display."""
        return " + ".join(part.path.name for part in self.parts) if self.parts else self.path.name


@dataclass(frozen=True, slots=True)
class JobShape:
    """One job with one deadline."""

    work_h: float
    deadline_h: float
    overhead_h: float
    checkpoint_gb: float
    gang: int = 1

    @property
    def label(self) -> str:
        """The job in words, for tables."""
        gang = f" x {self.gang}" if self.gang > 1 else ""
        return f"{self.work_h:g} h in {self.deadline_h:g} h{gang}"


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """A policy by name; only those of WITH_OPTIONS take options."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The name and options, for tables."""
        reported = ", ".join(f"{key}={value}" for key, value in self.options.items())
        return f"{self.name} ({reported})" if reported else self.name

    def fresh(self) -> TickPolicy:
        """A new policy object. Not for HINDSIGHT. Raises TypeError for an unknown option."""
        if self.name == online.NAME:
            return online.make()
        kind: Callable[..., TickPolicy] = BASELINES[self.name]
        return kind(**self.options)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A back-test: every policy from every start of every job on every trace."""

    name: str
    traces: tuple[TraceSource, ...]
    jobs: tuple[JobShape, ...]
    starts: int | tuple[int, ...]
    policies: tuple[PolicyChoice, ...]
    reference: str


def load_scenario(path: Path) -> Scenario:
    """Read a scenario file. Raises SpecError with all problems found."""
    text = read_text(path)
    try:
        tree, marks, findings = read_yaml(text)
    except YamlSyntaxError as error:
        raise SpecError([Problem(str(path), error.mark.line, error.mark.column, "", str(error))]) from None
    reader = _Reader(path, findings)
    scenario = reader.scenario(tree)
    if reader.findings or scenario is None:
        raise SpecError([_problem(path, marks, finding) for finding in reader.findings])
    return scenario


def _problem(path: Path, marks: SourceMap, finding: Finding) -> Problem:
    mark = marks.of(finding)
    return Problem(str(path), mark.line, mark.column, finding.field, finding.message, finding.hint)


class _Reader:
    """Checks values and collects all problems."""

    def __init__(self, path: Path, findings: list[Finding]) -> None:
        self.path, self.findings = path, list(findings)

    def scenario(self, tree: object) -> Scenario | None:
        top = self.mapping(tree, (), ("name", "traces", "jobs", "starts", "policies", "reference"))
        traces = [self.trace(item, ("traces", i)) for i, item in self.items(top, "traces")]
        self.once(traces, ("traces",))
        by_item = [tuple(self.job(item, ("jobs", i))) for i, item in self.items(top, "jobs")]
        jobs = [job for found in by_item for job in found]
        if not any(len(set(found)) < len(found) for found in by_item):
            self.once(jobs, ("jobs",))
        policies = [self.policy(item, ("policies", i)) for i, item in self.items(top, "policies")]
        labels = [choice.label for choice in policies]
        reference = top.get("reference", labels[0] if labels else "")
        if labels and reference not in labels:
            hint = did_you_mean(str(reference), labels) or f"one of {', '.join(labels)}"
            self.wrong(("reference",), f"{reference!r} is not among the policies", hint)
        if len(set(labels)) < len(labels):
            self.wrong(("policies",), "a policy is listed twice", "list each once, or with different options")
        starts = self.starts(top.get("starts", 1))
        name = self.text(top, "name", (), self.path.stem)
        if self.findings:
            return None
        return Scenario(name, tuple(traces), tuple(jobs), starts, tuple(policies), str(reference))

    def wrong(self, loc: Loc, message: str, hint: str = "") -> None:
        self.findings.append(Finding(loc, message, hint))

    def mapping(self, value: object, loc: Loc, fields: tuple[str, ...]) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            self.wrong(loc, "must be a mapping", f"of {', '.join(fields)}")
            return {}
        for key in value:
            if key not in fields:
                hint = did_you_mean(str(key), fields) or f"one of {', '.join(fields)}"
                self.findings.append(Finding((*loc, key), "is not a field of a scenario", hint, at="key"))
        return value

    def items(self, top: Mapping[str, Any], name: str, loc: Loc = ()) -> list[tuple[int, object]]:
        value = top.get(name)
        if not isinstance(value, list) or not value:
            self.wrong((*loc, name), "must be a list with at least one item")
            return []
        return list(enumerate(value))

    def trace(self, item: object, loc: Loc) -> TraceSource:
        if isinstance(item, dict) and "mixed" in item:
            given = self.mapping(item, loc, ("mixed", "zones"))
            found = self.items(given, "mixed", loc)
            parts = [self.file(part, (*loc, "mixed", i), ("kind", "speed")) for i, part in found]
            if parts and parts[0].speed != 1.0:
                self.wrong((*loc, "mixed", 0, "speed"), "must be 1", "work is counted in hours of the first kind")
            return TraceSource(self.path.parent, self.zones(given, loc), parts=tuple(parts))
        return self.file(item, loc, ("zones",))

    def file(self, item: object, loc: Loc, more: tuple[str, ...]) -> TraceSource:
        fields = ("path", *more, "on_demand", "spot", "machine", "tick")
        given = self.mapping({"path": item} if isinstance(item, str) else item, loc, fields)
        path = given.get("path")
        if not isinstance(path, str) or not path:
            self.wrong((*loc, "path"), "must name a trace file or folder")
            path = "."
        elif why := why_no_path(path):
            self.wrong((*loc, "path"), why, "name a trace file or folder")
        on_demand, spot, speed = (
            self.number(given.get(key), (*loc, key)) if key in given else None for key in ("on_demand", "spot", "speed")
        )
        if speed is not None and speed < 0.001:
            self.wrong((*loc, "speed"), f"must be 0.001 or more, not {speed:g}", "speeds have three decimals")
        tick_ms = None
        if "tick" in given:
            tick_ms = round(self.unit(parse_duration, given["tick"], (*loc, "tick")) * 1000)
            if tick_ms < 1:
                self.wrong((*loc, "tick"), "must be 1 ms or more", 'write it like "10 min"')
        prices = Prices(on_demand, spot, self.text(given, "machine", loc, ""), tick_ms)
        kind = self.text(given, "kind", loc, Path(path).stem)
        return TraceSource(self.path.parent / path, self.zones(given, loc), prices, kind, speed or 1.0)

    def zones(self, given: Mapping[str, Any], loc: Loc) -> tuple[str, ...]:
        zones = given.get("zones", [])
        if isinstance(zones, list) and all(isinstance(zone, str) for zone in zones):
            return tuple(zones)
        self.wrong((*loc, "zones"), "must be a list of zone names")
        return ()

    def job(self, item: object, loc: Loc) -> list[JobShape]:
        given = self.mapping(item, loc, ("work", "deadline", "ratio", "overhead", "checkpoint", "gang"))
        work = self.unit(parse_duration, given.get("work"), (*loc, "work")) / 3600
        overhead = (
            self.unit(parse_duration, given["overhead"], (*loc, "overhead")) / 3600 if "overhead" in given else 0.0
        )
        size = self.unit(parse_size, given["checkpoint"], (*loc, "checkpoint")) / 1e9 if "checkpoint" in given else 0.0
        gang = given.get("gang", 1)
        if not isinstance(gang, int) or isinstance(gang, bool) or not 1 <= gang <= MOST:
            self.wrong((*loc, "gang"), f"must be a whole number, 1 or more and at most {MOST:,}")
            gang = 1
        if ("deadline" in given) == ("ratio" in given):
            self.wrong(loc, "needs either `deadline` or `ratio`", "ratio: 1.5 is a deadline of 1.5 x work")
            return []
        if "ratio" in given:
            hours = [self.number(value, at) * work for value, at in self.each(given["ratio"], (*loc, "ratio"))]
        else:
            hours = [
                self.unit(parse_duration, value, at) / 3600
                for value, at in self.each(given["deadline"], (*loc, "deadline"))
            ]
        self.once([round(each * 3_600_000) for each in hours], (*loc, "ratio" if "ratio" in given else "deadline"))
        return [JobShape(work, deadline, overhead, size, gang) for deadline in hours]

    def policy(self, item: object, loc: Loc) -> PolicyChoice:
        name = item.get("policy") if isinstance(item, dict) else item
        options = {key: value for key, value in item.items() if key != "policy"} if isinstance(item, dict) else {}
        if name not in POLICIES:
            hint = did_you_mean(str(name), POLICIES) or f"one of {', '.join(POLICIES)}"
            self.wrong(loc, f"{name!r} is not a policy", hint)
            return PolicyChoice("greedy")
        choice = PolicyChoice(str(name), options)
        if options and name not in WITH_OPTIONS:
            self.wrong(loc, f"{name} takes no options", f"options are for {', '.join(WITH_OPTIONS)}")
        elif options:
            if "replan_hours" in options:
                self.number(options["replan_hours"], (*loc, "replan_hours"))
            try:
                choice.fresh()
            except TypeError as error:
                self.wrong(loc, f"{name} does not have this option: {error}", "try replan_hours")
        return choice

    def starts(self, value: object) -> int | tuple[int, ...]:
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
        if isinstance(value, list) and value and all(type(tick) is int and tick >= 0 for tick in value):
            self.once(value, ("starts",))
            return tuple(value)
        self.wrong(("starts",), "must be a number of starts, or a list of ticks")
        return 1

    def number(self, value: object, loc: Loc) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= MOST:
            return float(value)
        self.wrong(loc, f"must be a positive number, at most {MOST:,}, not {quoted(value)}")
        return 1.0

    def text(self, given: Mapping[str, Any], name: str, loc: Loc, default: str) -> str:
        value = given.get(name, default)
        if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
            return str(value)
        self.wrong((*loc, name), f"must be text, not {quoted(value)}", "write a name, in double quotes if necessary")
        return default

    def unit(self, parse: Callable[[object], float], value: object, loc: Loc) -> float:
        try:
            return parse(value)
        except BadValueError as error:
            self.wrong(loc, str(error), error.hint)
            return 3600.0

    def each(self, value: object, loc: Loc) -> list[tuple[object, Loc]]:
        """A single value, or each item of a list, with its location."""
        if not isinstance(value, list):
            return [(value, loc)]
        if not value:
            self.wrong(loc, "must be a value, or a list with at least one item")
        return [(item, (*loc, i)) for i, item in enumerate(value)]

    def once(self, values: Sequence[Hashable], loc: Loc) -> None:
        """Report duplicates: a run played twice would look like more evidence."""
        for i, value in enumerate(values):
            if value in values[:i]:
                place = (*loc, i)
                self.wrong(place, f"is the same as item {values.index(value) + 1} of the list", "list each once")
                return
