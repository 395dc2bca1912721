"""Crash fuzzing: kill and stop control planes and trainers thousands of times, and compare the result with the cloud's
own books.

    python benchmarks/crash_fuzz.py [--store sqlite|postgres|both] [--quick] [--json]
    python benchmarks/crash_fuzz.py --seed 1234 --store sqlite --replay

One seed is one history in virtual time (tests.rig.history): jobs, users, prices, a cloud whose calls fail in every way,
and a control plane that dies at or between stored steps, or is paused there and resumes after another one has acted.
Trainers are paused between two file operations of a save in the real checkpoint store. With `both`, each history is
played on SQLite and on Postgres, with identical results to the nano-dollar. Offline.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from math import lcm
from multiprocessing import get_context
from multiprocessing.queues import Queue
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks._claims import Claim, show
from tests.rig import (
    EDGES,
    HARMS,
    PAUSE_EDGES,
    SAVE_EDGES,
    Outcome,
    PostgresScratchDatabase,
    ScratchDatabase,
    SqliteScratchDatabase,
    memory_folder,
    play,
)

STORES = ("sqlite", "postgres")
DEATHS, PAUSES, EACH, MIGRATIONS = 3000, 3000, 30, 5000  # per store
KINDS = {"deaths": EDGES, "pauses": PAUSE_EDGES, "trainers' pauses": SAVE_EDGES}
QUICK_SEEDS = 1
FINDINGS_SHOWN = 5  # of one history
MOST_SEEDS = 3000  # after this many histories, an edge that is still rare is reported as missed


@dataclass
class Tally:
    """The totals of the histories played so far on one store."""

    histories: int = 0
    struck: dict[str, Counter[str]] = field(default_factory=lambda: {kind: Counter() for kind in KINDS})
    harms: Counter[str] = field(default_factory=Counter)
    migrations: int = 0
    completed: int = 0
    machines: int = 0
    jobs: Counter[str] = field(default_factory=Counter)
    virtual_s: float = 0.0

    def add(self, outcome: Outcome) -> None:
        self.histories += 1
        for kind, counted in zip(KINDS, (outcome.deaths, outcome.pauses, outcome.naps), strict=True):
            self.struck[kind].update(counted)
        self.harms.update(outcome.harms)
        self.migrations += outcome.migrations
        self.completed += outcome.completed
        self.machines += outcome.machines
        self.jobs.update(outcome.jobs)
        self.virtual_s += outcome.virtual_s

    @property
    def deaths(self) -> int:
        return self.struck["deaths"].total()

    @property
    def pauses(self) -> int:
        """The number of pauses of control planes and of trainers."""
        return self.struck["pauses"].total() + self.struck["trainers' pauses"].total()

    @property
    def enough(self) -> bool:
        return self.deaths >= DEATHS and self.pauses >= PAUSES and self.migrations >= MIGRATIONS

    def rare(self, kind: str) -> list[int]:
        """The edges at which there were too few deaths or pauses, by number."""
        return [number for number, edge in enumerate(KINDS[kind]) if self.struck[kind][edge] < EACH]


@contextmanager
def empty_database(store: str, folder: Path) -> Iterator[ScratchDatabase]:
    """An empty store; for Postgres on a separate server."""
    with ExitStack() as stack:
        if store == "sqlite":
            database: ScratchDatabase = SqliteScratchDatabase(folder)
        else:
            from tests.postgres import server

            database = PostgresScratchDatabase(stack.enter_context(server()).create("fuzz"))
        stack.callback(database.close)
        yield database


_databases: dict[str, ScratchDatabase] = {}
_folder = Path()


def _prepare(places: Queue[tuple[str, dict[str, str]]]) -> None:
    """Open a worker's own folder and databases."""
    global _folder  # noqa: PLW0603 - a worker keeps its databases from one history to the next
    os.nice(5)
    folder, urls = places.get()
    _folder = Path(folder)
    for store, url in urls.items():
        _databases[store] = PostgresScratchDatabase(url) if store == "postgres" else SqliteScratchDatabase(_folder)


def _play(seed: int) -> dict[str, Outcome | str]:
    """The history on each store, or the error that ended it."""
    return {store: _outcome(seed, database) for store, database in _databases.items()}


def _outcome(seed: int, database: ScratchDatabase) -> Outcome | str:
    try:
        return play(seed, _folder, database)
    except Exception as error:
        return f"ended with an error: {error!r}"


