"""Jobs that are killed at random moments and resumed until they end: are the results identical to the last bit?

    python -m benchmarks.kill_resume [--quick] [--json] [--seed N]

Each job is a different program (benchmarks._random_training: model, dropout, batch norm, optimizer, schedule, mixed
precision with overflows, accumulation, workers of the loader), with one process or two, and with checkpoints written
synchronously or in the background. It runs once without interruption; then kill -9 ends all its processes, again and
again, at random moments. The benchmark compares the losses of all steps, including repeated ones, and the hash of the
weights. The number of workers changes at each resume. --quick: 3 programs, 15 kills.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import benchmarks._one_thread  # noqa: F401  isort: skip
import torch._dynamo  # noqa: F401  what the first optimizer would load: the runs are forked from this process

from benchmarks import _random_training
from benchmarks._claims import Claim, show
from trainers import runner
from trainers.checkpoint import store
from trainers.control import EXIT_CODES, ControlDirectory
from trainers.loop import session  # noqa: F401  likewise
from trainers.spec import TrainerSpec

PROGRAMS, KILLS_EACH, QUICK_PROGRAMS, QUICK_KILLS_EACH = 30, 10, 3, 5
STEPS = 60


@dataclass
class Job:
    """One program with its folder."""

    folder: Path
    options: dict[str, Any]
    processes: int
    max_in_flight: int
    seed: int
    generation: int = 0
    losses: dict[tuple[int, int], str] = field(default_factory=dict)
    """Loss by rank and step."""
    differing: int = 0

    def spec(self) -> TrainerSpec:
        run = self.folder / f"run-{self.generation}"
        return TrainerSpec(
            job_id="job",
            run_id=run.name,
            generation=self.generation,
            attempt=1,
            checkpoint_root=str(self.folder / "checkpoints"),
            control_dir=str(run / "control"),
            output_dir=str(self.folder / "outputs"),
            workdir=str(Path(_random_training.__file__).parent),
            entry=f"{_random_training.__name__.rpartition('.')[2]}:main",
            args=self.options,
            steps=STEPS,
            max_overhead=1.0,
            max_in_flight=self.max_in_flight,
            seed=self.seed,
            processes=self.processes,
        )

    def start(self) -> tuple[int, TrainerSpec]:
        """Hand the job to the next generation and fork its run in a separate process group."""
        self.generation += 1
        root = str(self.folder / "checkpoints")
        store.write_fence(root, "job", self.generation, store.newest_counting(root, "job", self.generation))
        spec = self.spec()
        Path(spec.control_dir).mkdir(parents=True)
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            state = runner.run(spec)
            os._exit(EXIT_CODES.get(state, 1))
        os.setpgid(pid, pid)
        return pid, spec

    def gather(self, spec: TrainerSpec) -> None:
        """Compare the steps of this run's ranks with the known results of these steps."""
        of_run = Path(spec.control_dir).parent
        for rank in range(self.processes):
            metrics = (of_run if rank == 0 else of_run / "ranks" / str(rank)) / "metrics.jsonl"
            for line in metrics.read_text().splitlines() if metrics.exists() else ():
                try:
                    step = json.loads(line)
                except ValueError:  # the line that was being written when it was killed
                    continue
                known = self.losses.setdefault((rank, step["step"]), step["loss_hex"])
                self.differing += known != step["loss_hex"]


def finished(job: Job) -> str:
    """Run it to its end. Returns the hash of its weights."""
    pid, spec = job.start()
    os.waitpid(pid, 0)
    job.gather(spec)
    progress = ControlDirectory(spec.control_dir).progress()
    if progress is None or progress.state != "finished" or progress.weights_hash is None:
        log = Path(spec.control_dir).parent / "log"
        raise SystemExit(f"{job.options}: {progress}\n{log.read_text() if log.exists() else ''}")
    return progress.weights_hash


def killed(job: Job, within_s: float, chance: random.Random) -> bool:
    """Kill it at a moment of the next `within_s`; False if it ended before."""
    pid, spec = job.start()
    time.sleep(chance.uniform(0.0, within_s))
    done, _ = os.waitpid(pid, os.WNOHANG)
    if not done:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    job.gather(spec)
    return not done


@dataclass
class Found:
    """Sums over all programs."""

    kills: int = 0
    steps: int = 0
    wrong: list[str] = field(default_factory=list)


def compare(number: int, seed: int, kills: int, folder: Path, found: Found) -> None:
    """One program: uninterrupted, then killed `kills` times."""
    chance = random.Random(f"{seed}-{number}")
    options, processes = _random_training.options(chance), chance.choice([1, 1, 2])
    beside = (1, 0, 1, 2)[number % 4]
    whole, broken = (
        Job(folder / each, options, processes, beside, number) for each in (f"{number}-whole", f"{number}-broken")
    )
    began_s = time.monotonic()
    weights = finished(whole)
    took_s = time.monotonic() - began_s
    done = jobs = 0
    while done < kills:
        broken.options = {**options, "workers": chance.choice([0, 1, 2, 4])}
        if killed(broken, took_s, chance):
            done += 1
        else:  # it ended: use the remaining kills on the same job, started again
            check(whole, weights, broken, found)
            jobs += 1
            broken = Job(folder / f"{number}-broken-{jobs}", options, processes, beside, number)
    check(whole, weights, broken, found)
    found.kills += done
    text = f"{number}: {options}, {processes} processes, {beside} in flight: {len(found.wrong)} wrong so far"
    print(text, file=sys.stderr)


def check(whole: Job, weights: str, broken: Job, found: Found) -> None:
    """Let the job end and compare everything."""
    own = finished(broken)
    found.steps += len(broken.losses)
    if own != weights or broken.losses != whole.losses or broken.differing:
        found.wrong.append(f"{broken.options} with {broken.processes} processes, {broken.max_in_flight} in flight")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_PROGRAMS} programs")
    parser.add_argument("--json", action="store_true", help="print only the claims, as JSON")
    parser.add_argument("--seed", type=int, default=1, help="of the programs and moments")
    options = parser.parse_args()
    programs, each = (QUICK_PROGRAMS, QUICK_KILLS_EACH) if options.quick else (PROGRAMS, KILLS_EACH)
    found = Found()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(programs):
            compare(number, options.seed, each, Path(folder), found)
    claims = [
        Claim("jobs that differ from an uninterrupted one", len(found.wrong), "jobs", 0),
        Claim("kills", found.kills, "kills", programs * each, least=True),
        Claim("programs", programs, "programs"),
        Claim("steps and ranks compared", found.steps, "losses"),
    ]
    return show("Killed and resumed", claims, as_json=options.json, notes=found.wrong)


if __name__ == "__main__":
    sys.exit(main())
