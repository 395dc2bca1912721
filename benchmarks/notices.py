"""The reaction time of a machine to its cloud's notice: until its program is informed, and until the control plane
knows.

    python benchmarks/notices.py [--quick] [--json]

Three clouds on loopback (tests/e2e/three_clouds.py), whose machines are processes in separate namespaces that run the
real user data. A job trains on a spot machine; its cloud announces the machine's end in the metadata service; the agent
finds that, writes it into the control directory of the job's program, which saves its work in time, and reports it
through the bucket to the control plane, which looks for another machine. Times are taken from these files and records.
Needs root, for the namespaces. All times depend on the load of the machine.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks._claims import Claim, show
from orchestrator.model import Run
from tests.e2e.living import PATIENCE_S, until
from tests.e2e.three_clouds import CLOUDS, OFFERS, ThreeClouds, three_clouds

GOAL_S = 2.0


@dataclass(frozen=True, slots=True)
class Reaction:
    """Wall seconds from a notice until the program was informed, and until the control plane had recorded it."""

    learned_s: float
    recorded_s: float


def reactions(world: ThreeClouds, cloud: str, times: int, folder: Path) -> list[Reaction]:
    """Let this many jobs train on this cloud at once, each on its machine, and announce the machines' ends one after
    the other: after a preemption, no machine is rented there for a while."""
    tradewind = world.tradewind
    jobs = [world.submitted(f"{cloud}-{number}", [cloud]) for number in range(times)]
    found = [_reaction(world, run, folder) for run in [_trained(world, job) for job in jobs]]
    for job in jobs:
        tradewind.client.jobs.cancel(job)
    for job in jobs:
        tradewind.ended(job, "cancelled")
    return found


def _reaction(world: ThreeClouds, run: Run, folder: Path) -> Reaction:
    given = folder / f"{run.id}.given"
    given.touch()
    world.announce(run)
    learned_ns = until("the program knows of the notice", lambda: _learned_ns(world, run))
    recorded_ms = until("the control plane knows", lambda: _recorded_ms(world, run))
    assert learned_ns is not None
    assert recorded_ms is not None
    given_ns = given.stat().st_mtime_ns
    return Reaction((learned_ns - given_ns) / 1e9, recorded_ms / 1e3 - given_ns / 1e9)


def _trained(world: ThreeClouds, job: str) -> Run:
    """The job's run, once it has trained for some steps."""
    try:
        run = until("the job trains", lambda: _training(world, job), 2 * PATIENCE_S)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{world.tradewind.story(job)}") from None
    assert run is not None
    return run


def _training(world: ThreeClouds, job: str) -> Run | None:
    newest = world.tradewind.runs(job)[-1:]
    if not newest or newest[0].training_from_ms is None or world.tradewind.client.jobs.get(job).step < 5:
        return None
    return newest[0]


def _learned_ns(world: ThreeClouds, run: Run) -> int | None:
    """When the machine's agent informed its program, by the clock of its files: epoch nanoseconds."""
    home = Path(f"/proc/{world.machine(run).host.pid}/root/root/.cache/tradewind/machines")
    try:
        return max((each.stat().st_mtime_ns for each in home.glob("**/control/notice.json")), default=None)
    except OSError:  # the machine has ended
        return None


def _recorded_ms(world: ThreeClouds, run: Run) -> int | None:
    with world.tradewind.installation.store.read() as tx:
        found = tx.events(job_id=run.job_id, kinds=("instance.notice",))
    return next((event.at_ms for event in found if event.run_id == run.id), None)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one notice of each cloud instead of three")
    parser.add_argument("--json", action="store_true", help="print only the claims, as JSON")
    options = parser.parse_args()
    load, times = os.getloadavg()[0], 1 if options.quick else 3
    found: dict[str, list[Reaction]] = {}
    with tempfile.TemporaryDirectory(prefix="tw-notices-") as folder, three_clouds(Path(folder)) as world:
        for cloud in CLOUDS:
            found[cloud] = reactions(world, cloud, times, Path(folder))
    claims, notes = [], [f"{len(OFFERS)} offers; load of the machine at the start: {load:.1f}."]
    for cloud, each in found.items():
        learned, recorded = sorted(one.learned_s for one in each), sorted(one.recorded_s for one in each)
        claims.append(
            Claim(f"{cloud}: until the program learns of it, longest of {len(each)}", learned[-1], "s", GOAL_S)
        )
        claims.append(Claim(f"{cloud}: until the control plane knows, longest of {len(each)}", recorded[-1], "s"))
        notes.append(f"{cloud}: told after {median(learned):.2f} s, recorded after {median(recorded):.2f} s (medians)")
    return show("Notices", claims, as_json=options.json, notes=notes)


if __name__ == "__main__":
    sys.exit(main())
