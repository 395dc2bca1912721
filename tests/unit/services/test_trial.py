"""A few steps on the submitter's machine: whether a job fits it, and what comes of one that does not end."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.installation import Installation
from orchestrator.model import GpuRequest, JobSpec, Resources, TrainSpec
from orchestrator.services.speed import trial
from orchestrator.services.speed.trial import try_here, unfit


def job(folder: Path, resources: Resources | None = None, steps: int | None = 1000) -> JobSpec:
    train = TrainSpec("train:main", None, {}, str(folder), {}, (), steps, None)
    return JobSpec("small", train, resources=resources or Resources())


def program(folder: Path, body: str) -> None:
    (folder / "train.py").write_text(f"def main(steps):\n    {body}\n")


@pytest.mark.parametrize(
    ("resources", "why"),
    [
        (Resources(gpus=(GpuRequest("H100", 8),)), "it needs several GPUs or machines"),
        (Resources(nodes=2), "it needs several GPUs or machines"),
        (Resources(gpu_memory_bytes=(10**15, None)), "it needs 1000000 GB of memory; a trial may use "),
        (Resources(memory_bytes=10**15), "it needs 1000000 GB of memory; a trial may use "),
        (Resources(gpus=(GpuRequest("H100", 1),)), ""),
    ],
)
def test_what_asks_for_more_than_this_machine_has_is_not_tried(tmp_path: Path, resources: Resources, why: str) -> None:
    said = unfit(job(tmp_path, resources))
    assert said.startswith(why)
    assert bool(said) is bool(why)


def test_a_job_of_fewer_steps_than_a_trial_takes_is_not_tried(tmp_path: Path) -> None:
    assert unfit(job(tmp_path, steps=3)) == "it has fewer than 6 steps"


def test_a_program_that_takes_too_much_memory_tells_nothing(
    installation: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "memory_limit_bytes", lambda: 2 << 30)
    program(tmp_path, "kept = bytearray(4 << 30)")
    tried = try_here(installation, job(tmp_path))
    assert (tried.why, tried.failed) == ("MemoryError", False)


def test_a_program_that_fails_by_itself_is_called_so(installation: Installation, tmp_path: Path) -> None:
    program(tmp_path, "raise ValueError('mat1 and mat2 do not fit')")
    tried = try_here(installation, job(tmp_path))
    assert (tried.why, tried.failed) == ("ValueError: mat1 and mat2 do not fit", True)
