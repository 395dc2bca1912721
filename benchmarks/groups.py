"""Claim: joint plans for thousands of jobs are found in milliseconds, each with a proof of its quality.

    python -m benchmarks.groups            each policy, beside plain HiGHS on one row per job
    python -m benchmarks.groups --quick    without the slow plain programs

CPU seconds, the minimum of three runs; "plain" is HiGHS (its interior-point method) on the program with one set of
columns per job, as a modelling layer would write it. The mix of jobs is random (seed 0); throughputs are Gavel's
(shared data, or TRADEWIND_SHARED), otherwise random ones of the same size. The certified gap is 0 unless one is
printed.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import benchmarks._one_thread  # noqa: F401  isort: skip
import numpy as np

from benchmarks._claims import Claim, show
from orchestrator.policy.groups import (
    Allocation,
    Budgets,
    Collection,
    Program,
    Quota,
    Supply,
    Together,
    collection,
    solve,
)
from orchestrator.policy.groups.exact import solve_exactly
from orchestrator.policy.groups.policies.cost import least_cost
from orchestrator.policy.groups.policies.fairness import max_min_fairness
from orchestrator.policy.groups.policies.finishing import finish_time_fairness, makespan
from orchestrator.policy.groups.policies.throughput import throughput_per_dollar, throughput_per_dollar_on_time
from orchestrator.policy.groups.policies.water_filling import water_filling
from orchestrator.policy.groups.problem import summed
from orchestrator.policy.groups.time_limit import TimeLimit

SHARED = Path(os.environ.get("TRADEWIND_SHARED") or Path(__file__).parents[2] / "shared")
WAYS = ("k80", "p100", "v100")
USD_PER_H = np.array([0.135, 0.43, 0.74])
RUNS = 3
SMALL: tuple[tuple[str, Callable[[Collection], Program], float], ...] = (
    ("max-min fairness", max_min_fairness, 0.015),
    ("throughput per dollar", throughput_per_dollar, 0.015),
    ("throughput per dollar with deadlines", throughput_per_dollar_on_time, 0.050),
    ("makespan", makespan, 0.050),
    ("finish-time fairness", finish_time_fairness, 0.150),
)

LARGE: tuple[tuple[str, Callable[[Collection], Program], float], ...] = (
    ("least cost with deadlines, quotas and 100 budgets", least_cost, 1.0),
    ("max-min fairness", max_min_fairness, 2.0),
    ("makespan", makespan, 2.0),
    ("finish-time fairness", finish_time_fairness, 2.0),
)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a sample, within 50 s")
    parser.add_argument("--json", action="store_true", help="only the claims, as JSON")
    options = parser.parse_args(arguments)
    table = Throughputs()
    claims: list[Claim] = []
    for name, policy, target in SMALL:
        jobs = table.jobs(2048)
        seconds, found = least(partial(planned, policy, jobs))
        claims += answered(f"2,048 jobs x 3 types, {name}", seconds, found, target)
        if not options.quick:
            plain, same = least(partial(planned, policy, apart(jobs)), runs=1)
            claims += compared(f"2,048 jobs x 3 types, {name}", plain, same, found)
    fair = partial(planned, max_min_fairness)
    for name, sharing, weights, answer in (
        ("max-min fairness, space sharing", True, False, fair),
        ("max-min fairness, space sharing, 3 weights", True, True, fair),
        ("water filling, 3 weights", False, True, water_filling),
    ):
        jobs = table.jobs(10_000, sizes=True, sharing=sharing, weights=weights)
        seconds, found = least(partial(answer, jobs))
        claims += answered(f"10,000 jobs of 1, 2, 4 and 8 GPUs, {name}", seconds, found, 0.100)
    for name, policy, target in LARGE:
        jobs = different(10_000, budgets=100 if policy is least_cost else 0)
        seconds, found = least(partial(planned, policy, jobs), runs=2)
        claims += answered(f"10,000 different jobs x 30 offers, {name}", seconds, found, target, gap=5e-3)
        if policy is least_cost and not options.quick:
            seconds, found = least(partial(solve, least_cost(jobs), gap=1e-4), runs=1)
            claims += answered(f"10,000 different jobs x 30 offers, {name}, precise", seconds, found, 10.0, gap=1e-4)
            plain, same = least(partial(solve_exactly, least_cost(jobs), until=TimeLimit(600)), runs=1)
            claims += compared(f"10,000 different jobs x 30 offers, {name}", plain, same, found, within=1e-4)
    notes = [table.source, f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"]
    return show("Collections of jobs", claims, as_json=options.json, notes=notes)


def planned(policy: Callable[[Collection], Program], jobs: Collection) -> Allocation:
    return solve(policy(jobs))


def least(answer: Callable[[], Allocation], runs: int = RUNS) -> tuple[float, Allocation]:
    """(CPU seconds of the fastest run, its answer)."""
    best = np.inf
    for _ in range(runs):
        begun = time.process_time()
        found = answer()
        best = min(best, time.process_time() - begun)
    return float(best), found


def answered(name: str, seconds: float, found: Allocation, target: float, gap: float = 1e-6) -> list[Claim]:
    largest = max(certificate.gap for certificate in found.certificates)
    return [Claim(f"{name}: CPU time", 1e3 * seconds, "ms", 1e3 * target), Claim(f"{name}: gap", largest, "", gap)]


def compared(name: str, plain_s: float, plain: Allocation, found: Allocation, within: float = 1e-6) -> list[Claim]:
    ours, theirs = found.certificates[0].value, plain.certificates[0].value
    return [
        Claim(f"{name}: CPU time of plain HiGHS", 1e3 * plain_s, "ms"),
        Claim(f"{name}: difference of the objectives", abs(ours / theirs - 1), "", within),
    ]


def different(jobs: int, *, budgets: int) -> Collection:
    """Jobs that all differ, on ten variants of each of three types of GPU: random, seed 0. There are as many GPUs as
    three quarters of the jobs, three quotas with the same effect, and budgets of 1.6 times the amount that each user
    would pay without limits."""
    chance = np.random.default_rng(0)
    base = chance.uniform(0.5, 20, (26, 1)) * np.array([1.0, 2.5, 4.0]) * chance.uniform(0.6, 1.4, (26, 3))
    rate = np.repeat(base[chance.integers(0, 26, jobs)] * 1.0, 10, axis=1)
    rate = rate * chance.uniform(0.85, 1.15, 30) * chance.uniform(0.93, 1.07, (jobs, 30))
    usd_per_h = np.repeat(USD_PER_H, 10) * chance.uniform(0.6, 1.4, 30)
    minutes = 10 ** np.where(chance.random(jobs) < 0.8, chance.uniform(1.5, 3, jobs), chance.uniform(3, 4, jobs))
    steps = 60 * minutes * rate.max(axis=1)
    deadline = 60 * minutes * chance.choice(np.array([2.0, 4.0, 15.0]), jobs)
    age = chance.uniform(0, 1, jobs) * 60 * minutes
    found = collection(
        rate,
        Supply(np.full(30, 0.75 * jobs / 30), usd_per_h),
        steps=steps,
        age_s=age,
        alone_s=age * chance.uniform(0.5, 1.5, jobs),
        deadline_s=deadline,
    )
    if not budgets:
        return found
    user = chance.integers(0, budgets, jobs)
    most = 1.6 * summed(user, (usd_per_h / rate).min(axis=1) * steps / deadline, budgets)
    quotas = tuple(Quota(f"quota {each}", np.arange(10) + 10 * each, 0.22 * jobs) for each in range(3))
    return replace(found, quotas=quotas, budgets=Budgets(tuple(map(str, range(budgets))), most, user))


def apart(jobs: Collection) -> Collection:
    """The same jobs, each a separate class: rates differ by less than the solver's tolerance."""
    return replace(jobs, rate=jobs.rate * (1 + 1e-12 * np.arange(len(jobs)))[:, None])


