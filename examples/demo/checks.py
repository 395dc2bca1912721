"""The demo's checks: jobs finished, results bit-identical, sums exact, no process left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.installation import Installation
from orchestrator.model import JobSpec
from providers.local import LocalProvider
from trainers.control import ControlDirectory
from trainers.spec import TrainerSpec


@dataclass
class Reference:
    """The same training without interruption, at full speed, in a separate process."""

    name: str
    folder: Path
    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, spec: JobSpec, folder: Path) -> Reference:
        """Start it at low priority, next to the demo."""
        run = folder / spec.name
        (run / "control").mkdir(parents=True)
        trainer = TrainerSpec(
            job_id=spec.name,
            run_id="reference",
            generation=1,
            attempt=1,
            checkpoint_root=str(folder / "checkpoints"),
            control_dir=str(run / "control"),
            output_dir=str(run / "outputs"),
            workdir=spec.train.workdir,
            entry=spec.train.entry,
            script=spec.train.script,
            args=dict(spec.train.args),
            env=dict(spec.train.env),
            steps=spec.train.steps,
            epochs=spec.train.epochs,
            threads=spec.reproducible.threads,
            deterministic=spec.reproducible.deterministic,
            seed=spec.reproducible.seed,
        )
        trainer.save(run / "spec.json")
        with (run / "log").open("ab") as log:
            process = subprocess.Popen(
                ["nice", "-n", "10", sys.executable, "-m", "trainers.runner", str(run / "spec.json"), "--standalone"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        return cls(spec.name, run, process)

    def losses(self) -> dict[int, str]:
        return {step: loss for step, loss in _losses(self.folder / "metrics.jsonl")}

    def weights_hash(self) -> str | None:
        progress = ControlDirectory(self.folder / "control").progress()
        return progress.weights_hash if progress is not None else None


def problems(installation: Installation, references: list[Reference]) -> Iterator[str]:
    """A sentence for each check that failed."""
    with installation.store.read() as tx:
        jobs = {job.name: job for job in tx.jobs()}
        for reference in references:
            job = jobs[reference.name]
            runs = tx.runs(job_id=job.id)
            facts = tx.job_facts(job.id)
            if job.state != "finished":
                yield f"{job.name} is {job.state}: {facts.error or 'no error was recorded'}"
                continue
            expected = reference.losses()
            compared = set()
            for run in runs:
                for step, loss in _losses(installation.run_dir(run.id) / "metrics.jsonl"):
                    compared.add(step)
                    if expected.get(step) != loss:
                        alone = f"{expected.get(step)} without interruption"
                        yield f"{job.name}: the loss of step {step} is {loss} in {run.id}, {alone}"
                        break
            if compared != set(expected):
                yield f"{job.name}: {len(set(expected) - compared)} steps were never trained"
            if facts.weights_hash is None or facts.weights_hash != reference.weights_hash():
                yield f"{job.name}: the final weights differ from the reference's"
            entries = tx.entries(job_id=job.id)
            total = tx.total_nano_usd(job_id=job.id)
            if sum(entry.amount_nano_usd for entry in entries) != total:
                yield f"{job.name}: its entries do not sum to its total"
            cloud = installation.providers["local"]
            assert isinstance(cloud, LocalProvider)
            billed = sum(cloud.bill_nano_usd(run.instance_id) for run in runs if run.instance_id is not None)
            if billed != total:
                yield f"{job.name}: the ledger says {total} nano-USD, the cloud billed {billed}"
    yield from left_behind(installation)


def left_behind(installation: Installation) -> Iterator[str]:
    """A sentence for each process of the demo's instances and control plane that is still alive."""
    cloud = installation.providers["local"]
    assert isinstance(cloud, LocalProvider)
    for pid in cloud.processes_left():
        yield f"process {pid} of an instance was left behind"
    marker = f"TRADEWIND_STATE_DIR={installation.state_dir}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if marker in (entry / "environ").read_bytes().split(b"\0"):
                    yield f"process {entry.name} ({(entry / 'comm').read_text().strip()}) was left behind"
            except OSError:
                continue


def _losses(path: Path) -> Iterator[tuple[int, str]]:
    """(step, loss as hexadecimal float) of one run; a line truncated by a kill is skipped."""
    if not path.exists():
        return
    for line in path.read_text().splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        yield row["step"], row["loss_hex"]
