"""Claim: jobs that share owned machines each get the part of the time that the plan gives them, and all finish.

    python -m benchmarks.time_slicing            30 jobs on 4 machines, 40 turns; some minutes
    python -m benchmarks.time_slicing --quick    5 jobs on 2 machines, 10 turns

The engine runs in virtual time on simulated machines that count as owned; trainers are simulated. A turn is 120 s, and
to change machines takes about 8 s of that, far more than of turns of ten minutes. What each job was to have is the mean
of its shares in the plans of all rounds; what it had is the time for which it trained, as a part of all time trained.
The last claim is the CPU time of one round of 1,000 jobs over 30 classes of machines; no engine runs for it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import get_args

import benchmarks._one_thread  # noqa: F401  isort: skip
import numpy as np

from benchmarks._claims import Claim, show
from orchestrator.model import Job, JobSpec, Run
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
"""How far a job's part may be from its plan, in percentage points of all machines' time."""
LIMIT_S = 40_000.0
JOBS, CLASSES, PASS_S = 1_000, 30, 5.0


def trained_s(runs: list[Run], now_ms: int) -> float:
    """Market seconds."""
    spans = [(run.training_from_ms, run.training_to_ms or now_ms) for run in runs]
    return sum((to_ms - from_ms) / 1000 for from_ms, to_ms in spans if from_ms is not None)


def shared(fairness: Fairness, jobs: int, machines: int, rounds: int) -> tuple[float, int, int, int]:
    """(the largest distance of a job's part from its plan in percentage points, jobs that did not finish, turns that
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
        distance = _distance(home, submitted, planned)
        began_s = home.clock.monotonic_s()
        while not home.settled and home.clock.monotonic_s() - began_s < LIMIT_S:
            home.tick(1.0)
        unfinished = sum(home.job(job).state != "finished" for job in submitted)
        ended = sum(len(home.runs(job)) - 1 for job in submitted)
        wrong = len(findings(home))
        database.close()
    return distance, unfinished, ended, wrong


def _distance(home: SimulatedInstallation, jobs: list[Job], planned: Mapping[str, float]) -> float:
    had = {job.id: trained_s(home.runs(job), home.clock.now_ms()) for job in jobs}
    all_had, all_planned = sum(had.values()), sum(planned.values())
    return max(100 * abs(had[job.id] / all_had - planned[job.id] / all_planned) for job in jobs)


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


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="5 jobs on 2 machines, 10 turns")
    parser.add_argument("--json", action="store_true", help="print only the claims, as JSON")
    options = parser.parse_args()
    jobs, machines, rounds = (5, 2, 10) if options.quick else (30, 4, 40)
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
    return show("Turns on owned machines", claims, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
