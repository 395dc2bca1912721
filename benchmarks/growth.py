"""Claim: a queue of jobs makes the store grow by less than 10 MB per 1,000 jobs a day, regardless of the size of a
decision.

    python -m benchmarks.growth            1,000 jobs, 200 of them waiting at any time; takes minutes
    python -m benchmarks.growth --quick    60 jobs that all wait at once

A simulation in virtual time: one control plane, a market of 40 offers, at most ten machines. Earlier versions kept what
every decision said about each waiting job: a placement among 200 jobs took 1 MB. Prices and polls grow with time, not
with the number of jobs, so they are reported separately. Sizes are file sizes, including free pages.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from benchmarks._claims import Claim, show
from orchestrator.model import JobSpec
from providers.fake import Behaviour
from providers.hardware import GIB
from providers.money import usd
from providers.offer import CapacityType, Offer
from tests.rig import SimulatedInstallation, SqliteScratchDatabase, Timings, train_spec

JOBS, QUICK_JOBS = 1_000, 60
WAITING = 200
OFFERS = 40
MACHINES = 10
STEPS = 20
TARGET_MB = 10.0
OF_TIME = (
    "price_point",
    "price_now",
    "price_day",
    "poll",
    "poll_state",
    "risk_point",
    "offer",
)
STRIDE_S = 5.0


def market() -> list[tuple[Offer, int]]:
    return [
        (
            Offer("fake", f"r{n % 8}", f"r{n % 8}-{n % 3}", f"v100.{n}", "V100", 1, 8, 64 * GIB, kind, simulated=True),
            usd(f"{1 + n / 10:.2f}") * (3 if kind is CapacityType.ON_DEMAND else 1),
        )
        for n in range(OFFERS // 2)
        for kind in CapacityType
    ]


def spec(number: int) -> JobSpec:
    return JobSpec(f"job-{number}", train_spec(STEPS, args={"seed": number}))


def grow(folder: Path, jobs: int) -> tuple[int, int, int]:
    """Bytes of the file before and after, and the growth due to prices and polls."""
    database = SqliteScratchDatabase(folder)
    home = SimulatedInstallation(
        folder,
        database,
        catalog=market(),
        behaviour=Behaviour(boot_s=2.0, listing_lag_s=3.0, stop_s=1.0, late_s=4.0),
        timings=Timings(step_s=1.0, prepare_s=1.0, restore_s=1.0, checkpoint_every_s=5.0),
        overrides={"limits.max_instances": MACHINES, "policy.min_dwell_s": 10.0},
    )
    home.tick(STRIDE_S)
    before, prices_before = sizes(folder)
    submitted = 0
    while True:
        open_jobs = home.read(lambda tx: len(tx.jobs(states=("queued", "starting", "running", "migrating"))))
        while submitted < jobs and open_jobs < WAITING:
            home.submit_job(spec(submitted))
            submitted, open_jobs = submitted + 1, open_jobs + 1
        if submitted == jobs and home.settled:
            break
        home.tick(STRIDE_S)
    after, prices_after = sizes(folder)
    database.close()
    return before, after, prices_after - prices_before


def sizes(folder: Path) -> tuple[int, int]:
    """Bytes of the file, and of the prices and polls in it."""
    with closing(sqlite3.connect(folder / "tradewind.db")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        pages, size = (connection.execute(f"PRAGMA {each}").fetchone()[0] for each in ("page_count", "page_size"))
        counted = 0
        for table in OF_TIME:
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            lengths = " + ".join(f"coalesce(length({column}), 0)" for column in columns)
            counted += connection.execute(f"SELECT coalesce(sum({lengths}), 0) FROM {table}").fetchone()[0]
    return pages * size, counted


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_JOBS} jobs")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    jobs = QUICK_JOBS if options.quick else JOBS
    with tempfile.TemporaryDirectory(prefix="tw-bench-") as made:
        before, after, prices = grow(Path(made), jobs)
    growth_mb = (after - before - prices) / 1e6
    claims = [
        Claim(f"growth from {jobs} jobs, per 1,000 jobs", growth_mb / jobs * 1000, "MB", TARGET_MB),
        Claim("prices and polls meanwhile", prices / 1e6, "MB"),
    ]
    notes = [f"{before / 1e6:.1f} MB before, {after / 1e6:.1f} MB after; {OFFERS} offers, {MACHINES} machines at most"]
    return show("Store growth", claims, as_json=options.json, notes=notes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
