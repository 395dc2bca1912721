"""Names of GPUs and machine types in task files of SkyPilot and dstack, and tasks of dstack."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.jobfile.convert.task_file import convert_file
from tests.unit.jobfile.conftest import converted, said


# Mistake 9: machine types, TPUs, halves of a GPU.
def test_machines_are_named_by_their_gpus(project: Path) -> None:
    assert convert_file(project / "instance.yaml").job["resources"]["gpu"] == "A100-40GB:8"
    conversion = convert_file(project / "misspelt.yaml")
    assert conversion.job["resources"]["gpu"] == "T4"
    notes = said(conversion, "resources.accelerators")
    assert "tpu-v3-8" in notes
    assert 'did you mean "H100"?' in notes
    assert "whole" in notes


def test_an_unknown_gpu_does_not_become_a_job_without_gpus(project: Path) -> None:
    conversion = converted(project, "resources: {accelerators: tpu-v3-8}\nrun: python code/train.py\n")
    assert [problem.field for problem in conversion.problems] == ["resources.gpu"]


@pytest.mark.parametrize(
    ("accelerators", "gpu"),
    [
        ("H100:8", "H100:8"),
        ("A100", "A100-40GB"),
        ("{A100-80GB: 4}", "A100-80GB:4"),
        ("{L4:1, A10G:1}", ["L4", "A10G"]),
        ("['L4:1', 'H100:2']", ["L4", "H100:2"]),
        ('"{V100:1, A100:1}"', ["V100", "A100-40GB"]),
    ],
)
def test_accelerators_are_read_in_each_of_their_forms(project: Path, accelerators: str, gpu: object) -> None:
    conversion = converted(project, f"resources: {{accelerators: {accelerators}}}\nrun: python code/train.py\n")
    assert conversion.job["resources"]["gpu"] == gpu


# dstack

DSTACK = """\
type: task
name: trl
python: 3.12
env:
  - HF_TOKEN
  - MODEL=Qwen
  - WANDB_API_KEY=${{ secrets.wandb }}
files:
  - code:code
  - ../corpus:/data
commands:
  - uv pip install trl
  - |
    python code/train.py \\
      --model $MODEL --lr 1e-4
resources:
  gpu: A100:80GB:2
  memory: 200GB..
  cpu: x86:16..32
  shm_size: 16GB
backends: [aws, datacrunch, vastai]
regions: [us-east-1]
spot_policy: auto
max_duration: 3h
max_price: 3.0
retry: {on_events: [no-capacity, interruption], duration: 1h}
"""


def test_a_task_of_dstack_is_converted_too(project: Path) -> None:
    conversion = converted(project, DSTACK, "train.dstack.yml")
    assert conversion.tool == "dstack"
    job = conversion.job
    assert job["train"] == {
        "script": "code/train.py",
        "args": {"model": "Qwen", "lr": 1e-4},
        "setup": "uv pip install trl",
        "python": "3.12",
        "workdir": ".",
        "env": {"MODEL": "Qwen"},
        "secrets": ["HF_TOKEN", "WANDB_API_KEY"],
    }
    assert job["resources"] == {"gpu": "A100-80GB:2", "memory": "200 GiB", "cpu": 16}
    assert job["capacity"] == ["spot", "on_demand"]
    assert job["where"] == {"clouds": ["aws", "verda"], "regions": ["us-east-1"]}
    assert (job["retries"], job["max_duration"]) == (0, "3h")
    assert job["data"] == [{"source": "../corpus", "mount": "/data"}]
    for field in ("python", "resources.shm_size", "backends[2]", "max_price", "retry.duration", "commands"):
        assert said(conversion, field), field
    assert [problem.field for problem in conversion.problems] == ["data[0].mount"]


@pytest.mark.parametrize(
    ("gpu", "asked"),
    [
        ("H100:8", "H100:8"),
        ("A100", ["A100-40GB", "A100-80GB"]),
        ("A100:40GB", "A100-40GB"),
        ("A10G,L4", ["A10G", "L4"]),
        ("nvidia:H200:2", "H200:2"),
        ("{name: [H100], count: 2}", "H100:2"),
        ("H100:1..2", "H100"),
        ("140GB..150GB:2", ["H200:2", "H200-NVL:2"]),
    ],
)
def test_the_gpus_of_dstack_are_read_in_each_of_their_forms(project: Path, gpu: str, asked: object) -> None:
    text = f"type: task\ncommands: [python code/train.py]\nresources: {{gpu: {gpu if '{' in gpu else repr(gpu)}}}\n"
    assert converted(project, text, ".dstack.yml").job["resources"]["gpu"] == asked


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("nodes: .inf", "nodes"),
        ("env: 5", "env"),
        ("resources: A100", "resources"),
        ("spot_policy: maybe", "spot_policy"),
        ("backends: aws", "backends"),
        ("regions: us-east-1", "regions"),
        ("instance_types: p4d", "instance_types"),
        ("retry: often", "retry"),
        ("max_duration: [3]", "max_duration"),
        ("tags: x", "tags"),
        ("working_dir: [a]", "working_dir"),
    ],
)
def test_a_value_of_dstack_that_says_nothing_is_noted(project: Path, line: str, field: str) -> None:
    text = f"type: task\n{line}\ncommands:\n  - python code/train.py\n"
    assert "left out: is n" in said(converted(project, text), field)
