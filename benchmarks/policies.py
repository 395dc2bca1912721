"""Claim: the deadline policy costs little more than the optimum in hindsight, and never misses a deadline it can meet.

    python -m benchmarks.policies            all 198 reference runs, 10,000 generated markets; about half an hour
    python -m benchmarks.policies --quick    every eleventh run, 60 generated markets, 2 windows

Reference runs, and 96 hours of work on V100 zones of 2023 with a limit of 1.05 and 1.10 times the work, need the folder
`shared` beside the repository (or TRADEWIND_SHARED). Every baseline plays the same runs. Costs are means over cells of
cost over the optimum, as in docs/results.md. Gangs of 8 and 16 machines with eight H100 each have no deadline, but must
be useful for nine tenths of the time. The generated markets need no data: capacity comes in spells that are Markov,
bursty or daily, flaps at the length of a restart, vanishes when slack runs out, is promised by probes but never found
by launches, or never comes; with one kind of machine or several. In each market, on-demand alone could meet the
deadline.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import benchmarks._one_thread  # noqa: F401  isort: skip
import numpy as np

from benchmarks._claims import Claim, show
from benchmarks.arena import SHARED, Line, Reference, beside, line_of, makers, references
from orchestrator.arena.baselines.registry import BASELINES
from orchestrator.arena.formats import load
from orchestrator.arena.optimum import optimum
from orchestrator.arena.protocol import Cloud, Observation, TickJob, TickMarket, TickPolicy
from orchestrator.arena.ticks import Task, play
from orchestrator.arena.traces import Window
from orchestrator.policy import online

GENERATED, GENERATED_QUICK = 10_000, 60
LIMITS = ((1.05, 1.20), (1.10, 1.10))
"""(limit relative to the work, largest allowed cost relative to the optimum)."""
GANGS, GANG_WORK_H, DUTY, H100_PER_MACHINE = (8, 16), 48.0, 0.90, 8
KINDS = ("markov", "bursty", "diurnal", "flaps", "vanishes", "lies", "empty")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a sample, within 50 s")
    parser.add_argument("--json", action="store_true", help="only the claims, as JSON")
    options = parser.parse_args(arguments)
    claims, notes = generated(GENERATED_QUICK if options.quick else GENERATED), []
    if (SHARED / "traces").exists():
        runs = references(11 if options.quick else 1)
        found, lines = reference_runs(runs)
        claims += [*found, *limits(2 if options.quick else 8)]
        of_gangs, table = gangs(2 if options.quick else 6)
        claims += of_gangs
        if not options.json:
            beside(lines)
            print(table)
        notes.append(f"{len(runs)} reference runs")
    else:
        notes.append(f"without the shared data in {SHARED}: only generated markets")
    return show("Deadlines on spot markets", claims, as_json=options.json, notes=notes)


def reference_runs(runs: Sequence[Reference]) -> tuple[list[Claim], list[Line]]:
    """The deadline policy on the reference runs, beside every baseline."""
    optima = [optimum(run.task, run.window).usd for run in runs]
    lines = {}
    took: dict[bool, list[float]] = {True: [0.0, 0.0], False: [0.0, 0.0]}  # by whether there is one zone: (ticks, s)
    slowest_s = 0.0
    for name, make in makers().items():
        done = []
        for run in runs:
            policy = Timed(make())
            done.append(play(policy, run.task, run.window))
            if name == "deadline":
                taken = took[len(run.window.zones) == 1]
                taken[0], taken[1] = taken[0] + done[-1].ticks_used, taken[1] + policy.seconds
                slowest_s = max(slowest_s, policy.slowest_s)
        lines[name] = line_of(name, runs, done, optima)
    ours = lines["deadline"]
    several = [run.cell for run in runs if len(run.window.zones) > 1]
    alone = [run.cell for run in runs if len(run.window.zones) == 1]
    weight = {family: len({cell for cell in (*several, *alone) if cell[0] == family}) for family in ours.family}
    claims = [
        Claim("reference runs: cost over optimum, mean", ours.mean, "x", 1.13),
        Claim("reference runs: cost over optimum, worst run", ours.worst, "x", 2.7),
        Claim("reference runs: missed deadlines", ours.missed, "runs", 0),
        Claim("several zones: cost over optimum, mean", _mean(ours, weight, several), "x", 1.18),
        Claim("one zone: cost over optimum, mean", _mean(ours, weight, alone), "x", 1.075),
        *(
            Claim(f"a decision with {what}, mean", 1e3 * took[one][1] / max(took[one][0], 1.0), "ms", most)
            for one, what, most in ((False, "several zones", 1.0), (True, "one zone", 0.05))
        ),
        Claim("a decision, slowest", 1e3 * slowest_s, "ms", 350),
    ]
    best = min((line for name, line in lines.items() if name in BASELINES), key=lambda line: line.mean)
    claims.append(Claim(f"the best baseline ({best.policy}), mean", best.mean, "x"))
    return claims, sorted(lines.values(), key=lambda line: line.mean)


def _mean(line: Line, weight: dict[str, int], cells: Sequence[tuple[str, ...]]) -> float:
    families = sorted({cell[0] for cell in cells})
    return float(np.average([line.family[each] for each in families], weights=[weight[each] for each in families]))


def limits(starts: int) -> list[Claim]:
    """96 hours of work in the six V100 zones of 2023, under limits little longer than the work."""
    trace, claims = load(SHARED / "traces" / "aws_v100x1_2023.npz"), []
    for ratio, most in LIMITS:
        ours = best = 0.0
        missed = 0
        for size in (10.0, 100.0):
            task = Task.of(96.0, 96.0 * ratio, 0.2, size, trace.tick_ms)
            for number in range(starts):
                window = trace.window((trace.ticks - task.ticks) * number // max(starts - 1, 1), task.ticks)
                done = play(online.make(), task, window)
                ours, best, missed = ours + done.usd, best + optimum(task, window).usd, missed + (not done.finished)
        claims.append(Claim(f"V100, 96 h, limit {ratio:.2f} x: cost over optimum", ours / best, "x", most))
        claims.append(Claim(f"V100, 96 h, limit {ratio:.2f} x: limits passed", missed, "runs", 0))
    return claims


def gangs(starts: int) -> tuple[list[Claim], str]:
    """48 hours of work on gangs of H100 without a deadline of their own, useful for at least DUTY of the time: US$ per
    useful GPU-hour of every policy on the same windows, and a table of all policies."""
    trace, claims = load(SHARED / "traces" / "gcp_h100x8_2025.npz"), []
    rows: dict[str, list[str]] = {name: [name] for name in (*makers(), "optimum")}
    for gang, size in itertools.product(GANGS, (10.0, 500.0)):
        task = Task.of(GANG_WORK_H, GANG_WORK_H / DUTY, 1 / 6, size, trace.tick_ms)
        windows = [
            trace.window((trace.ticks - task.ticks) * number // max(starts - 1, 1), task.ticks, gang=gang)
            for number in range(starts)
        ]
        useful_h = GANG_WORK_H * H100_PER_MACHINE * len(windows)
        best = math.fsum(optimum(task, window).usd for window in windows)
        rows["optimum"].append(f"{best / useful_h:.2f}")
        usd, idle = {}, 0
        for name, make in makers().items():
            done = [play(make(), task, window) for window in windows]
            late = sum(not each.finished for each in done)
            usd[name] = math.fsum(each.usd for each in done)
            idle += late * (name == online.NAME)
            rows[name].append(f"{usd[name] / useful_h:.2f}" + f" ({late} too idle)" * (late > 0))
        ours = usd.pop(online.NAME)
        cheapest = min(usd, key=lambda name: usd[name])
        what = f"gangs of {gang}, {size:g} GB"
        claims += [
            Claim(f"{what}: cost over optimum", ours / best, "x", 1.10),
            Claim(f"{what}: cost over the best baseline's ({cheapest})", ours / usd[cheapest], "x", 1.0),
            Claim(f"{what}: useful for less than {DUTY:.2f} of the time", idle, "runs", 0),
        ]
    head = ["US$ per useful GPU-hour", *(f"{gang} x, {size} GB" for gang, size in itertools.product(GANGS, (10, 500)))]
    lines = [head, ["---"] * len(head), *sorted(rows.values(), key=lambda row: float(row[1].split()[0]))]
    return claims, "\n".join("| " + " | ".join(row) + " |" for row in lines)


def generated(count: int) -> list[Claim]:
    """Missed deadlines in generated markets, by the behaviour of the market."""
    rng, missed, ours, greedy = random.Random(11), dict.fromkeys(KINDS, 0), 0.0, 0.0
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        task, window = market(kind, rng)
        done = play(LiedTo(online.make()) if kind == "lies" else online.make(), task, window)
        missed[kind] += not done.finished
        ours += done.usd
        greedy += play(BASELINES["greedy"](), task, window).usd
    return [
        *(Claim(f"{count:,} generated markets, {kind}: missed", missed[kind], "runs", 0) for kind in KINDS),
        Claim("generated markets: cost over greedy's, total", ours / greedy, "x"),
    ]


def market(kind: str, rng: random.Random) -> tuple[Task, Window]:
    """A job and a market in which on-demand alone meets its deadline, with a tick to spare."""
    random_numbers = np.random.default_rng(rng.randrange(1 << 30))
    zones, tick_ms = rng.choice((1, 1, 2, 3, 4)), rng.choice((195_000, 300_000, 600_000, 3_600_000))
    tick_h = tick_ms / 3.6e6
    ticks = rng.randint(40, 160)
    restart_h = tick_h * rng.choice((0.2, 1.0, 1.2, 2.0, 3.3))
    speed = tuple(rng.choice(rng.choice(((1.0,), (1.0, 0.3, 2.5)))) for _ in range(zones))
    fastest = max(speed)
    work_h = fastest * min(ticks * tick_h / rng.uniform(1.01, 3.0), (ticks - 1) * tick_h - restart_h)
    task = Task.of(work_h, ticks * tick_h, restart_h, rng.choice((0.0, 10.0, 500.0)), tick_ms, speed=fastest)
    up = np.array(
        [list(_capacity(kind, task, zone, tick_ms, fastest, random_numbers)) for zone in range(zones)], np.bool_
    )
    egress = np.full((zones, zones), 0.02)
    np.fill_diagonal(egress, 0.0)
    per_work = random_numbers.uniform(0.8, 1.25, zones) if fastest > min(speed) else np.ones(zones)
    window = Window(
        name=kind,
        zones=tuple(f"zone-{zone}" for zone in range(zones)),
        start=0,
        up=up,
        spot=random_numbers.uniform(0.5, 2.0, (zones, 1))
        * np.exp(random_numbers.normal(0, 0.05, (zones, ticks)))
        * np.array(speed)[:, None],
        on_demand=3.0 * np.array(speed) * per_work,
        egress=egress,
        filled=0,
        tick_ms=tick_ms,
        speed=speed,
        assumed=False,
    )
    return task, window


def _capacity(
    kind: str, task: Task, zone: int, tick_ms: int, fastest: float, numbers: np.random.Generator
) -> Iterator[bool]:
    """Whether a zone has capacity, tick by tick."""
    restart = max(round(task.overhead_ms / tick_ms), 1)
    slack = task.ticks - task.ticks_on_demand(tick_ms, fastest)
    there, left = bool(numbers.integers(2)), 0
    mean = {True: numbers.uniform(2, 40), False: numbers.uniform(2, 40)}
    for tick in range(task.ticks):
        if kind == "empty":
            yield False
        elif kind == "flaps":
            yield (tick + zone) // restart % 2 == 0
        elif kind == "vanishes":
            yield tick < slack - zone % 3
        else:
            if left <= 0:
                there = not there
                bursts = numbers.choice((0.15, 2.3)) if kind in ("bursty", "lies") else 1.0
                day = 1.8 if kind == "diurnal" and (tick * tick_ms / 3.6e6 % 24 < 10) == there else 1.0
                left = max(1, round(numbers.exponential(mean[there] * bursts * day)))
            left -= 1
            yield there


class Timed:
    """A timed policy: `seconds` in total, `slowest_s` for one tick."""

    def __init__(self, policy: TickPolicy) -> None:
        self._policy = policy
        self.name = str(getattr(policy, "name", type(policy).__name__))
        self.seconds = self.slowest_s = 0.0

    def start(self, job: TickJob, market: TickMarket) -> None:
        self._policy.start(job, market)

    def step(self, observation: Observation, cloud: Cloud) -> None:
        began = time.process_time()
        self._policy.step(observation, cloud)
        took = time.process_time() - began
        self.seconds += took
        self.slowest_s = max(self.slowest_s, took)


class LiedTo(Timed):
    """A policy for which every probe reports capacity."""

    def step(self, observation: Observation, cloud: Cloud) -> None:
        super().step(observation, _Promising(cloud))


class _Promising:
    def __init__(self, cloud: Cloud) -> None:
        self.try_launch: Callable[[int, str], bool] = cloud.try_launch
        self.terminate: Callable[[], None] = cloud.terminate
        self.probe: Callable[[int], bool] = partial(_yes)


def _yes(_zone: int) -> bool:
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
