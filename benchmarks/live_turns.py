"""Claim: real jobs that take turns on real machines each get their part of the time, and lose not a bit.

    python -m benchmarks.live_turns            30 jobs on 4 machines, under each policy; 45 minutes
    python -m benchmarks.live_turns --quick    3 jobs on 2 machines, max-min fairness, short turns; under 50 s

A control plane, machines of the provider `local` (they count as owned; `limits.max_instances` says how many) and
trainers are real processes, each machine with its Ray. A job is a small model with dropout, batch norm and AdamW, each
with its own seed; its steps mostly wait, so that two cores are enough.

Compared are, over the first rounds, in which no job ends: what each job was to have, the integral of its shares in the
plans of the control plane (benchmarks._telling_plane), and what it had, the time for which it trained; each as a part
of all jobs'. One turn is 2.5 points of that. Then all jobs go on to their end. The losses of all steps, and the final
parameters, optimizer and random numbers must equal those of the same program that ran alone and without interruption.

A turn ends for others at the end of a round only, and only if it has lasted for half of one: so a job that trains for T
changes its machine at most T / (turn / 2) times, which bounds its migrations. To change machines (save, end a machine,
start the next one, restore) takes about a tenth of a turn on two cores, where four machines start at a time.
--quick has turns so short that changes take a great part of them: its shares are reported without a target.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import benchmarks._one_thread  # noqa: F401  isort: skip
import torch._dynamo  # noqa: F401  what the first optimizer would load: the runs alone are forked from this process

from benchmarks import _small_training
from benchmarks._claims import Claim, show
from benchmarks._turns import most_points, trained_s
from orchestrator.engine.jobs.time_sharing import LEAST_TURN
from orchestrator.model import TERMINAL, Run
from orchestrator.policy.groups.time_slices import Fairness
from tests.e2e.living import Tradewind, losses, until
from trainers import runner
from trainers.checkpoint import store
from trainers.loop import session  # noqa: F401  as torch._dynamo
from trainers.spec import TrainerSpec

WORKDIR = str(Path(_small_training.__file__).parent)
ENTRY = f"{_small_training.__name__.rpartition('.')[2]}:main"
STEP_S = 0.1
POINTS = 5.0
CHANGES = 0.1
"""The part of a turn that a change of machines may take."""
TELL_EVERY_S = 60.0


@dataclass(frozen=True)
class Size:
    """How many jobs share how many machines, in turns of how many seconds; over `rounds` of them shares are measured.
    A job trains `longer` times what it has in these rounds."""

    jobs: int
    machines: int
    turn_s: float
    rounds: int
    longer: float

    @property
    def steps(self) -> int:
        return round(self.longer * self.rounds * self.turn_s * self.machines / self.jobs / STEP_S)

    @property
    def limit_s(self) -> float:
        """After so long, jobs that have not finished never will."""
        return 3 * self.longer * self.rounds * self.turn_s + 120


FULL = Size(jobs=30, machines=4, turn_s=100.0, rounds=10, longer=1.1)
QUICK = Size(jobs=3, machines=2, turn_s=10.0, rounds=1, longer=1.0)


@dataclass(frozen=True)
class Alone:
    """What a job had at its end without a control plane: the hash of its state, and the loss of each step."""

    state: str
    losses: Mapping[int, str]


def alone(number: int, steps: int, folder: Path) -> Alone:
    """Run a job in a process by itself."""
    run, root = folder / f"alone-{number}", str(folder / "checkpoints")
    run.mkdir()
    store.write_fence(root, run.name, 1, None)
    spec = TrainerSpec(
        job_id=run.name,
        run_id=run.name,
        generation=1,
        attempt=1,
        checkpoint_root=root,
        control_dir=str(run / "control"),
        output_dir=str(run / "outputs"),
        workdir=WORKDIR,
        entry=ENTRY,
        args={"seed": number, "step_s": 0.0},
        steps=steps,
        seed=number,
    )
    pid = os.fork()
    if pid == 0:
        runner.run(spec)
        os._exit(0)
    os.waitpid(pid, 0)
    return Alone((run / "outputs" / "state").read_text(), dict(losses(run)))


@dataclass(frozen=True)
class Found:
    """Of one installation: see the claims."""

    points: float
    without: int
    busy: float
    change_s: float
    ended: int
    most_ended: int
    bound: int
    unfinished: int
    differing: int
    took_s: float


def shared(size: Size, fairness: Fairness, expected: list[Alone], folder: Path) -> Found:
    """All jobs, from their submission to their end."""
    settings = {
        "LIMITS_MAX_INSTANCES": str(size.machines),
        "POLICY_TIME_SHARING": fairness,
        "POLICY_TURN_S": str(size.turn_s),
        "PROVIDERS_LOCAL_CLOCK_FACTOR": "1",
        "STATE_DIR": str(folder / "state"),
    }
    told = folder / "turns"
    began_s = time.monotonic()
    home = Tradewind(folder, **{f"TRADEWIND_{key}": value for key, value in settings.items()})
    try:
        jobs = [_submit(home, number, size.steps) for number in range(size.jobs)]
        home.start_control_plane("-m", "benchmarks._telling_plane", str(told))
        _watch(home, jobs, size)
        runs = {job: home.runs(job) for job in jobs}
        unfinished = sum(home.job(job).state != "finished" for job in jobs)
        differing = sum(_differs(home, job, alone) for job, alone in zip(jobs, expected, strict=True))
    finally:
        home.close()
    return _found(size, runs, told, unfinished, differing, time.monotonic() - began_s)


def _submit(home: Tradewind, number: int, steps: int) -> str:
    train = {"workdir": WORKDIR, "entry": ENTRY, "steps": steps, "args": {"seed": number, "step_s": STEP_S}}
    return home.submit(f"job-{number:02}", train=train, reproducible={"seed": number})


def _watch(home: Tradewind, jobs: list[str], size: Size) -> None:
    """Wait until all have ended, or none can be expected to."""
    began_s = told_s = time.monotonic()

    def over() -> bool:
        nonlocal told_s
        now_s, ended = time.monotonic(), sum(home.job(job).state in TERMINAL for job in jobs)
        if now_s > told_s + TELL_EVERY_S:
            told_s = now_s
            trained = sum(any(run.training_from_ms for run in home.runs(job)) for job in jobs)
            print(f"{now_s - began_s:.0f} s: {trained} of {len(jobs)} jobs trained, {ended} ended", file=sys.stderr)
        return ended == len(jobs) or now_s > began_s + size.limit_s

    until("all jobs have ended", over, size.limit_s + 60)


def _differs(home: Tradewind, job: str, expected: Alone) -> bool:
    state = home.installation.output_dir(job) / "state"
    try:
        return home.losses(job) != expected.losses or state.read_text() != expected.state
    except (AssertionError, OSError):  # a repeated step had another loss; it has no end
        return True


def _found(
    size: Size, runs: Mapping[str, list[Run]], told: Path, unfinished: int, differing: int, took_s: float
) -> Found:
    first_ms, until_ms, planned = _planned(told, size.rounds)
    had = {job: trained_s(each, until_ms) for job, each in runs.items()}
    span_s = size.machines * (until_ms - first_ms) / 1000
    started = sum(first_ms <= (run.training_from_ms or 0) < until_ms for each in runs.values() for run in each)
    ended = [sum(run.end == "paused" for run in each) for each in runs.values()]
    longest_s = max(trained_s(each, 2**62) for each in runs.values() if all(run.training_to_ms for run in each))
    return Found(
        points=most_points(had, planned),
        without=sum(not each for each in had.values()),
        busy=sum(had.values()) / span_s,
        change_s=(span_s - sum(had.values())) / started,
        ended=sum(ended),
        most_ended=max(ended),
        bound=int(longest_s / (LEAST_TURN * size.turn_s)),
        unfinished=unfinished,
        differing=differing,
        took_s=took_s,
    )


def _planned(told: Path, rounds: int) -> tuple[int, int, dict[str, float]]:
    """Of the first `rounds` whole rounds with more jobs than machines, and of what comes before the first one: from
    when to when (market ms), and the integral of each job's shares (market seconds)."""
    lines = [json.loads(line) for line in told.read_text().splitlines()]
    shared = [line for line in lines if line["share"]]
    first, planned = shared[0], defaultdict[str, float](float)
    until_ms = min((line["at_ms"] for line in lines if line["round"] > first["round"] + rounds), default=2**62)
    until_ms = min(until_ms, lines[-1]["at_ms"])
    for line, following in zip(lines, lines[1:], strict=False):
        for job, share in line["share"].items():
            planned[job] += share * max(min(following["at_ms"], until_ms) - line["at_ms"], 0) / 1000
    return first["at_ms"], until_ms, planned


