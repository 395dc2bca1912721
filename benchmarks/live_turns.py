"""Claim: real jobs that take turns on real machines each get their share of the time, with bit-identical results.

    python -m benchmarks.live_turns            30 jobs on 4 machines, under each policy; an hour on two idle cores
    python -m benchmarks.live_turns --quick    2 jobs on one machine, max-min fairness, turns of some seconds

A control plane, machines of the provider `local` (they count as owned; `limits.max_instances` sets their number) and
trainers are real processes, each machine with its Ray. A job is a small model with dropout, batch norm and AdamW, each
with its own seed; its steps mostly wait, so two cores are enough.

While there are more jobs than machines, the benchmark compares each job's planned time (the integral of its shares in
the plans of the control plane, benchmarks._telling_plane) with its actual training time, each as a share of all jobs'
time. The losses of all steps, and at the end the parameters and the states of the optimizer and the random number
generators, must equal those of the same program that ran alone and without interruption.

A turn ends for others only at the end of a round, and only if it has lasted for half a round. So a job that trains for
T changes its machine at most T / (turn / 2) times, which limits its migrations. A change of machines means to save, to
end a machine, to start the next one and to restore; its time is the time in which no job trains, divided by the number
of starts.

A turn lasts at least nine times as long as a change of machines (orchestrator.policy.time_sharing). On a busy computer
starts take longer, so turns get longer, and too few jobs may be interrupted for equal shares: use idle cores, or longer
turns and jobs, or switch off the rule (--short). --quick would end before its first turn does, so the rule is off
there, too: changes take more time than turns, and shares are reported without a target.
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
from dataclasses import asdict, dataclass
from itertools import pairwise
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
"""The fraction of a turn that a change of machines may take."""
TELL_EVERY_S = 60.0
FOREVER_MS = 2**62


@dataclass(frozen=True)
class Size:
    """The numbers of jobs and machines, the length of a turn in seconds, and the steps of each job."""

    jobs: int
    machines: int
    turn_s: float
    steps: int

    @property
    def limit_s(self) -> float:
        """Jobs that have not finished after this time never will."""
        return 4 * self.jobs * self.steps * STEP_S / self.machines + 120


FULL = Size(jobs=30, machines=4, turn_s=180.0, steps=2000)
QUICK = Size(jobs=2, machines=1, turn_s=3.0, steps=50)


@dataclass(frozen=True)
class Alone:
    """The result of a job without a control plane: the hash of its final state, and the loss of each step."""

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
    """The results of one installation: see the claims."""

    points: float
    rounds: float
    all_had_one: float
    busy: float
    change_s: float
    ended: int
    most_moved: int
    bound: int
    unfinished: int
    differing: int
    took_s: float


def shared(size: Size, fairness: Fairness, expected: list[Alone], folder: Path, *, short: bool) -> Found:
    """All jobs, from their submission to their end; `short`: see benchmarks._telling_plane."""
    settings = {
        "LIMITS_MAX_INSTANCES": str(size.machines),
        "POLICY_TIME_SHARING": fairness,
        "POLICY_TURN_S": str(size.turn_s),
        "PROVIDERS_LOCAL_CLOCK_FACTOR": "1",
        "STATE_DIR": str(folder / "state"),
    }
    reports = folder / "turns"
    began_s = time.monotonic()
    home = Tradewind(folder, **{f"TRADEWIND_{key}": value for key, value in settings.items()})
    try:
        jobs = [_submit(home, number, size.steps) for number in range(size.jobs)]
        home.start_control_plane("-m", "benchmarks._telling_plane", str(reports), *(("--short",) if short else ()))
        _watch(home, jobs, size)
        runs = {job: home.runs(job) for job in jobs}
        unfinished = sum(home.job(job).state != "finished" for job in jobs)
        differing = sum(_differs(home, job, alone) for job, alone in zip(jobs, expected, strict=True))
    finally:
        home.close()
    return _found(size, runs, reports, unfinished, differing, time.monotonic() - began_s)


def _submit(home: Tradewind, number: int, steps: int) -> str:
    train = {"workdir": WORKDIR, "entry": ENTRY, "steps": steps, "args": {"seed": number, "step_s": STEP_S}}
    return home.submit(f"job-{number:02}", train=train, reproducible={"seed": number})


def _watch(home: Tradewind, jobs: list[str], size: Size) -> None:
    """Wait until all have ended, or none can be expected to."""
    began_s = reported_s = time.monotonic()

    def over() -> bool:
        nonlocal reported_s
        now_s, ended = time.monotonic(), sum(home.job(job).state in TERMINAL for job in jobs)
        if now_s > reported_s + TELL_EVERY_S:
            reported_s = now_s
            trained = sum(any(run.training_from_ms for run in home.runs(job)) for job in jobs)
            print(f"{now_s - began_s:.0f} s: {trained} of {len(jobs)} jobs trained, {ended} ended", file=sys.stderr)
        return ended == len(jobs) or now_s > began_s + size.limit_s

    until("all jobs have ended", over, size.limit_s + 60)


def _differs(home: Tradewind, job: str, expected: Alone) -> bool:
    state = home.installation.output_dir(job) / "state"
    try:
        return home.losses(job) != expected.losses or state.read_text() != expected.state
    except (AssertionError, OSError):  # a repeated step had a different loss; the job has no end
        return True


def _found(
    size: Size, runs: Mapping[str, list[Run]], reports: Path, unfinished: int, differing: int, took_s: float
) -> Found:
    first_ms, until_ms, planned = _planned(reports)
    had = {job: trained_s(each, until_ms) for job, each in runs.items()}
    span_s = size.machines * (until_ms - first_ms) / 1000
    starts_ms = [run.training_from_ms for each in runs.values() for run in each if run.training_from_ms is not None]
    ended = [sum(run.end == "paused" for run in each) for each in runs.values()]
    last_ms = max(min(run.training_from_ms or until_ms for run in each) for each in runs.values())
    longest_s = max(trained_s(each, FOREVER_MS) for each in runs.values())
    return Found(
        points=most_points(had, planned),
        rounds=(until_ms - first_ms) / 1000 / size.turn_s,
        all_had_one=(last_ms - first_ms) / 1000 / size.turn_s,
        busy=sum(had.values()) / span_s,
        change_s=(span_s - sum(had.values())) / sum(each < until_ms for each in starts_ms),
        ended=sum(ended),
        most_moved=max(len(each) - 1 for each in runs.values()),
        bound=int(longest_s / (LEAST_TURN * size.turn_s)),
        unfinished=unfinished,
        differing=differing,
        took_s=took_s,
    )


def _planned(reports: Path) -> tuple[int, int, dict[str, float]]:
    """The period (market ms) with more jobs than machines, and the integral of each job's planned shares over that
    period (market seconds)."""
    lines = [json.loads(line) for line in reports.read_text().splitlines()]
    planned = defaultdict[str, float](float)
    first_ms = until_ms = next(line["at_ms"] for line in lines if line["share"])
    for line, following in pairwise(lines):
        for job, share in line["share"].items():
            planned[job] += share * (following["at_ms"] - line["at_ms"]) / 1000
            until_ms = following["at_ms"]
    return first_ms, until_ms, planned


def claims_of(found: Found, size: Size, case: str, *, most: float | None, short: bool) -> list[Claim]:
    change_s = None if short else CHANGES * size.turn_s
    return [
        Claim(f"{case}: a job's part of all time, at most from its plan", found.points, "points", most),
        Claim(f"{case}: until there was a machine for each", found.rounds, "rounds"),
        Claim(f"{case}: until each had had a turn", found.all_had_one, "rounds"),
        Claim(f"{case}: machines' time in which a job trained", 100 * found.busy, "%"),
        Claim(f"{case}: a change of machines, mean", found.change_s, "s", change_s),
        Claim(f"{case}: turns that ended for others", found.ended, "turns", 1, least=True),
        Claim(
            f"{case}: migrations of one job (at most its time in half turns)", found.most_moved, "moves", found.bound
        ),
        Claim(f"{case}: jobs that did not finish", found.unfinished, "jobs", 0),
        Claim(f"{case}: jobs that differ from an uninterrupted run in a bit", found.differing, "jobs", 0),
        Claim(f"{case}: wall time", found.took_s, "s"),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="2 jobs on one machine, max-min fairness, without the rule"
    )
    for name, default in asdict(FULL).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    parser.add_argument("--short", action="store_true", help="without the rule: turns as short as configured")
    parser.add_argument("--policy", choices=get_args(Fairness), action="append", help="only this one")
    parser.add_argument("--json", action="store_true", help="print only the claims, as JSON")
    options = parser.parse_args()
    quick: bool = options.quick
    short: bool = quick or options.short
    size = QUICK if quick else Size(**{name: getattr(options, name) for name in asdict(FULL)})
    policies: tuple[Fairness, ...] = tuple(options.policy or (get_args(Fairness)[:1] if quick else get_args(Fairness)))
    claims = []
    with tempfile.TemporaryDirectory(prefix="tw-turns-") as name:
        expected = [alone(number, size.steps, Path(name)) for number in range(size.jobs)]
        for fairness in policies:
            folder = Path(name) / fairness
            folder.mkdir()
            case = f"{fairness}, {size.jobs} jobs on {size.machines} machines"
            found = shared(size, fairness, expected, folder, short=short)
            claims += claims_of(found, size, case, most=None if quick else POINTS, short=short)
    return show("Turns on owned machines, live", claims, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
