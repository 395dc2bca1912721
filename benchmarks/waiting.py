"""Claim: any number of jobs that wait for a machine use a small part of one core, and no machine stays unused.

    python -m benchmarks.waiting            100, 300 and 1,000 jobs
    python -m benchmarks.waiting --quick    100 jobs, 10 s instead of 60

One job trains on the only machine, and the others wait for it. The engine and the store are real, the machine and the
trainers are simulated, in virtual time: between two ticks, time advances by the daemon's pause and the CPU time of the
tick. The benchmark measures the CPU time of all ticks while nothing happens, and the time until the machine is rented
again after its job is cancelled.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from benchmarks._claims import Claim, show
from benchmarks.crash_fuzz import empty_database
from orchestrator.daemon import pause_s
from orchestrator.model import Job, JobSpec
from tests.rig import SimulatedInstallation, memory_folder
from tests.sim.harness import BRISK, CATALOG, PACE, train_spec

JOBS, QUICK_JOBS = (100, 300, 1000), (100,)
SECONDS, QUICK_SECONDS = 60.0, 10.0
MOST_SHARE = 0.25
LATEST_S = 5.0


def measured(jobs: int, seconds: float) -> tuple[float, float]:
    """(share of a core while this many jobs wait, seconds until the machine is rented again)."""
    with memory_folder() as folder, empty_database("sqlite", folder) as database:
        home = SimulatedInstallation(
            folder,
            database,
            catalog=CATALOG,
            behaviour=replace(BRISK, max_instances=1, owned=True),
            timings=PACE,
        )
        first = home.submit_job(JobSpec("first", train_spec(1_000_000)))
        while home.job(first).state != "running":
            paced(home)
        waiting = [home.submit_job(JobSpec(f"waits-{number}", train_spec(1_000_000))) for number in range(jobs)]
        while not all(home.events(each, "job.waits") for each in waiting):
            paced(home)
        until_s = home.clock.monotonic_s() + 10.0
        while home.clock.monotonic_s() < until_s:
            paced(home)
        began_s, took_s = home.clock.monotonic_s(), 0.0
        while home.clock.monotonic_s() < began_s + seconds:
            took_s += paced(home)
        share = took_s / (home.clock.monotonic_s() - began_s)
        home.ask("cancel", first)
        while home.runs(first)[-1].billed_to_ms is None:
            paced(home)
        return share, until_rented(home, waiting)


def until_rented(home: SimulatedInstallation, waiting: Sequence[Job]) -> float:
    began_s = home.clock.monotonic_s()
    while not any(home.job(each).state == "starting" for each in waiting):
        paced(home)
    return home.clock.monotonic_s() - began_s


def paced(home: SimulatedInstallation) -> float:
    """One tick, and the pause that the daemon makes after it. Returns the CPU seconds of the tick."""
    began_s = time.process_time()
    changed = home.plane.tick()
    took_s = time.process_time() - began_s
    home.clock.advance(took_s + (0.0 if changed else pause_s(home.plane._ctx.work)))
    return took_s


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_JOBS[0]} jobs, {QUICK_SECONDS:.0f} s")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    claims = []
    for jobs in QUICK_JOBS if options.quick else JOBS:
        share, free_s = measured(jobs, QUICK_SECONDS if options.quick else SECONDS)
        claims += [
            Claim(f"{jobs:,} jobs that wait: CPU time of the control plane", share, "of a core", MOST_SHARE),
            Claim(f"{jobs:,} jobs that wait: a free machine is rented again after", free_s, "s", LATEST_S),
        ]
    return show("Jobs that wait for a machine", claims, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