def claims_of(found: Found, size: Size, case: str, *, quick: bool) -> list[Claim]:
    return [
        Claim(f"{case}: a job's part of all time, at most from its plan", found.points, "points", 100 if quick else POINTS),
        Claim(f"{case}: jobs that had no turn in {size.rounds} rounds", found.without, "jobs", None if quick else 0),
        Claim(f"{case}: machines' time in which a job trained", 100 * found.busy, "%"),
        Claim(f"{case}: a change of machines, mean", found.change_s, "s", None if quick else CHANGES * size.turn_s),
        Claim(f"{case}: turns that ended for others", found.ended, "turns", 1, least=True),
        Claim(f"{case}: of one job, at most (bound: its time / half a turn)", found.most_ended, "turns", found.bound),
        Claim(f"{case}: jobs that did not finish", found.unfinished, "jobs", 0),
        Claim(f"{case}: jobs that differ from an uninterrupted run in a bit", found.differing, "jobs", 0),
        Claim(f"{case}: wall time", found.took_s, "s"),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="3 jobs on 2 machines, max-min fairness")
    parser.add_argument("--json", action="store_true", help="print only the claims, as JSON")
    options = parser.parse_args()
    quick: bool = options.quick
    size = QUICK if quick else FULL
    policies: tuple[Fairness, ...] = get_args(Fairness)
    claims = []
    with tempfile.TemporaryDirectory(prefix="tw-turns-") as name:
        expected = [alone(number, size.steps, Path(name)) for number in range(size.jobs)]
        for fairness in policies[:1] if quick else policies:
            folder = Path(name) / fairness
            folder.mkdir()
            case = f"{fairness}, {size.jobs} jobs on {size.machines} machines"
            claims += claims_of(shared(size, fairness, expected, folder), size, case, quick=quick)
    return show("Turns on owned machines, live", claims, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
