"""Jobs for trainers: specs in a temporary folder, run in real processes that the nursery forks."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.unit.trainers.simulated_run import JOB, SimulatedRun
from trainers.checkpoint import store
from trainers.control import ControlDirectory, Progress
from trainers.spec import TrainerSpec

HERE = Path(__file__).parent


@dataclass
class Outcome:
    """One finished process of a job."""

    status: str
    progress: Progress
    losses: dict[int, str]
    log: str


@dataclass
class Job:
    """A job whose runs are handed over as the control plane does it: restart from the newest that counts."""

    folder: Path
    nursery: subprocess.Popen[str]
    entry: str = "everything:main"
    steps: int = 40
    job_id: str = "job-1"
    root: Path = field(init=False)
    generation: int = 0

    def __post_init__(self) -> None:
        self.root = self.folder / "checkpoints"

    def spec(self, **changes: object) -> TrainerSpec:
        run = self.folder / f"run-{self.generation}"
        spec = TrainerSpec(
            job_id=self.job_id,
            run_id=run.name,
            generation=self.generation,
            attempt=1,
            checkpoint_root=str(self.root),
            control_dir=str(run / "control"),
            output_dir=str(self.folder / "outputs"),
            workdir=str(HERE / "programs"),
            entry=self.entry,
            steps=self.steps,
            keep=50,
        )
        return replace(spec, **changes)  # type: ignore[arg-type]

    def run(
        self,
        *,
        fence: bool = True,
        spec: dict[str, object] | None = None,
        secrets: dict[str, str] | None = None,
        **args: object,
    ) -> Outcome:
        """Hand the job to a new generation and execute it to its end, whatever that is."""
        self.generation += 1
        if fence:
            start = store.newest_counting(self.root, self.job_id, self.generation)
            store.write_fence(self.root, self.job_id, self.generation, start)
        order = self.spec(args=args, **(spec or {}))
        control = ControlDirectory(order.control_dir)
        run = control.path.parent
        run.mkdir(exist_ok=True)
        path = self.folder / "order.json"
        order.save(path)
        assert self.nursery.stdin is not None
        assert self.nursery.stdout is not None
        self.nursery.stdin.write(json.dumps({"specs": [str(path)], "secrets": secrets or {}}) + "\n")
        self.nursery.stdin.flush()
        status = self.nursery.stdout.readline().strip()
        progress = control.progress()
        assert progress is not None
        return Outcome(status, progress, read_losses(run / "metrics.jsonl"), (run / "log").read_text())

    def require_exact_resumes(self, program: str, kills: Sequence[int], **spec: object) -> Outcome:
        """TrainingLoop `program` once without a pause and once killed at each of these steps, the killed runs with
        `spec`; the bits must be the same. The last run."""
        whole = replace(self, folder=self.folder / "whole")
        whole.folder.mkdir()
        reference = whole.run(program=program)
        assert reference.status == "finished", reference.log
        losses: dict[int, str] = {}
        for step in kills:
            killed = self.run(program=program, kill_after_step=step, spec=spec)
            assert killed.status == "killed 9", killed.log
            losses |= killed.losses
        last = self.run(program=program)
        assert last.status == "finished", last.log
        assert last.progress.start_step > 0
        assert losses | last.losses == reference.losses
        assert last.progress.weights_hash == reference.progress.weights_hash
        return last


def read_losses(path: Path) -> dict[int, str]:
    return {line["step"]: line["loss_hex"] for line in map(json.loads, path.read_text().splitlines())}


@pytest.fixture(scope="session")
def nursery() -> Iterator[subprocess.Popen[str]]:
    yield from opened_nursery()


def opened_nursery(*modules: str) -> Iterator[subprocess.Popen[str]]:
    """One that has loaded these modules as well."""
    command = [sys.executable, str(HERE / "nursery.py"), *modules]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()
    assert process.returncode == 0


@pytest.fixture
def job(tmp_path: Path, nursery: subprocess.Popen[str]) -> Job:
    return Job(tmp_path, nursery)


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, nursery: subprocess.Popen[str]) -> Outcome:
    """The reference that every interrupted run of the program must equal bit for bit."""
    outcome = Job(tmp_path_factory.mktemp("reference"), nursery).run()
    assert outcome.status == "finished", outcome.log
    return outcome


@pytest.fixture
def keeping(job: Job) -> Job:
    """A job that keeps what no state_dict holds."""
    job.entry = "keeping:main"
    return job


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory, nursery: subprocess.Popen[str]) -> dict[str, Outcome]:
    """The references of that program, by the way in which they clear gradients or freeze layers."""
    outcomes = {}
    for way in ("after", "before", "in place", "never", "later", "second", "modes"):
        job = Job(tmp_path_factory.mktemp("kept"), nursery, entry="keeping:main")
        outcomes[way] = job.run(**({"modes": True} if way == "modes" else {"clear": way}))
        assert outcomes[way].status == "finished", outcomes[way].log
    return outcomes


@pytest.fixture
def run(tmp_path):
    store.write_fence(tmp_path / "checkpoints", JOB, 1, None)
    return SimulatedRun(tmp_path)
