"""The accuracy of forecasts: the plan at submission, compared with the result.

    python -m benchmarks.forecast [--quick] [--json] [--seed N] [--seeds N] [--hours LEAST MOST] [--on-demand] ...

The whole engine runs in virtual time on the demo's market, with its prices, capacity shortages and preemptions;
start-up times differ by offer and by launch. Each seed submits two jobs before any start-up has been observed (cold),
then a third, and two more when those three have ended (after three jobs). Their speed was measured before, within 2 %.
The benchmark counts how many costs and finish times fall within the 90 % interval that the plan showed; the target is
80 to 97 %. --quick plays 5 seeds, which is too few to judge by, and prints the figures without targets.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from benchmarks._claims import Claim, show
from benchmarks._demo_market import SAVING, DemoMarket, train_spec
from orchestrator.engine.context import ACTIVE
from orchestrator.model import FASTEST, Job, JobSpec, Run
from orchestrator.services.jobs.plan import preview
from providers.money import NANO_USD
from providers.offer import CapacityType
from tests.rig import SqliteScratchDatabase, memory_folder

T = TypeVar("T")
SEEDS = 20
QUICK_SEEDS = 5
HOURS = (0.25, 6.0)  # hours of work on the fastest machine
# time steps: after a change; at most, while jobs train; while machines start or jobs move
STRIDES_S = (6.0, 240.0, 24.0)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One job's cost (nano-USD) and time (seconds): forecast (5th percentile, expected, 95th) and actual."""

    seed: int
    warm: bool
    hours: float
    cost: tuple[int, int, int]
    seconds: tuple[float, float, float]
    paid: int
    took_s: float
    runs: int
    offer: str = ""

    @property
    def cost_covered(self) -> bool:
        return self.cost[0] <= self.paid <= self.cost[2]

    @property
    def time_covered(self) -> bool:
        return self.seconds[0] <= self.took_s <= self.seconds[2]


@dataclass(frozen=True, slots=True)
class Jobs:
    """The size of the jobs: hours of work on the fastest machine, log-uniform between the limits."""

    hours: tuple[float, float] = HOURS
    on_demand: bool = False
    deadline: float = 0.0
    fastest: bool = False


@dataclass(frozen=True, slots=True)
class _Submitted:
    job: Job
    hours: float
    cost: tuple[int, int, int]
    seconds: tuple[float, float, float]
    at_ms: int
    offer: str


def play(seed: int, folder: Path, database: SqliteScratchDatabase, jobs: Jobs) -> Iterator[Outcome]:
    """Play the five jobs of a seed; the third only provides measurements."""
    home = DemoMarket(folder, database, seed, days=10 + 4 * jobs.hours[1] * 5 / 24)
    with closing(home.store):
        cold = [_submit(home, jobs, number) for number in (0, 1)]
        _settle(home)
        third = _submit(home, jobs, 2)
        _settle(home)
        warm = [_submit(home, jobs, number) for number in (3, 4)]
        _settle(home)
        for each in (*cold, *warm):
            yield _outcome(home, seed, each, each in warm)
        assert home.finished_at_ms(third.job) is not None


def _submit(home: DemoMarket, jobs: Jobs, number: int) -> _Submitted:
    least, most = jobs.hours
    hours = math.exp(home.chance.uniform(math.log(least), math.log(most)))
    spec = JobSpec(f"job-{number}", train_spec(f"job{number}", max(20, round(hours * 3600))))
    if jobs.on_demand:
        spec = replace(spec, capacity=(CapacityType.ON_DEMAND,))
    if jobs.deadline:
        spec = replace(spec, deadline_s=jobs.deadline * hours * 3600 + 3600)
    if jobs.fastest:
        spec = replace(spec, objective=FASTEST)
    home.measured(spec)
    view = preview(home.installation, [spec])
    (decided,), (job,) = view.decisions, view.new_jobs
    chosen = next(each for each in decided.choices if each.role == "choose")
    cost = (chosen.cost_low_nano_usd, chosen.cost_nano_usd, chosen.cost_high_nano_usd)
    seconds = (chosen.duration_low_s, chosen.duration_s, chosen.duration_high_s)
    home.submit_planned(job)
    return _Submitted(
        job,
        hours,
        _known(cost),
        _known(seconds),
        home.clock.now_ms(),
        chosen.offer_id,
    )


def _known(figures: tuple[T | None, T | None, T | None]) -> tuple[T, T, T]:
    low, mid, high = figures
    assert low is not None
    assert mid is not None
    assert high is not None
    return low, mid, high


