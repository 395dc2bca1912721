"""Claim: a budget is never exceeded, and within it a job finishes almost as early as possible in hindsight.

    python -m benchmarks.budgets            1,000 random jobs on the recorded traces; about twelve minutes
    python -m benchmarks.budgets --quick    30 of them

Each job has 6, 12 or 24 hours of work, some zones of one trace, one machine or a gang, and a budget between 1.05 times
the job's cost in hindsight and its cost on demand. A job that takes longer than four times its work counts as not
finished. The bound is the earliest finish within the budget in hindsight. Every policy has the same budget: the
baselines' machines are ended before a tick that they could not pay for. Needs the folder `shared` beside the repository
(or TRADEWIND_SHARED).
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import benchmarks._one_thread  # noqa: F401  isort: skip
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks._claims import Claim, show
from benchmarks.arena import SHARED
from orchestrator.arena.baselines.registry import BASELINES
from orchestrator.arena.baselines.simple import Greedy
from orchestrator.arena.formats import load
from orchestrator.arena.optimum import optimum
from orchestrator.arena.protocol import ON_DEMAND, Cloud, Observation, TickJob, TickMarket, TickPolicy
from orchestrator.arena.ticks import Task, play
from orchestrator.arena.traces import Window
from orchestrator.policy import online

JOBS, JOBS_QUICK = 1000, 30
TRACES = (  # with the largest gang
    ("aws_v100x1_2023.npz", 1),
    ("gcp_h100x8_2025.npz", 4),
    ("aws_v100x1_2022.npz", 1),
    ("aws_v100x8_2022.npz", 1),
    ("aws_v100x4node_2023.npz", 4),
)
LONGEST = 4.0
"""The most time a job may take, as a multiple of its work."""
LEAST = 1.05
"""The smallest budget, as a multiple of the cost in hindsight."""
PRECISION = 0.004
"""The precision of the bound, as a share of the time on demand."""


@dataclass(frozen=True, slots=True)
class Case:
    """A job with its budget and the least number of ticks that it needs."""

    task: Task
    window: Window
    budget_usd: float
    least_ticks: int


def cases(count: int, seed: int) -> list[Case]:
    """Random jobs on the traces."""
    draw, found = random.Random(seed), []
    traces = [(load(SHARED / "traces" / name), most) for name, most in TRACES]
    for _ in range(count):
        trace, most = draw.choice(traces)
        work_h = draw.choice((6.0, 12.0, 24.0))
        overhead_h, size_gb = draw.choice((0.1, 0.2, 0.5)), draw.choice((1.0, 50.0, 200.0))
        task = Task.of(work_h, LONGEST * work_h, overhead_h, size_gb, trace.tick_ms)
        zones, gang = draw.sample(trace.zones, draw.randint(1, len(trace.zones))), draw.randint(1, most)
        window = trace.window(draw.randrange(trace.ticks - task.ticks), task.ticks, zones=zones, gang=gang)
        least_usd = LEAST * optimum(task, window).usd
        on_demand_usd = float(window.on_demand.min()) * task.ticks_on_demand(trace.tick_ms) * trace.tick_ms / 3.6e6
        budget_usd = draw.uniform(least_usd, max(least_usd, on_demand_usd))
        found.append(Case(task, window, budget_usd, least_ticks(task, window, budget_usd)))
    return found


def least_ticks(task: Task, window: Window, budget_usd: float) -> int:
    """The fewest ticks in which the job can be done for this amount, rounded up by at most PRECISION."""
    too_few = task.ticks_on_demand(window.tick_ms) - 1
    enough, step = task.ticks, max(round(PRECISION * too_few), 1)
    middle = too_few + 1
    while middle > too_few:
        if optimum(replace(task, ticks=middle), window).usd <= budget_usd:
            enough = middle
        else:
            too_few = middle
        middle = (too_few + enough) // 2 if enough - too_few > step else too_few
    return enough


class Capped:
    """A policy with a budget that it does not know: unaffordable launches fail, and machines are ended before an
    unaffordable tick."""

    def __init__(self, policy: TickPolicy, budget_usd: float) -> None:
        self._policy, self.left_usd = policy, budget_usd

    def start(self, job: TickJob, market: TickMarket) -> None:
        self._job, self._market = job, market
        self._policy.start(job, market)

    def step(self, seen: Observation, cloud: Cloud) -> None:
        self._seen, self._cloud, self._runs, self._egress_usd = seen, cloud, seen.running, 0.0
        self._policy.step(seen, self)
        if self._runs is None:
            return
        bill_usd = self._bill(*self._runs) + self._egress_usd
        if bill_usd > self.left_usd:  # it goes on: nothing was launched
            cloud.terminate()
        else:
            self.left_usd -= bill_usd

    def try_launch(self, zone: int, kind: str) -> bool:
        if self._runs == (zone, kind):
            return True
        at = self._seen.checkpoint_zone
        egress_usd = 0.0 if at is None else self._market.egress_usd_per_gb[at][zone] * self._job.checkpoint_gb
        if self._bill(zone, kind) + egress_usd > self.left_usd or not self._cloud.try_launch(zone, kind):
            return False
        self._runs, self._egress_usd = (zone, kind), egress_usd
        return True

    def probe(self, zone: int) -> bool:
        usd = self._market.probe_hours * self._seen.spot_usd_per_hour[zone]
        there = usd <= self.left_usd and self._cloud.probe(zone)
        self.left_usd -= usd * there
        return there

    def terminate(self) -> None:
        self._runs = None
        self._cloud.terminate()

    def _bill(self, zone: int, kind: str) -> float:
        on_demand = self._market.on_demand_usd_per_hour[zone]
        usd = on_demand if kind == ON_DEMAND else self._seen.spot_usd_per_hour[zone]
        return usd * self._market.tick_hours


class ThenOnDemand(Greedy):
    """Spot in the cheapest zone with capacity; on demand for good as soon as the remaining budget pays for the rest
    there."""

    name = "greedy, then on-demand"

    def __init__(self, budget_usd: float) -> None:
        self.purse = Capped(self, budget_usd)

    def step(self, seen: Observation, cloud: Cloud) -> None:
        if seen.running is None or seen.running[1] != ON_DEMAND:
            ticks = self.ticks_needed(seen, self.job.restart_overhead_hours)
            rest_usd = min(self.market.on_demand_usd_per_hour) * self.market.tick_hours * ticks
            if rest_usd <= self.purse.left_usd:
                self.buy(seen, cloud)
            else:
                super().step(seen, cloud)


OURS = "budget"


def policies(budget_usd: float) -> dict[str, Callable[[], TickPolicy]]:
    """A new policy with a budget, by name."""
    capped: dict[str, Callable[[], TickPolicy]] = {
        name: lambda name=name: Capped(BASELINES[name](), budget_usd)  # type: ignore[misc]
        for name in ("uniform-progress", "greedy", "on-demand")
    }
    return {
        OURS: lambda: online.make(OURS, budget_usd=budget_usd),
        "deadline, with a budget": lambda: online.make(budget_usd=budget_usd),
        ThenOnDemand.name: lambda: ThenOnDemand(budget_usd).purse,
        **capped,
    }


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a sample, within 50 s")
    parser.add_argument("--json", action="store_true", help="only the claims, as JSON")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    if not (SHARED / "traces").exists():
        return show("Budgets", [], as_json=options.json, notes=[f"no traces in {SHARED}"])
    drawn = cases(JOBS_QUICK if options.quick else JOBS, options.seed)
    columns = ("policy", "budgets passed", "not finished", "median time", "90th percentile")
    table = Table(*columns, title="Time over the bound")
    claims = []
    for name in policies(0.0):
        done = [play(policies(case.budget_usd)[name](), case.task, case.window) for case in drawn]
        over = sum(each.usd > case.budget_usd for each, case in zip(done, drawn, strict=True))
        missed = sum(not each.finished for each in done)
        finished = [each.ticks_used / case.least_ticks for each, case in zip(done, drawn, strict=True) if each.finished]
        times = finished + [math.inf] * missed
        median, high = float(np.median(times)), float(np.quantile(times, 0.9, method="higher"))
        table.add_row(name, str(over), str(missed), f"{median:.3f}", f"{high:.3f}")
        if name == OURS:
            claims = [
                Claim(f"{len(drawn):,} jobs: budgets passed", over, "jobs", 0),
                Claim("time over the bound, median (a job that is not finished: infinite)", median, "x", 1.15),
                Claim("time over the bound, mean of those that finished", float(np.mean(finished)), "x"),
                Claim("not finished, though the budget could have bought it in hindsight", missed, "jobs"),
            ]
    if not options.json:
        Console().print(table)
    return show("Budgets", claims, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