def campaign(stores: Sequence[str], processes: int, *, quick: bool) -> tuple[dict[str, Tally], list[str], int]:
    """Play until there were enough deaths and migrations, and print findings on stderr as they come. Returns the
    totals, the findings, and how many histories differed between the stores."""
    tallies = {store: Tally() for store in stores}
    found: list[str] = []
    different = 0
    with ExitStack() as stack:
        root = stack.enter_context(memory_folder())
        context = get_context("spawn")
        places: Queue[tuple[str, dict[str, str]]] = context.Queue()
        server = None
        if "postgres" in stores:
            from tests.postgres import server as start

            server = stack.enter_context(start())
        for number in range(processes):
            folder = root / str(number)
            folder.mkdir()
            urls = {s: server.create(f"fuzz_{number}") if s == "postgres" and server else "" for s in stores}
            places.put((str(folder), urls))
        pool = stack.enter_context(ProcessPoolExecutor(processes, context, _prepare, (places,)))
        progress = stack.enter_context(Progress(console=Console(stderr=True), transient=True))
        bar = progress.add_task("deaths", total=len(stores) * (DEATHS if not quick else QUICK_SEEDS * 18))
        seeds = _seeds(tallies, quick=quick)
        running = {pool.submit(_play, seed): seed for _, seed in zip(range(2 * processes), seeds, strict=False)}
        played = 0
        while running:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                seed = running.pop(future)
                outcomes = future.result()
                for store, outcome in outcomes.items():
                    if isinstance(outcome, Outcome):
                        tallies[store].add(outcome)
                    lines = outcome.findings if isinstance(outcome, Outcome) else [outcome]
                    found += lines
                    if lines:  # at once: a campaign takes an hour
                        more = f"\n  and {len(lines) - FINDINGS_SHOWN} more" if len(lines) > FINDINGS_SHOWN else ""
                        shown = "".join(f"\n  {line}" for line in lines[:FINDINGS_SHOWN])
                        print(f"FOUND {replay_command(seed, store)}{shown}{more}", file=sys.stderr, flush=True)
                reported = [each.digest if isinstance(each, Outcome) else each for each in outcomes.values()]
                if len(set(reported)) > 1:
                    different += 1
                    print(f"DIFFERS between the stores: seed {seed}", file=sys.stderr, flush=True)
                following = next(seeds, None)
                if following is not None:
                    running[pool.submit(_play, following)] = following
            deaths, pauses = (sum(getattr(each, what) for each in tallies.values()) for what in ("deaths", "pauses"))
            progress.update(bar, completed=deaths)
            played += len(done)
            if not progress.console.is_terminal and played % 50 < len(done):
                migrations = sum(tally.migrations for tally in tallies.values())
                rare = {store: [len(tally.rare(kind)) for kind in KINDS] for store, tally in tallies.items()}
                so_far = f"{played} histories, {deaths} deaths, {pauses} pauses, {migrations} migrations, rare {rare}"
                print(f"{so_far}, {len(found)} findings, {different} differ", file=sys.stderr, flush=True)
    return tallies, found, different


def replay_command(seed: int, store: str) -> str:
    return f"python -m benchmarks.crash_fuzz --seed {seed} --store {store} --replay"


def _seeds(tallies: dict[str, Tally], *, quick: bool) -> Iterator[int]:
    """Seeds of the histories to play, as long as one is needed: in order first, then those likely to reach rare
    edges."""
    if quick:
        yield from range(QUICK_SEEDS)
        return
    played: set[int] = set()
    for number in range(MOST_SEEDS):
        rare = {kind: sorted({edge for tally in tallies.values() for edge in tally.rare(kind)}) for kind in KINDS}
        if not any(rare.values()) and all(tally.enough for tally in tallies.values()):
            return
        seed = _leaning_to({kind: edges[number % len(edges)] for kind, edges in rare.items() if edges}, played)
        played.add(seed)
        yield seed


def _leaning_to(wanted: Mapping[str, int], played: set[int]) -> int:
    """The first unplayed seed that is likely to reach the most of these edges, the first edges first."""
    moduli = {kind: len(KINDS[kind]) for kind in wanted}
    seed, stride = 0, 1
    for kind, edge in wanted.items():
        reachable = range(seed, seed + stride * moduli[kind], stride)
        meets = next((each for each in reachable if each % moduli[kind] == edge), None)
        if meets is not None:  # otherwise the edges found so far exclude it
            seed, stride = meets, lcm(stride, moduli[kind])
    return next(each for each in count(seed, stride) if each not in played)


