"""Kill the control plane thousands of times and compare what is left with the cloud's own books. Offline.

    python benchmarks/crash_fuzz.py [--store sqlite|postgres|both] [--quick] [--json]
    python benchmarks/crash_fuzz.py --seed 1234 --store sqlite --replay

One seed is one history in virtual time (orchestrator.sim.history): jobs, users, prices, a cloud whose calls fail in
every way, and a control plane that dies at persisted edges and between them. With `both` each history is played on
SQLite and on Postgres, which must tell the same story to the last nano-dollar.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from multiprocessing import get_context
from multiprocessing.queues import Queue
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks._claims import Claim, show
from orchestrator.sim import EDGES, Outcome, PostgresSlate, Slate, SqliteSlate, play

STORES = ("sqlite", "postgres")
DEATHS, EACH, MIGRATIONS = 3000, 50, 5000  # per store: 10,000 migrations in all
QUICK_SEEDS = 10
MOST_SEEDS = 3000  # after so many, an edge that is still rare is told as missed


@dataclass
class Tally:
    """What the histories played so far on one store came to."""

    histories: int = 0
    deaths: Counter[str] = field(default_factory=Counter)
    migrations: int = 0
    completed: int = 0
    machines: int = 0
    jobs: Counter[str] = field(default_factory=Counter)
    virtual_s: float = 0.0

    def add(self, outcome: Outcome) -> None:
        self.histories += 1
        self.deaths.update(outcome.deaths)
        self.migrations += outcome.migrations
        self.completed += outcome.completed
        self.machines += outcome.machines
        self.jobs.update(outcome.jobs)
        self.virtual_s += outcome.virtual_s

    @property
    def rare(self) -> list[int]:
        """The edges at which too few died, by their number."""
        return [number for number, edge in enumerate(EDGES) if self.deaths[edge] < EACH]


@contextmanager
def slate_of(store: str, folder: Path) -> Iterator[Slate]:
    """An empty store; for Postgres on a server of its own."""
    with ExitStack() as stack:
        if store == "sqlite":
            slate: Slate = SqliteSlate(folder)
        else:
            from tests.postgres import server

            slate = PostgresSlate(stack.enter_context(server()).create("fuzz"))
        stack.callback(slate.close)
        yield slate


_slates: dict[str, Slate] = {}
_folder = Path()


def _prepare(places: Queue[tuple[str, dict[str, str]]]) -> None:
    """In a worker: open its own folder and databases."""
    global _folder  # noqa: PLW0603 - a worker has no other memory between two histories
    os.nice(5)
    folder, urls = places.get()
    _folder = Path(folder)
    for store, url in urls.items():
        _slates[store] = PostgresSlate(url) if store == "postgres" else SqliteSlate(_folder)


def _play(seed: int) -> dict[str, Outcome | str]:
    """The history on each store, or why it broke off."""
    return {store: _outcome(seed, slate) for store, slate in _slates.items()}


def _outcome(seed: int, slate: Slate) -> Outcome | str:
    try:
        return play(seed, _folder, slate)
    except Exception as error:
        return f"broke off: {error!r}"


def campaign(stores: Sequence[str], processes: int, *, quick: bool) -> tuple[dict[str, Tally], list[str], int]:
    """Play until there were enough deaths and migrations. Returns the tallies, the findings with their replay commands,
    and how many histories went another way on the other store."""
    tallies = {store: Tally() for store in stores}
    found: list[str] = []
    different = 0
    with ExitStack() as stack:
        root = Path(tempfile.mkdtemp(prefix="tw-fuzz-"))
        stack.callback(shutil.rmtree, root, ignore_errors=True)
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
        bar = progress.add_task("deaths", total=len(stores) * (DEATHS if not quick else QUICK_SEEDS * 14))
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
                    found += [f"{line}\n    {replay_command(seed, store)}" for line in lines]
                told = [each.digest if isinstance(each, Outcome) else each for each in outcomes.values()]
                different += len(set(told)) > 1
                following = next(seeds, None)
                if following is not None:
                    running[pool.submit(_play, following)] = following
            deaths = sum(tally.deaths.total() for tally in tallies.values())
            progress.update(bar, completed=deaths)
            played += len(done)
            if not progress.console.is_terminal and played % 50 < len(done):
                migrations = sum(tally.migrations for tally in tallies.values())
                rare = {store: len(tally.rare) for store, tally in tallies.items()}
                so_far = f"{played} histories, {deaths} deaths, {migrations} migrations, rare edges {rare}"
                print(f"{so_far}, {len(found)} findings, {different} differ", file=sys.stderr, flush=True)
    return tallies, found, different


def replay_command(seed: int, store: str) -> str:
    return f"python -m benchmarks.crash_fuzz --seed {seed} --store {store} --replay"


def _seeds(tallies: dict[str, Tally], *, quick: bool) -> Iterator[int]:
    """The next history to play, as long as one is needed: in order first, then those that lean to rare edges."""
    if quick:
        yield from range(QUICK_SEEDS)
        return
    turns = [count(edge, len(EDGES)) for edge in range(len(EDGES))]  # seeds by the edge that they lean to
    for number in range(MOST_SEEDS):
        enough = all(t.deaths.total() >= DEATHS and t.migrations >= MIGRATIONS for t in tallies.values())
        rare = sorted({edge for tally in tallies.values() for edge in tally.rare})
        if enough and not rare:
            return
        yield next(turns[rare[number % len(rare)] if rare else number % len(EDGES)])


def replay(seed: int, store: str) -> int:
    """Tell one history, event by event. Returns the exit code."""
    with tempfile.TemporaryDirectory(prefix="tw-fuzz-") as name, slate_of(store, Path(name)) as slate:
        outcome = play(seed, Path(name), slate, story=True)
    for line in outcome.story:
        print(line)
    deaths = ", ".join(f"{edge} x{times}" for edge, times in sorted(outcome.deaths.items()))
    print(f"\nseed {seed} on {store}: {outcome.migrations} migrations, {outcome.machines} machines")
    print(f"deaths: {deaths or 'none'}")
    for finding in outcome.findings:
        print(f"FOUND {finding}")
    if not outcome.findings:
        print("nothing leaked, doubled or lost; the ledger equals the bill")
    return 1 if outcome.findings else 0


def claims_of(tallies: dict[str, Tally], found: Sequence[str], different: int, *, quick: bool) -> list[Claim]:
    """What the issue asks for; a smaller sample is only held to what must never happen."""
    claims = []
    for store, tally in tallies.items():
        rarest = min(tally.deaths[edge] for edge in EDGES)
        short = None if quick else 0
        total = tally.deaths.total()
        claims += [
            Claim(f"{store}: histories", tally.histories, "histories"),
            Claim(f"{store}: deaths of the control plane", total, "deaths"),
            Claim(f"{store}: deaths short of {DEATHS:,}", max(0, DEATHS - total), "deaths", short),
            Claim(f"{store}: deaths at the rarest of {len(EDGES)} edges", rarest, "deaths"),
            Claim(f"{store}: edges with fewer than {EACH} deaths", len(tally.rare), "edges", short),
            Claim(f"{store}: migrations", tally.migrations, "migrations"),
            Claim(
                f"{store}: migrations short of {MIGRATIONS:,}",
                max(0, MIGRATIONS - tally.migrations),
                "migrations",
                short,
            ),
            Claim(f"{store}: machines rented", tally.machines, "machines"),
        ]
    for kind, what in (
        ("leaked", "machines leaked"),
        ("doubled", "machines doubled"),
        ("lost:", "jobs lost, or in no stated terminal state"),
        ("lost work", "losses of more work than a checkpoint interval, or a step where there was notice"),
        ("money", "runs whose ledger is not their bill, to the nano-dollar"),
        ("fence", "fences broken"),
        ("", "findings of any kind"),
    ):
        claims.append(Claim(what, sum(line.startswith(kind) for line in found), "findings", 0))
    if len(tallies) > 1:
        claims.append(Claim("histories that the two stores tell differently", different, "histories", 0))
    return claims


def _edges(tallies: dict[str, Tally]) -> Table:
    table = Table(
        "edge", *(f"{moment}, {store}" for store in tallies for moment in ("before", "after")), title="Deaths"
    )
    for edge in EDGES[::2]:
        kind = edge.removeprefix("before ")
        counts = [str(tally.deaths[f"{moment} {kind}"]) for tally in tallies.values() for moment in ("before", "after")]
        table.add_row(kind, *counts)
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_SEEDS} histories per store, under 50 seconds")
    parser.add_argument("--json", action="store_true", help="only a list of claims")
    parser.add_argument("--store", choices=(*STORES, "both"), default="both")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="the history to replay")
    parser.add_argument("--replay", action="store_true", help="tell one history, event by event")
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
        Console().print(_edges(tallies))
    for line in found[:20]:
        print(f"FOUND {line}", file=sys.stderr)
    days = sum(tally.virtual_s for tally in tallies.values()) / 86_400
    jobs = sum((tally.jobs for tally in tallies.values()), Counter[str]())
    notes = [f"Jobs: {', '.join(f'{n} {state}' for state, n in sorted(jobs.items()))}. Virtual time: {days:.1f} days."]
    return show("Crash fuzz", claims, as_json=options.json, notes=notes)


if __name__ == "__main__":
    sys.exit(main())
