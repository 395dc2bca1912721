"""Thirty zombies: raylets are killed, but their actors keep running while another generation owns the job.

    python benchmarks/zombies.py [--quick] [--json]

Real processes on the `local` provider. The machine's agent and the control plane are stopped meanwhile, and the
trainer's lease is set to an hour, so that only the fence protects the job's checkpoints from the zombie. Then the
control plane resumes, and the job must continue from the checkpoint that the fence names. At the end, every loss and
the weights are compared with an uninterrupted run, bit for bit.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.progress import track

from benchmarks._claims import Claim, show
from orchestrator.model import Run
from tests.e2e.living import Reference, Tradewind
from tests.e2e.zombies import Zombie, let_one_rise

PER_JOB = 10  # each takes some 20 of a job's 400 steps


def rise(home: Tradewind, count: int) -> tuple[list[Zombie], list[str]]:
    """Create `count` zombies, one after the other, with as many jobs as needed, and let the jobs finish."""
    found: list[Zombie] = []
    jobs: list[str] = []
    last: Run | None = None
    for number in track(range(count), "zombies", console=Console(stderr=True), transient=True):
        if number % PER_JOB == 0:
            if jobs:
                home.finish(jobs[-1])
            jobs.append(home.submit(f"haunted-{len(jobs) + 1}"))
            last = None
        found.append(let_one_rise(home, jobs[-1], last))
        last = found[-1].run
    home.finish(jobs[-1])
    return found, jobs


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="2 zombies instead of 30, under 50 seconds")
    parser.add_argument("--json", action="store_true", help="print only the claims, as JSON")
    options = parser.parse_args()
    count = 2 if options.quick else 30
    with tempfile.TemporaryDirectory(prefix="tw-zombies-") as name:
        folder = Path(name)
        home = Tradewind(folder, TRADEWIND_LEASE_S="8", TRADEWIND_SUSPECT_AFTER_S="3")
        (folder / "reference").mkdir()
        reference = Reference(folder / "reference")
        try:
            began_s = time.monotonic()
            home.command("up")
            zombies, jobs = rise(home, count)
            took_s = time.monotonic() - began_s
            expected, weights = reference.losses(), reference.weights_hash()
            unequal = [job for job in jobs if home.losses(job) != expected or home.weights_hash(job) != weights]
            home.client.control_plane.down(force=True)
            left = home.left_behind()
        finally:
            reference.close()
            home.close()
    claims = [
        Claim(f"zombies not ended by the fence, of {count}", sum(z.end != "fenced" for z in zombies), "zombies", 0),
        Claim("a checkpoint that slipped past the fence was restored", sum(z.restored for z in zombies), "zombies", 0),
        Claim("jobs with a different loss or different weights", len(unequal), "jobs", 0),
        Claim("processes left behind", len(left), "processes", 0),
        Claim("steps trained by zombies", sum(z.steps for z in zombies), "steps"),
        Claim("checkpoints that slipped past the fence", sum(z.slipped for z in zombies), "checkpoints"),
        Claim("wall time", took_s, "s"),
    ]
    ends = Counter(zombie.end for zombie in zombies)
    return show("Zombies", claims, as_json=options.json, notes=[f"they ended: {dict(ends)}", *left])


if __name__ == "__main__":
    sys.exit(main())
