"""The leak campaign: kill and pause control planes that rent on AWS, GCP and Azure on loopback; nothing may be left
behind.

    python benchmarks/cloud_leaks.py [--cloud aws|gcp|azure|all] [--quick] [--json]
    python benchmarks/cloud_leaks.py --seed 12 --cloud gcp --replay

One seed is one history in virtual time (tests.rig.history), as in benchmarks/crash_fuzz.py, but the control plane uses
the real provider, through the cloud's unmodified client library, on a server of tests/clouds. It also dies and is
paused between any two requests: before and after each request that rents, renews or ends a machine, and before and
after the transactions around it. Answers are lost before or after their effect, requests take effect late, lists lag
behind, calls are throttled, capacity runs out, machines end slowly, break, and are preempted with and without notice.
The network is created before and removed afterwards, by processes that die at these requests. Machines run nothing.
Offline.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks._claims import Claim, show
from tests.rig import Outcome, SqliteScratchDatabase, memory_folder, play
from tests.rig.clouds.world import CLOUDS, CloudWorld, cloud_world

DEATHS, PAUSES = 100, 100  # for each cloud
QUICK_CHAOS_S = 5.0
"""The quick sample: the first history of each cloud, with this share of its random events."""
MOST_SEEDS = 200
FINDINGS_SHOWN = 5


@dataclass
class Tally:
    """The totals of the histories on one cloud."""

    histories: int = 0
    deaths: Counter[str] = field(default_factory=Counter)
    pauses: Counter[str] = field(default_factory=Counter)
    machines: int = 0
    moves: int = 0
    jobs: Counter[str] = field(default_factory=Counter)
    virtual_s: float = 0.0
    cpu_s: float = 0.0

    def add(self, outcome: Outcome, cpu_s: float) -> None:
        self.histories += 1
        self.deaths.update(outcome.deaths)
        self.pauses.update(outcome.pauses)
        self.machines += outcome.machines
        self.moves += outcome.completed
        self.jobs.update(outcome.jobs)
        self.virtual_s += outcome.virtual_s
        self.cpu_s += cpu_s

    @property
    def enough(self) -> bool:
        return self.deaths.total() >= DEATHS and self.pauses.total() >= PAUSES


_worlds: dict[str, CloudWorld] = {}
_stack = ExitStack()
_folder = Path()
_databases: list[SqliteScratchDatabase] = []


def _played(cloud: str, seed: int, chaos_s: float | None) -> tuple[Outcome | str, float]:
    """The history, or the error that ended it, and its CPU seconds. A process keeps its servers."""
    global _folder  # noqa: PLW0603 - a worker keeps its folder from one history to the next
    if not _databases:
        _folder = _stack.enter_context(memory_folder())
        _databases.append(SqliteScratchDatabase(_folder))
    began_s = time.process_time()
    try:
        return play(seed, _folder, _databases[0], world=_world(cloud, chaos_s)), _since(began_s)
    except Exception as error:
        return f"ended with an error: {error!r}", _since(began_s)


def _world(cloud: str, chaos_s: float | None) -> CloudWorld:
    if cloud not in _worlds:
        certificates = _folder / "certificates"
        certificates.mkdir(exist_ok=True)
        _worlds[cloud] = _stack.enter_context(cloud_world(cloud, certificates))
    if chaos_s is not None:
        _worlds[cloud].chaos_s = chaos_s
    return _worlds[cloud]


def _since(began_s: float) -> float:
    return time.process_time() - began_s


def campaign(clouds: Sequence[str], processes: int, *, quick: bool) -> tuple[dict[str, Tally], list[str]]:
    """Play until there were enough deaths and pauses on each cloud, and print findings on stderr as they come. Returns
    the totals and the findings."""
    tallies = {cloud: Tally() for cloud in clouds}
    found: list[str] = []
    chaos_s = QUICK_CHAOS_S if quick else None
    with ProcessPoolExecutor(processes, get_context("spawn"), _yield_to_others) as pool:
        wanted = _wanted(tallies, quick=quick)
        running = {}
        for _, (cloud, seed) in zip(range(processes), wanted, strict=False):
            running[pool.submit(_played, cloud, seed, chaos_s)] = cloud, seed
        while running:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                cloud, seed = running.pop(future)
                outcome, cpu_s = future.result()
                lines: Sequence[str] = [outcome]  # type: ignore[list-item]
                if isinstance(outcome, Outcome):
                    tallies[cloud].add(outcome, cpu_s)
                    lines = outcome.findings
                found += lines
                if lines:
                    shown = "".join(f"\n  {line}" for line in lines[:FINDINGS_SHOWN])
                    print(f"FOUND {len(lines)}: {replay_command(seed, cloud)}{shown}", file=sys.stderr, flush=True)
                struck = ", ".join(f"{c} {t.deaths.total()} and {t.pauses.total()}" for c, t in tallies.items())
                print(f"{cloud} {seed} played; deaths and pauses: {struck}", file=sys.stderr, flush=True)
                if (following := next(wanted, None)) is not None:
                    running[pool.submit(_played, *following, chaos_s)] = following
    return tallies, found


def _yield_to_others() -> None:
    os.nice(5)


def _wanted(tallies: dict[str, Tally], *, quick: bool) -> Iterator[tuple[str, int]]:
    """(cloud, seed) of the next history, in turn for the clouds that need one."""
    for seed in range(1 if quick else MOST_SEEDS):
        for cloud, tally in tallies.items():
            if not tally.enough:
                yield cloud, seed


def replay_command(seed: int, cloud: str) -> str:
    return f"python -m benchmarks.cloud_leaks --seed {seed} --cloud {cloud} --replay"


def replay(seed: int, cloud: str) -> int:
    """Print one history, event by event. Returns the exit code."""
    with memory_folder() as folder:
        (folder / "certificates").mkdir()
        with cloud_world(cloud, folder / "certificates") as world:
            outcome = play(seed, folder, SqliteScratchDatabase(folder), story=True, world=world)
    for line in outcome.story:
        print(line)
    print(f"\nseed {seed} on {cloud}: {outcome.migrations} migrations, {outcome.machines} machines, {outcome.digest}")
    for kind, struck in (("deaths", outcome.deaths), ("pauses", outcome.pauses)):
        print(f"{kind}: {', '.join(f'{edge} x{times}' for edge, times in sorted(struck.items())) or 'none'}")
    for finding in outcome.findings:
        print(f"FOUND {finding}")
    return 1 if outcome.findings else 0


def claims_of(tallies: dict[str, Tally], found: Sequence[str], *, quick: bool) -> list[Claim]:
    """The claims. The quick sample has targets only for events that must never happen."""
    claims = []
    short = None if quick else 0
    for cloud, tally in tallies.items():
        deaths, pauses = tally.deaths.total(), tally.pauses.total()
        claims += [
            Claim(f"{cloud}: histories", tally.histories, "histories"),
            Claim(f"{cloud}: deaths of control planes and of the commands that make networks", deaths, "deaths"),
            Claim(f"{cloud}: pauses of control planes", pauses, "pauses"),
            Claim(f"{cloud}: deaths short of {DEATHS}", max(0, DEATHS - deaths), "deaths", short),
            Claim(f"{cloud}: pauses short of {PAUSES}", max(0, PAUSES - pauses), "pauses", short),
            Claim(f"{cloud}: machines rented", tally.machines, "machines"),
        ]
    for kind, what in (
        ("leaked", "machines, disks, interfaces and addresses leaked"),
        ("doubled", "machines doubled"),
        ("network", "parts of networks left"),
        ("money", "runs whose ledger differs from their bill, to the nano-dollar"),
        ("", "findings of any kind"),
    ):
        claims.append(Claim(what, sum(line.startswith(kind) for line in found), "findings", 0))
    return claims


def _edges(tallies: dict[str, Tally]) -> Table:
    table = Table("edge", *(f"{cloud}: {what}" for cloud in tallies for what in ("deaths", "pauses")))
    for edge in sorted({edge for tally in tallies.values() for edge in (*tally.deaths, *tally.pauses)}):
        counted = (str(each[edge]) for tally in tallies.values() for each in (tally.deaths, tally.pauses))
        table.add_row(edge, *counted)
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a short history on each cloud, under 50 seconds")
    parser.add_argument("--json", action="store_true", help="print only the claims, as JSON")
    parser.add_argument("--cloud", choices=(*CLOUDS, "all"), default="all")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="the history to replay")
    parser.add_argument("--replay", action="store_true", help="print one history, event by event")
    options = parser.parse_args()
    clouds = CLOUDS if options.cloud == "all" else (options.cloud,)
    if options.replay:
        return max(replay(options.seed, cloud) for cloud in clouds)
    started = time.perf_counter()
    tallies, found = campaign(clouds, options.processes, quick=options.quick)
    wall_s = time.perf_counter() - started
    claims = claims_of(tallies, found, quick=options.quick)
    cpu_s = sum(tally.cpu_s for tally in tallies.values())
    claims.append(Claim("CPU time of all histories", cpu_s, "s"))
    claims.append(Claim(f"wall time on {options.processes} processes", wall_s, "s", 50.0 if options.quick else None))
    if not options.json:
        Console().print(_edges(tallies))
    days = sum(tally.virtual_s for tally in tallies.values()) / 86_400
    jobs = sum((tally.jobs for tally in tallies.values()), Counter[str]())
    notes = [f"Jobs: {', '.join(f'{n} {state}' for state, n in sorted(jobs.items()))}. Virtual time: {days:.1f} days."]
    return show("Leaks on loopback clouds", claims, as_json=options.json, notes=notes)


if __name__ == "__main__":
    sys.exit(main())
