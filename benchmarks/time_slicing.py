"""Claim: jobs that share owned machines each get the planned share of the time, and all finish.

    python -m benchmarks.time_slicing            30 jobs on 4 machines, 40 turns; up to 25 min
    python -m benchmarks.time_slicing --quick    5 jobs on 2 machines, 6 turns

The engine runs in virtual time on simulated machines that count as owned; trainers are simulated. A turn is 120 s, and
a change of machines takes about 8 s of that, a far larger fraction than of turns of ten minutes. A job's planned share
is the mean of its shares in the plans of all rounds; its actual share is its training time as a fraction of all
training time. Then the CPU time of one round of 1,000 jobs over 30 classes of machines, without an engine; and the CPU
time of the passes of a control plane with 1,000 jobs in its store that may each use some of 30 classes, 300 machines in
total: from the time when all wait until the first turns are over (--quick: the first passes).
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import defaultdict
from dataclasses import replace
from typing import get_args

import benchmarks._one_thread  # noqa: F401  isort: skip
import numpy as np

from benchmarks._claims import Claim, show
from benchmarks._turns import most_points, trained_s
from benchmarks.control_plane import Stopwatch
from orchestrator.model import GpuRequest, JobSpec, Resources
from orchestrator.policy.groups.rounds import Room
from orchestrator.policy.groups.time_slices import Contender, Fairness, fair_shares, turns
from providers.fake import Behaviour
from providers.hardware import GIB
from providers.money import usd
from providers.offer import CapacityType, Offer
from tests.rig import SimulatedInstallation, SqliteScratchDatabase, findings, memory_folder, train_spec

TURN_S = 120.0
MACHINE = Offer("fake", "alpha", "alpha-1", "v100.1", "V100", 1, 8, 64 * GIB, CapacityType.SPOT, simulated=True)
POINTS = 5.0
"""How far a job's share may be from its plan, in percentage points of all machines' time."""
LIMIT_S = 40_000.0
JOBS, CLASSES, PASS_S = 1_000, 30, 5.0
KINDS = ("A10G", "A40", "H100", "H200", "K80", "L4", "L40S", "P100", "T4", "V100")


def shared(fairness: Fairness, jobs: int, machines: int, rounds: int) -> tuple[float, int, int, int]:
    """(the largest distance of a job's share from its plan in percentage points, jobs that did not finish, turns that
    ended for others, findings of the rig: steps lost, machines left, ledgers that differ)."""
    settings = {"policy.time_sharing": fairness, "policy.turn_s": TURN_S, "policy.min_dwell_s": 10.0}
    with memory_folder() as folder:
        database = SqliteScratchDatabase(folder)
        home = SimulatedInstallation(
            folder / "home",
            database,
            catalog=((MACHINE, usd("0.01")),),
            behaviour=Behaviour(boot_s=2.0, listing_lag_s=3.0, stop_s=1.0, max_instances=machines, owned=True),
            overrides={**settings, "limits.max_instances": machines},
        )
        steps = round(1.2 * rounds * TURN_S * machines / jobs)
        submitted = [home.submit_job(JobSpec(f"job-{number:02}", train_spec(steps))) for number in range(jobs)]
        planned: dict[str, float] = defaultdict(float)
        seen: set[int] = set()
        while len(seen) < rounds:
            home.tick(1.0)
            known = home.plane._ctx.round
            if known.given is not None and known.number not in seen:
                seen.add(known.number or 0)
                for job_id, share in known.given.share.items():
                    planned[job_id] += share
        had = {job.id: trained_s(home.runs(job), home.clock.now_ms()) for job in submitted}
        distance = most_points(had, planned)
        began_s = home.clock.monotonic_s()
        while not home.settled and home.clock.monotonic_s() - began_s < LIMIT_S:
            home.tick(1.0)
        unfinished = sum(home.job(job).state != "finished" for job in submitted)
        ended = sum(len(home.runs(job)) - 1 for job in submitted)
        wrong = len(findings(home))
        database.close()
    return distance, unfinished, ended, wrong


def one_round(fairness: Fairness) -> float:
    """CPU seconds of a round of JOBS different jobs over CLASSES classes with 10 machines each."""
    chance = np.random.default_rng(1)
    speed = chance.uniform(0.2, 5.0, (JOBS, CLASSES))
    jobs = [
        Contender(f"job-{n}", speed[n], 1, 1e5 * (1 + n), 1e3 * n, 1e4, 60.0 * n, np.zeros(CLASSES), 1e4)
        for n in range(JOBS)
    ]
    room = Room(np.eye(CLASSES), np.full(CLASSES, 10.0))
    begun = time.process_time()
    found = turns(jobs, fair_shares(jobs, room, fairness), room, TURN_S)
    spent = time.process_time() - begun
    assert len(found) == 10 * CLASSES
    return spent


def passes(fairness: Fairness, *, quick: bool) -> list[float]:
    """CPU seconds of each pass of the control plane, without those of the simulated cloud and trainers."""
    most = 10 * CLASSES
    settings = {"policy.time_sharing": fairness, "policy.turn_s": TURN_S, "limits.max_instances": most}
    catalog = [
        (replace(MACHINE, instance_type=f"{gpu}.{count}", gpu=gpu, gpu_count=count), usd("0.01"))
        for gpu in KINDS
        for count in (1, 2, 4)
    ]
    assert len(catalog) == CLASSES
    chance, spent = random.Random(1), list[float]()
    with memory_folder() as folder:
        database = SqliteScratchDatabase(folder)
        home = SimulatedInstallation(
            folder / "home",
            database,
            catalog=catalog,
            behaviour=Behaviour(boot_s=2.0, listing_lag_s=3.0, stop_s=1.0, max_instances=most, owned=True),
            overrides={"policy.min_dwell_s": 10.0, **settings},
        )
        home.tick(1.0)
        for number in range(JOBS):
            wanted = sorted(chance.sample(catalog, chance.randint(1, CLASSES)), key=lambda each: each[0].id)
            gpus = tuple(GpuRequest(offer.gpu or "", offer.gpu_count) for offer, _ in wanted)
            home.submit_job(JobSpec(f"job-{number}", train_spec(1000 + number), resources=Resources(gpus)))
        watch = Stopwatch(home)
        while len(spent) < (5 if quick else 1.5 * TURN_S):
            began_s, simulated_s = time.thread_time(), watch.seconds
            home.plane.tick()
            spent.append(time.thread_time() - began_s - (watch.seconds - simulated_s))
            home.clock.advance(1.0)
        database.close()
    return spent


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="5 jobs on 2 machines, 6 turns")
    parser.add_argument("--json", action="store_true", help="print only the claims, as JSON")
    options = parser.parse_args()
    jobs, machines, rounds = (5, 2, 6) if options.quick else (30, 4, 40)
    claims = []
    for fairness in get_args(Fairness):
        distance, unfinished, ended, wrong = shared(fairness, jobs, machines, rounds)
        case = f"{fairness}, {jobs} jobs on {machines} machines (simulated)"
        claims += [
            Claim(f"{case}: a job's part of all time, at most from its plan", distance, "points", POINTS),
            Claim(f"{case}: turns that ended for others", ended, "turns"),
            Claim(f"{case}: jobs that did not finish", unfinished, "jobs", 0),
            Claim(f"{case}: steps lost, machines left, ledgers that differ", wrong, "findings", 0),
        ]
    for fairness in get_args(Fairness):
        what = f"{fairness}: one round of {JOBS:,} jobs over {CLASSES} classes"
        claims.append(Claim(f"{what}, CPU time", one_round(fairness), "s", PASS_S))
        spent = passes(fairness, quick=options.quick)
        what = f"{fairness}: {len(spent)} passes of a control plane with {JOBS:,} jobs, {CLASSES} classes"
        claims.append(Claim(f"{what}, CPU time of the longest", max(spent), "s", PASS_S))
    return show("Turns on owned machines", claims, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
