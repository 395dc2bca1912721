"""A folder with code to train, the job file of the architecture, and what is said about files of others."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import Problem, SpecError
from orchestrator.jobfile import parse_job
from orchestrator.jobfile.convert.task_file import Conversion, convert_file

FILES = Path(__file__).parent / "task_files"

PROGRAMS = {
    "train.py": "import trainers\n\n\ndef main():\n    trainers.attach()\n\n\nmain()\n",
    "finetune.py": "from transformers import HfArgumentParser\n\nparser = HfArgumentParser()\n",
    "pkg/cli.py": "def main(layers: str, version: str, steps: int = 1) -> None:\n    pass\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with train.py, which defines main() and raises when it is imported."""
    (tmp_path / "train.py").write_text(
        "def main(layers=1, lr=0.1, **others):\n    pass\n\n\nraise RuntimeError('was imported')\n"
    )
    return tmp_path


@pytest.fixture
def whole() -> str:
    return """\
name: gpt-small
project: research
labels: {cost-center: ml-42}
train:
  entry: train:main
  args: {layers: 4, lr: 3.0e-4}
  workdir: .
  env: {HF_HOME: /data/hf}
  secrets: [WANDB_API_KEY]
  steps: 20000
data: [{source: s3://bucket/set, mount: /data, size: 120 GB}]
outputs: [{path: runs/, keep: best}]
resources:
  gpu: [H100:8, A100-80GB:8]
  memory: 64 GB
  nodes: 1
objective: cheapest
deadline: 48h
budget: 250 USD
capacity: [spot, on_demand]
where: {clouds: [aws, gcp], regions: ["eu-*"]}
checkpoint: {to: s3://bucket/ck, keep: 3, max_overhead: 3.5%, max_upload: 50 MB/s}
reproducible: {threads: 1, deterministic: true}
standby: none
probe: true
retries: 5
max_duration: 72h
precision: bf16
sharding: fsdp
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The ten task files, beside the code that they name."""
    folder = Path(shutil.copytree(FILES, tmp_path / "project"))
    for name, source in PROGRAMS.items():
        (folder / "code" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "code" / name).write_text(source)
    (tmp_path / "corpus").mkdir()
    return folder


def said(conversion: Conversion, field: str) -> str:
    """The notes about a field, one per line."""
    return "\n".join(str(note) for note in conversion.notes if note.field == field)


def converted(folder: Path, text: str, name: str = "task.yaml") -> Conversion:
    (folder / name).write_text(text)
    return convert_file(folder / name)


def problems_of(text: str, folder: Path, **options: Any) -> tuple[Problem, ...]:
    with pytest.raises(SpecError) as caught:
        parse_job(text, folder / "job.yaml", **options)
    assert caught.value.exit_code == 3
    return caught.value.problems


def one_problem(lines: str, folder: Path, **options: Any) -> Problem:
    """The only problem of a job that is right but for these top-level lines."""
    train = "" if "train:" in lines else "train: {entry: 'train:main', steps: 5}\n"
    (problem,) = problems_of(f"{'' if 'name:' in lines else 'name: x'}\n{train}{lines}\n", folder, **options)
    return problem
