"""Claim: on recorded prices, live decisions cost less than the simple rules that people use.

    python -m benchmarks.replay              three markets, three capacity seeds, 60 jobs each; about ten minutes of CPU
    python -m benchmarks.replay --quick      one seed, 8 jobs of each market
    python -m benchmarks.replay --market gcp-2024 --seed 2 --jobs 20 --per-job --trace job_007

Prices are those of AWS in 2020, AWS and Azure in 2020, and GCP from 2024 to 2026 (folder `market` of the shared data).
Capacity is synthetic (orchestrator.arena.replay.capacity). All policies play the same jobs in the same capacity:
`decide` as it runs live, the same without voluntary moves or without known speeds, and the rules of
orchestrator.arena.replay.simple. The bound always runs where a step is cheapest and pays for no move. Half the jobs
have a deadline, a third a budget. A job is paused when its budget is spent, under every policy; totals are those of
jobs without a budget.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
from orchestrator.arena.replay.promise import Kept, kept
from orchestrator.arena.replay.simple import FASTEST_ON_DEMAND, RULES, Simple
from orchestrator.arena.replay.simulator import Policy, Simulator
from orchestrator.arena.replay.state import State
from orchestrator.market.start_times import DEFAULT_STARTUP_S
from orchestrator.model import FASTEST
from providers.catalog import load
from providers.money import NANO_USD

SHARED = Path(os.environ.get("TRADEWIND_SHARED") or Path(__file__).parents[2] / "shared")
SEEDS, JOBS, JOBS_QUICK = (1, 2, 3), 60, 8
FASTEST_SHARE = 6  # one job of `fastest` for this many of `cheapest`
AFTER_MS = 120 * DAY_MS  # capacity and prices continue for this long after the last start
OURS, STILL, UNKNOWN, BOUND = "ours", "ours without moves", "ours, speeds unknown", "instant-cheapest bound"
QUICKEST, OURS_FASTEST = "fastest on-demand", "ours, fastest"


@dataclass(frozen=True, slots=True)
class Scene:
    """One market with one capacity and its jobs; `urgent` jobs should finish as soon as possible."""

    market: str
    seed: int
    knowledge: Knowledge
    capacity: tuple[Pool, ...]
    jobs: tuple[ReplayJob, ...]
    urgent: tuple[ReplayJob, ...]
    until_ms: int


@dataclass(frozen=True, slots=True)
class Done:
    """The result of one policy for one job. nano-USD; `hours` from its start to its end. `covered` says for each
    decision whether its 90 % intervals of cost and of time held."""

    market: str
    seed: int
    policy: str
    job: ReplayJob
    cost: int
    hours: float
    missed: bool = False
    paused: bool = False
    moves: int = 0
    aborted: int = 0
    losses: int = 0
    covered: tuple[tuple[bool, bool], ...] = ()
    kept: tuple[Kept, ...] = field(default=())


def scenes(folder: Path, markets: Iterable[str], seeds: Sequence[int], count: int) -> Iterator[Scene]:
    throughputs, tariff = paper_data.read(folder).steps_per_s, load().egress()
    for name in markets:
        history = HISTORIES[name]
        record = history.read(folder)
        knowledge, until_ms = Knowledge(record, tariff, DEFAULT_STARTUP_S), record.end_ms + AFTER_MS
        for seed in seeds:
            work = jobs(record, history, throughputs, count, seed)
            urgent = jobs(record, history, throughputs, -(-count // FASTEST_SHARE), 100 + seed, objective=FASTEST)
            yield Scene(name, seed, knowledge, synthetic(record, seed, until_ms), work, urgent, until_ms)


def policies(knowledge: Knowledge) -> Mapping[str, Callable[[], Policy]]:
    return {
        **{name: partial(Simple, knowledge, rule) for name, rule in RULES.items()},
        STILL: partial(Live, knowledge, limits=NO_MOVES),
        UNKNOWN: partial(Live, knowledge, known=False),
        OURS: partial(Live, knowledge),
        QUICKEST: partial(Simple, knowledge, FASTEST_ON_DEMAND),
        OURS_FASTEST: partial(Live, knowledge),
    }


def play(scene: Scene, only: Sequence[str], trace: str) -> Iterator[Done]:
    """Every policy on one scene."""
    for job in scene.jobs:
        cost, took_ms = instant_cheapest(scene.knowledge.record, scene.capacity, job)
        yield Done(scene.market, scene.seed, BOUND, job, cost, took_ms / 3.6e6)
    for name, make in policies(scene.knowledge).items():
        if only and name not in only:
            continue
        began = time.process_time()
        work = scene.urgent if name in (QUICKEST, OURS_FASTEST) else scene.jobs
        simulator = Simulator(scene.knowledge, scene.capacity, make(), work, scene.until_ms)
        if trace:
            simulator.log = _tracer(name, trace)
        states = simulator.play()
        promises = kept(simulator) if name == OURS else []
        for state in states:
            mine = tuple(each for each in promises if each.job_id == state.job.id)
            yield _done(scene, name, state, len(simulator.moves[state.job.id]), mine)
        took = time.process_time() - began
        print(f"{scene.market}, seed {scene.seed}, {name}: {took:.1f} s", file=sys.stderr, flush=True)


def _tracer(policy: str, job_id: str) -> Callable[[int, State, str], None]:
    def report(at_ms: int, state: State, what: str) -> None:
        if state.job.id == job_id:
            hours, share = (at_ms - state.job.start_ms) / 3.6e6, state.steps(at_ms) / state.job.steps
            paid = state.spent(at_ms) / NANO_USD
            print(f"{policy:20} {hours:7.2f} h {share:6.1%} ${paid:8.2f} {what}", file=sys.stderr)

    return report


def _done(scene: Scene, policy: str, state: State, moves: int, promises: tuple[Kept, ...]) -> Done:
    job = state.job
    ended_ms = state.finished_ms or state.paused_ms or scene.until_ms
    cost, seen = state.spent(ended_ms), state.expected if state.finished_ms is not None else []
    late = state.finished_ms is None or (job.deadline_ms is not None and state.finished_ms > job.deadline_ms)
    return Done(
        scene.market,
        scene.seed,
        policy,
        job,
        cost,
        (ended_ms - job.start_ms) / 3.6e6,
        missed=late and state.paused_ms is None,
        paused=state.paused_ms is not None,
        moves=moves,
        aborted=state.aborted,
        losses=state.losses,
        covered=tuple(
            (
                each.cost[0] <= cost - each.paid <= each.cost[1],
                each.seconds[0] <= (ended_ms - each.at_ms) / 1000 <= each.seconds[1],
            )
            for each in seen
        ),
        kept=promises,
    )


def _free(job: ReplayJob) -> bool:
    return job.job.spec.budget_nano_usd is None


def _alone(job: ReplayJob) -> bool:
    return _free(job) and job.deadline_ms is None


def _due(job: ReplayJob) -> bool:
    return _free(job) and job.deadline_ms is not None


COUNTS = ("missed", "paused", "moves", "aborted", "losses")
GROUPS = {"cheapest alone": _alone, "cheapest + deadline": _due, "both": _free}


def table(market: str, done: Sequence[Done]) -> Table:
    columns = (*(f"{group}: $ | x bound" for group in GROUPS), "hours", *COUNTS)
    shown = Table("policy", *columns, title=market)
    for policy in dict.fromkeys(each.policy for each in done):
        of = [each for each in done if each.policy == policy]
        urgent = policy in (QUICKEST, OURS_FASTEST)
        totals = [(total(of, policy, each), total(done, BOUND, each)) for each in GROUPS.values()]
        cells = [f"{paid:,.0f}" if urgent else f"{paid:,.0f} | {paid / least:.3f}" for paid, least in totals]
        counts = [sum(getattr(each, name) for each in of) for name in COUNTS]
        hours = sum(each.hours for each in of if _free(each.job))
        shown.add_row(policy, *cells, f"{hours:,.0f}", *map(str, counts))
    return shown


def total(done: Iterable[Done], policy: str, group: Callable[[ReplayJob], bool] = _free) -> float:
    """US$ that a policy paid for the jobs of a group."""
    return sum(each.cost for each in done if each.policy == policy and group(each.job)) / NANO_USD


def claims_of(done: Sequence[Done]) -> Iterator[Claim]:
    for market in dict.fromkeys(each.market for each in done):
        yield from _of_market(market, [each for each in done if each.market == market])
    ours = [each for each in done if each.policy == OURS]
    yield Claim("with a deadline, over the bound", total(done, OURS, _due) / total(done, BOUND, _due), "x", 1.2)
    yield Claim("speeds unknown, over known", total(done, UNKNOWN) / total(done, OURS), "x", 1.08)
    limits = [each for each in ours if each.job.job.spec.budget_nano_usd is not None]
    passed = sum(each.cost > (each.job.job.spec.budget_nano_usd or 0) for each in limits)
    yield Claim("budgets passed", passed, "jobs", 0)
    for policy in (OURS, *RULES):
        paused = sum(each.paused for each in done if each.policy == policy)
        yield Claim(f"of {len(limits)} jobs with a budget, paused by {policy}", paused, "jobs")
    moves = [move for each in ours for move in each.kept if move.promised > 0]
    promised, came = (sum(each) / NANO_USD for each in ([m.promised for m in moves], [m.came for m in moves]))
    yield Claim("voluntary moves that promised to save", len(moves), "moves")
    yield Claim("promised by moves", promised, "$")
    yield Claim("came of moves", came, "$")
    if moves:
        ratio = promised / came if came > 0 else float("inf")
        yield Claim("promised over what came", ratio, "x", 1.4)
        yield Claim("promised over what came: not too little", ratio, "x", 0.7, least=True)
    foretold = [each.covered for each in ours if each.covered]
    yield from _covered([held for each in foretold for held in each], "decisions")
    yield from _covered([each[0] for each in foretold], "jobs at their first decision")
    urgent = [sum(each.hours for each in done if each.policy == name) for name in (OURS_FASTEST, QUICKEST)]
    yield Claim("fastest: hours over the fastest on-demand machine's", urgent[0] / urgent[1], "x")
    yield Claim("fastest: cost over that machine's", total(done, OURS_FASTEST) / total(done, QUICKEST), "x")


def _covered(held: Sequence[tuple[bool, bool]], of: str) -> Iterator[Claim]:
    for index, what in enumerate(("costs", "finish times")):
        share = 100 * sum(each[index] for each in held) / max(len(held), 1)
        yield Claim(f"{what} within the 90 % interval, of {len(held)} {of}", share, "%", 85.0, least=True)
        yield Claim(f"{what} within the 90 % interval, of {of}: not too wide", share, "%", 95.0)


def _of_market(market: str, done: Sequence[Done]) -> Iterator[Claim]:
    in_time = [
        name for name in RULES if not any(each.missed for each in done if each.policy == name and _due(each.job))
    ]
    for what, group in (("with a deadline", _due), ("with a deadline or none", _free)):
        best = min(in_time, key=lambda name: total(done, name, group))
        beside = total(done, OURS, group) / total(done, best, group)
        yield Claim(f"{market}: {what}, over the best rule ({best})", beside, "x", 0.95)
    settled = total(done, "static spot", _alone)
    yield Claim(f"{market}: cheapest alone, over static spot", total(done, OURS, _alone) / settled, "x", 1.0)
    missed = [each for each in done if each.policy == OURS and each.missed]
    yield Claim(f"{market}: missed", sum(_free(each.job) for each in missed), "jobs", 0)
    tight = sum(not _free(each.job) for each in missed)
    yield Claim(f"{market}: missed with a budget that pays for no on-demand machine", tight, "jobs")
    yield Claim(f"{market}: gained by moving", 100 * (1 - total(done, OURS) / total(done, STILL)), "%")


def per_job(done: Sequence[Done]) -> Table:
    """The payments of each policy for each job: US$, hours, moves and losses."""
    names = list(dict.fromkeys(each.policy for each in done if each.policy not in (QUICKEST, OURS_FASTEST)))
    shown = Table("job", "GPUs", "work h", "GB", "deadline", "budget", *names)
    by_job: dict[tuple[str, int, str], dict[str, Done]] = {}
    for each in done:
        if each.policy in names:
            by_job.setdefault((each.market, each.seed, each.job.id), {})[each.policy] = each
    for (market, seed, job_id), paid in by_job.items():
        job = next(iter(paid.values())).job
        budget, deadline_ms = job.job.spec.budget_nano_usd, job.deadline_ms
        slack = "" if deadline_ms is None else f"{(deadline_ms - job.start_ms) / 1000 / job.work_s:.2f}x"
        money = "" if budget is None else f"{budget / NANO_USD:.2f}"
        cells = [
            f"{each.cost / NANO_USD:.2f} {each.hours:.0f}h {each.moves}m {each.losses}l{' paused' * each.paused}"
            for each in (paid[name] for name in names)
        ]
        size = f"{job.checkpoint_bytes / 1e9:.0f}"
        gpus = str(next(iter(job.rates))[1])
        shown.add_row(f"{market} {seed} {job_id}", gpus, f"{job.work_s / 3600:.0f}", size, slack, money, *cells)
    return shown


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a sample, within 50 s")
    parser.add_argument("--json", action="store_true", help="only the claims, as JSON")
    parser.add_argument("--market", action="append", choices=tuple(HISTORIES), help="only this one (repeatable)")
    parser.add_argument("--seed", action="append", type=int, help="only this capacity seed (repeatable)")
    parser.add_argument("--jobs", type=int, help="how many jobs each market and seed has")
    parser.add_argument("--policy", action="append", help="only this policy (repeatable), without claims")
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
        console = Console(width=220 if options.per_job else 160)
        for market in dict.fromkeys(each.market for each in done):
            console.print(table(market, [each for each in done if each.market == market]))
        if options.per_job:
            console.print(per_job(done))
    claims = [] if options.policy else list(claims_of(done))
    return show("Recorded prices", claims, as_json=options.json, notes=[f"{count} jobs, seeds {seeds}"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