def _settle(home: DemoMarket) -> None:
    """Run until all jobs have ended. Time advances in small steps while something starts or moves, otherwise in large
    ones, but not past a job's last step."""
    stride_s = STRIDES_S[0]
    while not home.settled:
        changed = home.tick(stride_s)
        with home.store.read() as tx:
            runs = [run for run in tx.unsettled_runs() if run.end is None]
            training = [run.job_id for run in runs if run.state == "training"]
            calm = not changed and sorted(training) == sorted(job.id for job in tx.jobs(states=ACTIVE))
            left_s = [_left_s(tx.job(run.job_id), run) for run in runs]
        most_s = STRIDES_S[1] if calm else STRIDES_S[2]
        stride_s = STRIDES_S[0] if changed else min(most_s, 2 * stride_s)
        if calm and left_s:
            stride_s = max(STRIDES_S[0], min(stride_s, *left_s))


def _left_s(job: Job, run: Run) -> float:
    assert job.spec.train.steps is not None
    return (job.spec.train.steps - run.last_step) * (run.step_wall_s or 1.0) * (1 + SAVING)


def _outcome(home: DemoMarket, seed: int, each: _Submitted, warm: bool) -> Outcome:
    finished_ms = home.finished_at_ms(each.job)
    assert finished_ms is not None, home.job(each.job)
    runs = sum(run.training_from_ms is not None for run in home.runs(each.job))
    took_s = (finished_ms - each.at_ms) / 1000
    paid = home.paid_nano_usd(each.job)
    return Outcome(seed, warm, each.hours, each.cost, each.seconds, paid, took_s, runs, each.offer)


def claims_of(outcomes: Sequence[Outcome], *, judged: bool) -> list[Claim]:
    claims = []
    for warm, when in ((False, "cold"), (True, "after three jobs")):
        of = [each for each in outcomes if each.warm is warm]
        for what, covered in (
            ("costs paid", [each.cost_covered for each in of]),
            ("finish times", [each.time_covered for each in of]),
        ):
            share = 100 * sum(covered) / len(of)
            claims += [
                Claim(f"{what} within p5-p95, {when}", share, "%", 80.0 if judged else None, least=True),
                Claim(f"{what} within p5-p95, {when}: not too wide", share, "%", 97.0 if judged else None),
            ]
        cost = statistics.median(abs(each.paid / each.cost[1] - 1) for each in of)
        time = statistics.median(abs(each.took_s / each.seconds[1] - 1) for each in of)
        claims += [
            Claim(f"median error of the expected cost, {when}", 100 * cost, "%"),
            Claim(f"median error of the expected time, {when}", 100 * time, "%"),
        ]
    claims.append(Claim("jobs", len(outcomes), "jobs"))
    return claims


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--hours", type=float, nargs=2, default=HOURS, metavar=("LEAST", "MOST"))
    parser.add_argument("--on-demand", action="store_true")
    parser.add_argument("--fastest", action="store_true")
    parser.add_argument("--deadline", type=float, default=0.0, help="hours per hour of work")
    parser.add_argument("--verbose", action="store_true")
    asked = parser.parse_args()
    jobs = Jobs((asked.hours[0], asked.hours[1]), asked.on_demand, asked.deadline, asked.fastest)
    outcomes: list[Outcome] = []
    with memory_folder() as folder, closing(SqliteScratchDatabase(folder)) as database:
        for seed in range(asked.seed, asked.seed + (asked.seeds or (QUICK_SEEDS if asked.quick else SEEDS))):
            for each in play(seed, folder / "home", database, jobs):
                outcomes.append(each)
                if asked.verbose:
                    print(_line(each), file=sys.stderr, flush=True)
    return show("Forecasts", claims_of(outcomes, judged=not asked.quick), as_json=asked.json)


def _line(each: Outcome) -> str:
    low, mid, high = (value / NANO_USD for value in each.cost)
    fast, usual, slow = (value / 3600 for value in each.seconds)
    return (
        f"{each.seed:3} {'warm' if each.warm else 'cold'} {each.hours:5.2f} h {each.offer:40} "
        f"cost {low:.3f} {mid:.3f} {high:.3f} paid {each.paid / NANO_USD:.3f}{'' if each.cost_covered else ' !'}  "
        f"time {fast:.2f} {usual:.2f} {slow:.2f} took {each.took_s / 3600:.2f}"
        f"{'' if each.time_covered else ' !'} in {each.runs} runs"
    )


if __name__ == "__main__":
    sys.exit(main())