def replay(seed: int, store: str) -> int:
    """Print one history, event by event. Returns the exit code."""
    with memory_folder() as folder, empty_database(store, folder) as database:
        outcome = play(seed, folder, database, story=True)
    for line in outcome.story:
        print(line)
    print(f"\nseed {seed} on {store}: {outcome.migrations} migrations, {outcome.machines} machines")
    for kind, struck in zip(KINDS, (outcome.deaths, outcome.pauses, outcome.naps), strict=True):
        print(f"{kind}: {', '.join(f'{edge} x{times}' for edge, times in sorted(struck.items())) or 'none'}")
    for finding in outcome.findings:
        print(f"FOUND {finding}")
    if not outcome.findings:
        print("nothing leaked, doubled or lost; the ledger equals the bill")
    return 1 if outcome.findings else 0


def claims_of(tallies: dict[str, Tally], found: Sequence[str], different: int, *, quick: bool) -> list[Claim]:
    """The claims. A smaller sample has targets only for events that must never happen."""
    claims = []
    for store, tally in tallies.items():
        short = None if quick else 0
        claims += [
            Claim(f"{store}: histories", tally.histories, "histories"),
            Claim(f"{store}: deaths of the control plane", tally.deaths, "deaths"),
            Claim(f"{store}: pauses of control planes and trainers", tally.pauses, "pauses"),
            Claim(f"{store}: deaths short of {DEATHS:,}", max(0, DEATHS - tally.deaths), "deaths", short),
            Claim(f"{store}: pauses short of {PAUSES:,}", max(0, PAUSES - tally.pauses), "pauses", short),
        ]
        for kind, edges in KINDS.items():
            rarest = min(tally.struck[kind][edge] for edge in edges)
            claims += [
                Claim(f"{store}: {kind}", tally.struck[kind].total(), kind),
                Claim(f"{store}: {kind} at the rarest of {len(edges)} edges", rarest, kind),
                Claim(f"{store}: edges with fewer than {EACH} {kind}", len(tally.rare(kind)), "edges", short),
            ]
        claims += [
            Claim(f"{store}: migrations", tally.migrations, "migrations"),
            Claim(
                f"{store}: migrations short of {MIGRATIONS:,}",
                max(0, MIGRATIONS - tally.migrations),
                "migrations",
                short,
            ),
            Claim(f"{store}: machines rented", tally.machines, "machines"),
            *(Claim(f"{store}: harm done by {kind}", tally.harms[kind], "times") for kind in HARMS),
        ]
    for kind, what in (
        ("leaked", "machines leaked"),
        ("doubled", "machines doubled"),
        ("lost:", "jobs lost, or without a terminal state"),
        ("lost work", "losses of more work than a checkpoint interval (with notice: than a step)"),
        ("money", "runs whose ledger differs from their bill, to the nano-dollar"),
        ("fence", "fences broken"),
        ("trespass", "transactions of control planes that had lost leadership"),
        ("blamed", "jobs failed for reasons other than their own code"),
        ("harmed", "jobs harmed by an event of another job"),
        ("", "findings of any kind"),
    ):
        claims.append(Claim(what, sum(line.startswith(kind) for line in found), "findings", 0))
    if len(tallies) > 1:
        claims.append(Claim("histories that differ between the two stores", different, "histories", 0))
    return claims


def _edges(tallies: dict[str, Tally], kind: str) -> Table:
    table = Table("edge", *tallies, title=f"{kind[0].upper()}{kind[1:]}")
    for edge in KINDS[kind]:
        table.add_row(edge, *(str(tally.struck[kind][edge]) for tally in tallies.values()))
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one history per store, under 50 seconds")
    parser.add_argument("--json", action="store_true", help="print only the claims, as JSON")
    parser.add_argument("--store", choices=(*STORES, "both"), default="both")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="the history to replay")
    parser.add_argument("--replay", action="store_true", help="print one history, event by event")
    options = parser.parse_args()
    stores = STORES if options.store == "both" else (options.store,)
    if options.replay:
        return max(replay(options.seed, store) for store in stores)
    started = time.perf_counter()
    tallies, found, different = campaign(stores, options.processes, quick=options.quick)
    wall_s = time.perf_counter() - started
    claims = claims_of(tallies, found, different, quick=options.quick)
    claims.append(Claim(f"wall time on {options.processes} processes", wall_s, "s", 50.0 if options.quick else None))
    if not options.json:
        for kind in KINDS:
            Console().print(_edges(tallies, kind))
    days = sum(tally.virtual_s for tally in tallies.values()) / 86_400
    jobs = sum((tally.jobs for tally in tallies.values()), Counter[str]())
    notes = [f"Jobs: {', '.join(f'{n} {state}' for state, n in sorted(jobs.items()))}. Virtual time: {days:.1f} days."]
    return show("Crash fuzz", claims, as_json=options.json, notes=notes)


if __name__ == "__main__":
    sys.exit(main())
