"""A fleet of jobs on a cloud that preempts machines, changes prices and refuses launches. Offline, in virtual time.

    python benchmarks/fleet.py [--store sqlite|postgres|both] [--quick] [--json]

Reports wall seconds and events per second of the control plane on each store. Targets: every job ends in a terminal
state, and the ledger equals the cloud's bill to the nano-dollar.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from benchmarks._claims import Claim, show
from benchmarks.crash_fuzz import STORES, empty_database
from orchestrator.model import CHEAPEST, FASTEST, TERMINAL, JobSpec, Objective
from providers.fake import Behaviour, Fault, Faults, default_catalog
from providers.money import usd
from tests.rig import ScratchDatabase, SimulatedInstallation, Timings, findings, train_spec

JOBS, QUICK_JOBS = 200, 20
ARRIVE_S = 600.0  # within this time
STRIDE_S = 2.0
PATIENCE_S = 4 * 3600.0
JUMP_EVERY_S = 15.0
BEHAVIOUR = Behaviour(
    boot_s=20.0, listing_lag_s=10.0, stop_s=5.0, drift_s=60.0, preemptions_per_hour=4.0, notice_s=30.0
)
FAULTS = {
    Fault.CAPACITY: 0.10,
    Fault.THROTTLED: 0.02,
    Fault.NO_ANSWER: 0.03,
    Fault.LOST_REPLY: 0.03,
    Fault.LATE: 0.02,
}


@dataclass(frozen=True)
class Voyage:
    """The result of the fleet on one store."""

    states: dict[str, int]
    wrong: list[str]
    machines: int
    preempted: int
    migrations: int
    events: int
    ticks: int
    virtual_s: float
    wall_s: float


def sail(jobs: int, folder: Path, database: ScratchDatabase, seed: int = 4) -> Voyage:
    """Submit `jobs` and tick until all have ended, or until a limit."""
    rng = random.Random(seed)
    catalog = default_catalog()
    home = SimulatedInstallation(
        folder,
        database,
        catalog=catalog,
        seed=seed,
        behaviour=BEHAVIOUR,
        timings=Timings(step_s=2.0, prepare_s=5.0, restore_s=2.0, checkpoint_every_s=30.0),
        faults=Faults(seed, FAULTS),
        overrides={"limits.max_instances": 2 * jobs, "limits.max_usd_per_hour": 1e6, "policy.min_dwell_s": 120.0},
    )
    arrivals = sorted(rng.uniform(0, ARRIVE_S) for _ in range(jobs))
    jump_s = JUMP_EVERY_S
    submitted = ticks = 0
    started = time.perf_counter()
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task(database.url.partition(":")[0], total=jobs)
        while submitted < jobs or not home.settled:
            now_s = home.clock.monotonic_s()
            if now_s > PATIENCE_S:
                break
            while submitted < jobs and arrivals[submitted] <= now_s:
                home.submit_job(_spec(submitted, rng))
                submitted += 1
            if now_s >= jump_s:
                jump_s = now_s + JUMP_EVERY_S
                offer, price = rng.choice(catalog)
                home.cloud.set_price(offer.id, int(price * rng.uniform(0.3, 3.0)))
            home.tick(STRIDE_S)
            ticks += 1
            if ticks % 20 == 0:
                ended = home.read(lambda tx: sum(job.state in TERMINAL for job in tx.jobs()))
                progress.update(bar, completed=ended)
    wall_s = time.perf_counter() - started
    with home.store.read() as tx:
        states: Counter[str] = Counter(job.state for job in tx.jobs())
        return Voyage(
            dict(states),
            findings(home),
            len(home.cloud.bills()),
            sum(run.end == "preempted" for run in tx.runs()),
            len(tx.migrations()),
            len(tx.events()),
            ticks,
            home.clock.monotonic_s(),
            wall_s,
        )


def _spec(number: int, rng: random.Random) -> JobSpec:
    return JobSpec(
        f"job-{number}",
        train_spec(rng.randint(50, 300)),
        objective=rng.choice((CHEAPEST, CHEAPEST, FASTEST, Objective(0.5, 0.5))),
        deadline_s=rng.choice((None, None, 3600.0)),
        budget_nano_usd=rng.choice((None, usd("50"))),
    )


def claims_of(store: str, voyage: Voyage) -> list[Claim]:
    """The claims, with and without targets."""
    books = sum(line.startswith("money") for line in voyage.wrong)
    unended = sum(count for state, count in voyage.states.items() if state not in TERMINAL)
    return [
        Claim(f"{store}: jobs", sum(voyage.states.values()), "jobs"),
        Claim(f"{store}: jobs without a terminal state", unended, "jobs", 0),
        Claim(f"{store}: runs whose ledger differs from their bill", books, "runs", 0),
        Claim(f"{store}: anything leaked, doubled or lost", len(voyage.wrong), "findings", 0),
        Claim(f"{store}: machines", voyage.machines, "machines"),
        Claim(f"{store}: machines preempted", voyage.preempted, "machines"),
        Claim(f"{store}: migrations", voyage.migrations, "migrations"),
        Claim(f"{store}: wall time", voyage.wall_s, "s"),
        Claim(f"{store}: events", voyage.events / voyage.wall_s, "events/s"),
        Claim(f"{store}: a tick", 1000 * voyage.wall_s / voyage.ticks, "ms"),
        Claim(f"{store}: faster than real time", voyage.virtual_s / voyage.wall_s, "x"),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_JOBS} jobs, under 50 seconds")
    parser.add_argument("--json", action="store_true", help="print only the claims, as JSON")
    parser.add_argument("--store", choices=(*STORES, "both"), default="both")
    options = parser.parse_args()
    jobs = QUICK_JOBS if options.quick else JOBS
    claims: list[Claim] = []
    notes = []
    for store in STORES if options.store == "both" else (options.store,):
        with tempfile.TemporaryDirectory(prefix="tw-fleet-") as name, empty_database(store, Path(name)) as database:
            voyage = sail(jobs, Path(name), database)
        claims += claims_of(store, voyage)
        ended = ", ".join(f"{count} {state}" for state, count in sorted(voyage.states.items()))
        notes.append(f"{store}: {ended}; {voyage.events} events in {voyage.virtual_s / 60:.0f} virtual minutes.")
        for line in voyage.wrong[:10]:
            print(f"FOUND {line}", file=sys.stderr)
    return show("A fleet through the fake cloud", claims, as_json=options.json, notes=notes)


if __name__ == "__main__":
    sys.exit(main())