class Throughputs:
    """Steps/s of kinds of jobs alone and together."""

    def __init__(self) -> None:
        folder = SHARED / "jobs"
        self.pairs: Together | None = None
        if folder.exists():
            self.source = f"throughputs of Gavel's jobs, from {folder.name}/throughputs_*.csv"
            kinds: dict[tuple[str, str], list[float]] = {}
            with (folder / "throughputs_isolated.csv").open() as file:
                for row in csv.DictReader(file):
                    kinds[row["job_type"], row["scale_factor"]] = [float(row[way]) for way in WAYS]
            number = {kind: index for index, kind in enumerate(kinds)}
            self.rate, self.gpus = np.array(list(kinds.values())), np.array([float(size) for _, size in kinds])
            rows = []
            with (folder / "throughputs_colocated.csv").open() as file:
                for row in csv.DictReader(file):
                    first, second = ((row[f"job_type_{each}"], row["scale_factor"]) for each in "ab")
                    rates = float(row["steps_per_s_a"]), float(row["steps_per_s_b"])
                    if first in number and second in number:
                        rows.append((number[first], number[second], WAYS.index(row["worker_type"]), *rates))
            self._pairs(np.array(rows))
        else:
            self.source = f"random throughputs: no shared data in {SHARED}"
            chance = np.random.default_rng(0)
            self.rate = chance.uniform(0.5, 20, (83, 1)) * np.array([1.0, 2.5, 4.0]) * chance.uniform(0.6, 1.4, (83, 3))
            self.gpus = np.repeat([1.0, 2.0, 4.0, 8.0], (26, 19, 19, 19))
            one, two = (each.ravel() for each in np.meshgrid(np.arange(83), np.arange(83)))
            same = (one <= two) & (self.gpus[one] == self.gpus[two])
            way = np.tile(np.arange(3), int(same.sum()))
            one, two = np.repeat(one[same], 3), np.repeat(two[same], 3)
            part = chance.uniform(0.3, 0.9, (2, len(way)))
            rate_of = self.rate[one, way] * part[0], self.rate[two, way] * part[1]
            self._pairs(np.column_stack([one, two, way, *rate_of]))

    def _pairs(self, rows: np.ndarray) -> None:
        first, second, way = (rows[:, column].astype(np.int64) for column in range(3))
        self.pairs = Together(first, second, way, rows[:, 3], rows[:, 4])

    def jobs(self, jobs: int, *, sizes: bool = False, sharing: bool = False, weights: bool = False) -> Collection:
        """A random mix of this many jobs; as many GPUs of each type as a quarter of the jobs."""
        chance = np.random.default_rng(0)
        kind = chance.choice(np.flatnonzero((self.gpus == 1) | sizes), jobs)
        rate = self.rate[kind]
        minutes = 10 ** np.where(chance.random(jobs) < 0.8, chance.uniform(1.5, 3, jobs), chance.uniform(3, 4, jobs))
        age = chance.uniform(0, 1, jobs) * 60 * minutes
        deadline = np.where(
            chance.random(jobs) < 0.3, chance.choice(np.array([1.8, 3.0, 15.0]), jobs) * 60 * minutes, np.inf
        )
        return collection(
            rate,
            Supply(np.full(3, jobs // 4, dtype=float), USD_PER_H),
            gpus=self.gpus[kind],
            steps=60 * minutes * rate[:, 2],
            weight=chance.choice(np.array([1.0, 2.0, 5.0]), jobs) if weights else None,
            age_s=age,
            alone_s=age * chance.uniform(0.5, 1.5, jobs),
            deadline_s=deadline,
            kind=kind,
            together=self.pairs if sharing else None,
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
