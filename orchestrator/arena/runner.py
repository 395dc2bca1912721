"""Runner: plays a scenario: every policy from the same starts on the same windows, next to the optimum; in
processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context

from orchestrator.arena.baselines.simple import OnDemandOnly
from orchestrator.arena.baselines.static import OneZone
from orchestrator.arena.formats import load
from orchestrator.arena.optimum import Optimum, optimum
from orchestrator.arena.scenario import HINDSIGHT, JobShape, PolicyChoice, Scenario, TraceSource
from orchestrator.arena.ticks import Outcome, PolicyFailed, Task, play
from orchestrator.arena.traces import Trace, Window, mixed, refused

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Case:
    """One window: trace, job and start."""

    trace: TraceSource
    job: JobShape
    start: int


@dataclass(frozen=True, slots=True)
class Played:
    """The results of all policies in one case. `outcomes` by label; `failures` has the messages of policies that
    failed.

    Four other outcomes split the savings: on-demand only, spot in the first zone, and spot in the zone that was
    cheapest at the start, all on the trace's first kind of machine (any kind if that is too slow for the deadline); and
    the last one with any kind.
    """

    case: Case
    window: Window
    optimum: Optimum
    on_demand: Outcome
    home: Outcome
    at_start: Outcome
    any_kind: Outcome
    outcomes: dict[str, Outcome]
    failures: dict[str, str]


def cases(scenario: Scenario) -> Iterator[Case]:
    """All windows of a scenario. Raises SpecError for an impossible trace, selection, start or deadline."""
    for source in scenario.traces:
        trace = _trace(source)
        if trace.speed and trace.speed[0] not in _speeds(trace, source.zones):
            message = "none of them has the first kind of machine, and work is counted in its hours"
            raise refused(trace.name, 0, "zones", message, f"add one of its zones, like {trace.zones[0]}")
        for job in scenario.jobs:
            task = task_of(job, trace, source.zones)
            last = trace.ticks - task.ticks
            if last < 0:
                message = f"the trace has {trace.hours:g} h, but the job's deadline is {job.deadline_h:g} h"
                raise refused(trace.name, 0, "jobs", message, "choose an earlier deadline or a longer trace")
            for start in _starts(scenario.starts, last):
                trace.window(start, task.ticks, zones=source.zones, gang=job.gang)
                yield Case(source, job, start)


def run(scenario: Scenario, *, processes: int = 1, progress: Progress = lambda _done, _all: None) -> list[Played]:
    """Play all cases. The order of results does not depend on the number of processes. Raises SpecError."""
    todo = list(cases(scenario))
    if processes <= 1:
        played = []
        for case in todo:
            played.append(play_case(case, scenario.policies))
            progress(len(played), len(todo))
        return played
    results: dict[int, Played] = {}
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(play_case, case, scenario.policies): index for index, case in enumerate(todo)}
        for future in as_completed(futures):
            results[futures[future]] = future.result()
            progress(len(results), len(todo))
    return [results[index] for index in range(len(todo))]


def play_case(case: Case, policies: tuple[PolicyChoice, ...]) -> Played:
    """Play every policy on one window, and the runs needed to split the savings."""
    trace = _trace(case.trace)
    task = task_of(case.job, trace, case.trace.zones)
    window = trace.window(case.start, task.ticks, zones=case.trace.zones, gang=case.job.gang)
    outcomes: dict[str, Outcome] = {}
    failures: dict[str, str] = {}
    for choice in policies:
        try:
            outcomes[choice.label] = (
                hindsight(task, window) if choice.name == HINDSIGHT else play(choice.fresh(), task, window)
            )
        except PolicyFailed as error:
            failures[choice.label] = str(error)
    first = window
    if window.mixed and task.ticks_on_demand(window.tick_ms, trace.speed[0]) <= task.ticks:
        first = window.only(trace.speed[0])
    at_start = play(OneZone(), task, first)
    return Played(
        case=case,
        window=window,
        optimum=optimum(task, window),
        on_demand=play(OnDemandOnly(), task, first),
        home=play(OneZone(0), task, first),
        at_start=at_start,
        any_kind=play(OneZone(), task, window) if window.mixed else at_start,
        outcomes=outcomes,
        failures=failures,
    )


def hindsight(task: Task, window: Window) -> Outcome:
    """The outcome in the zone where staying would have been cheapest (only known in hindsight)."""
    return min((play(OneZone(zone), task, window) for zone in range(len(window.zones))), key=lambda run: run.usd)


def task_of(job: JobShape, trace: Trace, zones: tuple[str, ...] = ()) -> Task:
    """The job on a trace of which only `zones` are played (empty: all). Raises SpecError."""
    name, speed = f"the job {job.label} on {trace.name}", max(_speeds(trace, zones))
    return Task.of(job.work_h, job.deadline_h, job.overhead_h, job.checkpoint_gb, trace.tick_ms, name=name, speed=speed)


def _speeds(trace: Trace, zones: tuple[str, ...]) -> list[float]:
    """The speeds of the played zones. Trace.window refuses unknown zones."""
    speeds = trace.speed or (1.0,) * len(trace.zones)
    named = [speed for zone, speed in zip(trace.zones, speeds, strict=True) if zone in zones]
    return named or list(speeds)


@cache
def _trace(source: TraceSource) -> Trace:
    if not source.parts:
        return load(source.path, source.prices)
    return mixed([(load(part.path, part.prices), part.kind, part.speed) for part in source.parts])


def _starts(starts: int | tuple[int, ...], last: int) -> tuple[int, ...]:
    if isinstance(starts, tuple):
        return starts
    if starts > last:
        return tuple(range(last + 1))
    return tuple(sorted({round(last * i / max(starts - 1, 1)) for i in range(starts)}))
