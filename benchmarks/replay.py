"""Claim: on recorded prices, live decisions cost less than the simple rules that people use.

    python -m benchmarks.replay              three markets, three capacity seeds, 60 jobs each; some minutes
    python -m benchmarks.replay --quick      one seed, 12 jobs of each market
    python -m benchmarks.replay --market gcp-2024 --seed 2 --jobs 20

Prices are those of AWS in 2020, AWS and Azure in 2020, and GCP from 2024 to 2026 (folder `market` of the shared data).
Capacity is synthetic (orchestrator.arena.replay.capacity). All policies play the same jobs in the same capacity:
`decide` as it runs live, the same without voluntary moves, and the rules of orchestrator.arena.replay.simple. The bound
is at every instant where a step is cheapest and pays for no move.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks._claims import Claim, show
from orchestrator.arena import paper_data
from orchestrator.arena.replay.bound import instant_cheapest
from orchestrator.arena.replay.capacity import Pool, synthetic
from orchestrator.arena.replay.histories import HISTORIES
from orchestrator.arena.replay.jobs import ReplayJob, jobs
from orchestrator.arena.replay.knowledge import DAY_MS, Knowledge
from orchestrator.arena.replay.live import NO_MOVES, Live
from orchestrator.arena.replay.simple import RULES, Simple
from orchestrator.arena.replay.simulator import Policy, Simulator
from orchestrator.arena.replay.state import State
from orchestrator.market.snapshot import DEFAULT_STARTUP_S
from providers.catalog import load
from providers.money import NANO_USD

SHARED = Path(os.environ.get("TRADEWIND_SHARED") or Path(__file__).parents[2] / "shared")
SEEDS, JOBS, JOBS_QUICK = (1, 2, 3), 60, 12
AFTER_MS = 120 * DAY_MS  # capacity and prices go on for so long after the last start
OURS, STILL, BOUND = "ours", "ours without moves", "instant-cheapest bound"


@dataclass(frozen=True, slots=True)
class Scene:
    """One market with one capacity and its jobs."""

    market: str
    seed: int
    knowledge: Knowledge
    capacity: tuple[Pool, ...]
    jobs: tuple[ReplayJob, ...]
    until_ms: int


@dataclass(frozen=True, slots=True)
class Done:
    """What one policy made of one job. nano-USD; `hours` from the start to the end."""

    scene: str
    seed: int
    policy: str
    job: ReplayJob
    cost: int
    hours: float
    finished: bool
    missed: bool
    moves: int
    losses: int


def scenes(folder: Path, markets: Iterable[str], seeds: Sequence[int], count: int) -> Iterable[Scene]:
    throughputs, tariff = paper_data.read(folder).steps_per_s, load().egress()
    for name in markets:
        history = HISTORIES[name]
        knowledge = Knowledge(history.read(folder), tariff, DEFAULT_STARTUP_S)
        until_ms = knowledge.record.end_ms + AFTER_MS
        for seed in seeds:
            capacity = synthetic(knowledge.record, seed, until_ms)
            work = jobs(knowledge.record, history, throughputs, count, seed)
            yield Scene(name, seed, knowledge, capacity, work, until_ms)


def policies(knowledge: Knowledge) -> dict[str, Callable[[], Policy]]:
    simple: dict[str, Callable[[], Policy]] = {name: partial(Simple, knowledge, rule) for name, rule in RULES.items()}
    return simple | {STILL: lambda: Live(knowledge, limits=NO_MOVES), OURS: lambda: Live(knowledge)}


def play(scene: Scene, only: Sequence[str] = (), trace: str = "") -> list[Done]:
    """Every policy on one scene."""
    found = []
    for job in scene.jobs:
        cost, took_ms = instant_cheapest(scene.knowledge.record, scene.capacity, job)
        found.append(Done(scene.market, scene.seed, BOUND, job, cost, took_ms / 3.6e6, True, False, 0, 0))
    for name, make in policies(scene.knowledge).items():
        if only and name not in only:
            continue
        began = time.process_time()
        simulator = Simulator(scene.knowledge, scene.capacity, make(), scene.jobs, scene.until_ms)
        if trace:
            simulator.log = _tracer(name, trace)
        found += [_done(scene, name, state, simulator) for state in simulator.play()]
        print(f"{scene.market} {scene.seed} {name}: {time.process_time() - began:.1f} s", file=sys.stderr, flush=True)
    return found


def _tracer(policy: str, job_id: str) -> Callable[[int, State, str], None]:
    def told(at_ms: int, state: State, what: str) -> None:
        if state.job.id == job_id:
            hours = (at_ms - state.job.start_ms) / 3.6e6
            share = state.steps(at_ms) / state.job.steps
            print(
                f"{policy:20} {hours:7.2f} h {share:6.1%} ${state.spent(at_ms) / NANO_USD:8.2f} {what}", file=sys.stderr
            )

    return told


def _done(scene: Scene, policy: str, state: State, simulator: Simulator) -> Done:
    job, finished_ms = state.job, state.finished_ms
    ended_ms = scene.until_ms if finished_ms is None else finished_ms
    return Done(
        scene=scene.market,
        seed=scene.seed,
        policy=policy,
        job=job,
        cost=state.spent(ended_ms),
        hours=(ended_ms - job.start_ms) / 3.6e6,
        finished=finished_ms is not None,
        missed=job.deadline_ms is not None and (finished_ms is None or finished_ms > job.deadline_ms),
        moves=len(simulator.moves[job.id]),
        losses=state.losses,
    )


GROUPS: dict[str, Callable[[ReplayJob], bool]] = {
    "cheapest alone": lambda job: job.deadline_ms is None,
    "cheapest + deadline": lambda job: job.deadline_ms is not None,
    "all": bool,
}


def table(market: str, done: Sequence[Done]) -> Table:
    shown = Table(
        "policy",
        *(f"{group}: $ | x bound" for group in GROUPS),
        "hours",
        "missed",
        "unfinished",
        "moves",
        "losses",
        title=market,
    )
    for policy in dict.fromkeys(each.policy for each in done):
        of = [each for each in done if each.policy == policy]
        columns = []
        for group in GROUPS.values():
            total = _total(of, policy, group)
            columns.append(f"{total:,.0f} | {total / _total(done, BOUND, group):.3f}")
        counts = (sum(each.hours for each in of), *(sum(getattr(each, name) for each in of) for name in ("missed",)))
        unfinished = sum(not each.finished for each in of)
        shown.add_row(
            policy,
            *columns,
            f"{counts[0]:,.0f}",
            str(counts[1]),
            str(unfinished),
            str(sum(each.moves for each in of)),
            str(sum(each.losses for each in of)),
        )
    return shown


def _total(done: Sequence[Done], policy: str, group: Callable[[ReplayJob], bool]) -> float:
    return sum(each.cost for each in done if each.policy == policy and group(each.job)) / NANO_USD


def claims_of(done: Sequence[Done]) -> list[Claim]:
    claims = []
    for market in dict.fromkeys(each.scene for each in done):
        of = [each for each in done if each.scene == market]
        alone, under = GROUPS["cheapest alone"], GROUPS["cheapest + deadline"]
        valid = [name for name in RULES if not any(each.missed for each in of if each.policy == name)]
        best = min(valid, key=lambda name: _total(of, name, under))
        ours = _total(of, OURS, under)
        claims += [
            Claim(f"{market}: with a deadline, over the best rule ({best})", ours / _total(of, best, under), "x", 0.95),
            Claim(
                f"{market}: cheapest alone, over static spot",
                _total(of, OURS, alone) / _total(of, "static spot", alone),
                "x",
                1.0,
            ),
            Claim(f"{market}: missed deadlines", sum(each.missed for each in of if each.policy == OURS), "jobs", 0),
            Claim(
                f"{market}: gained by moving",
                100 * (1 - _total(of, OURS, GROUPS["all"]) / _total(of, STILL, GROUPS["all"])),
                "%",
            ),
        ]
    under = GROUPS["cheapest + deadline"]
    claims.append(
        Claim(
            "with a deadline, over the bound, in total",
            _total(done, OURS, under) / _total(done, BOUND, under),
            "x",
            1.2,
        )
    )
    return claims


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a sample, within 50 s")
    parser.add_argument("--json", action="store_true", help="only the claims, as JSON")
    parser.add_argument("--market", action="append", choices=tuple(HISTORIES), help="only this one (repeatable)")
    parser.add_argument("--seed", action="append", type=int, help="only this capacity seed (repeatable)")
    parser.add_argument("--jobs", type=int, help="how many jobs each market and seed has")
    parser.add_argument("--policy", action="append", help="only this policy (repeatable)")
    parser.add_argument("--trace", default="", metavar="JOB", help="print what happens to one job, such as job_007")
    parser.add_argument("--per-job", action="store_true", help="print what each policy paid for each job")
    options = parser.parse_args(arguments)
    folder = SHARED / "market"
    if not folder.is_dir():
        return show("Recorded prices", [], as_json=options.json, notes=[f"no recorded markets in {folder}"])
    seeds = options.seed or (SEEDS[:1] if options.quick else SEEDS)
    count = options.jobs or (JOBS_QUICK if options.quick else JOBS)
    done: list[Done] = []
    for scene in scenes(folder, options.market or HISTORIES, seeds, count):
        done += play(scene, options.policy or (), options.trace)
    if not options.json:
        for market in dict.fromkeys(each.scene for each in done):
            Console(width=180).print(table(market, [each for each in done if each.scene == market]))
    if options.per_job:
        per_job(done)
    return 0 if options.policy else show("Recorded prices", claims_of(done), as_json=options.json)


def per_job(done: Sequence[Done]) -> None:
    """What each policy paid for each job."""
    names = list(dict.fromkeys(each.policy for each in done))
    shown = Table("job", "GPUs", "work h", "GB", "deadline", *names)
    for seed, job in {(each.seed, each.job.id): (each.seed, each.job) for each in done}.values():
        paid = {each.policy: each for each in done if each.job is job}
        gpus, slack = (
            next(iter(job.rates))[1],
            "" if job.deadline_ms is None else f"{(job.deadline_ms - job.start_ms) / 1000 / job.work_s:.2f}",
        )
        cells = [
            f"{paid[name].cost / NANO_USD:.2f} {paid[name].hours:.0f}h {paid[name].moves}m {paid[name].losses}l"
            for name in names
        ]
        shown.add_row(
            f"{job.id}/{seed}",
            str(gpus),
            f"{job.work_s / 3600:.0f}",
            f"{job.checkpoint_bytes / 1e9:.0f}",
            slack,
            *cells,
        )
    Console(width=220).print(shown)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
