"""Typical mistakes in a job file: each is found in its place, and its hint is what to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import Problem, SpecError
from orchestrator.jobfile import job_from_mapping, parse_job
from orchestrator.jobfile.places import cloud_meant, region_meant
from orchestrator.model import GpuRequest

GOOD = {"name": "x", "train": {"script": "train.py"}}

# what is written, its field, what the hint says
VALUES = [
    ("where: {clouds: [awss]}", "where.clouds[0]", '"aws"'),
    ("where: {clouds: AWS}", "where.clouds", '"aws"'),
    ("where: {clouds: [gcp, google]}", "where.clouds[1]", '"gcp"'),
    ("where: {clouds: lcoal}", "where.clouds", '"local"'),
    ("where: {regions: [eu-wst-1]}", "where.regions[0]", '"eu-west-1"'),
    ("where: {regions: US-EAST-1}", "where.regions", '"us-east-1"'),
    ("where: {regions: us-east-1a}", "where.regions", '"us-east-1"'),
    ("where: {zones: us-east-1a}", "where.zones", "regions: [us-east-1]"),
    ("where: {region: us-east-1}", "where.region", "regions: [us-east-1]"),
    ("region: us-east-1", "region", "where: {regions: [us-east-1]}"),
    ("cloud: aws", "cloud", "where: {clouds: [aws]}"),
    ("objective: deadline", "objective", '"deadline: 48h"'),
    ("objective: deadline", "objective", '"objective: cheapest"'),
    ("objective: budget", "objective", '"budget: 250 USD"'),
    ("objective: fairness", "objective", '"objective: cheapest"'),
    ("objective: cost", "objective", '"objective: cheapest"'),
    ("objective: throughput", "objective", '"objective: fastest"'),
    ("objective: cost^0.7 * time^0.3", "objective", "write weights, such as {cost: 0.7, time: 0.3}"),
    ("objective: fastst", "objective", '"fastest"'),
    ("train: {entry: train.py, steps: 5}", "train.entry", '"script: train.py"'),
    ("train: {entry: train.py, steps: 5}", "train.entry", '"entry: train:main"'),
    ("train: {entry: 'train.py:main', steps: 5}", "train.entry", '"entry: train:main"'),
    ("train: {entry: train.main, steps: 5}", "train.entry", '"entry: train:main"'),
    ("train: {entry: python train.py --lr 1, steps: 5}", "train.entry", '"script: train.py"'),
    ("train: {entry: main, steps: 5}", "train.entry", '"entry: train:main"'),
    ("train: {script: 'train:main'}", "train.script", '"entry: train:main"'),
    ("train: {script: python train.py --lr 1}", "train.script", '"script: train.py"'),
    ("train: {script: train.py, batch_size: 32}", "train.batch_size", "args: {batch_size: 32}"),
    ("train: {script: train.py, envs: {A: b}}", "train.envs", "env: {"),
    ("resources: {gpu: H10}", "resources.gpu", '"H100"'),
    ("resources: {gpu: 'A100:80GB'}", "resources.gpu", '"A100-80GB"'),
    ("resources: {gpu: '8:H100'}", "resources.gpu", '"H100:8"'),
    ("resources: {gpu: 8}", "resources.gpu", 'name the kind, such as "H100:8"'),
    ("resources: {gpu: '8'}", "resources.gpu", 'name the kind, such as "H100:8"'),
    ("resources: {gpu: 4090}", "resources.gpu", 'write "RTX-4090"'),
    ("resources: {gpu: 8xH100}", "resources.gpu", 'write "H100:8"'),
    ("resources: {gpu: 8 x A100-80GB}", "resources.gpu", 'write "A100-80GB:8"'),
    ("resources: {gpu: [T4, H100 x 4]}", "resources.gpu[1]", 'write "H100:4"'),
    ("resources: {gpu: 2xRTX4090}", "resources.gpu", 'write "RTX4090:2"'),
    ("expected: {gpu: 8xH100, steps_per_s: 2}", "expected.gpu", 'write "H100:8"'),
    ("resources: {gpus: 'H100:8'}", "resources.gpus", "gpu: H100:8"),
    ("resources: {accelerators: 'H100:8'}", "resources.accelerators", "gpu: H100:8"),
    ("resources: {memory: 64}", "resources.memory", '"64 GB"'),
    ("resources: {use_spot: true}", "resources.use_spot", "capacity: [spot]"),
    ("expected: {gpu: A100, steps_per_s: 2}", "expected.gpu", "A100-40GB or A100-80GB"),
    ("capacity: on-demand", "capacity", "on_demand"),
    ("capacity: preemptible", "capacity", "spot"),
    ("capacity: [sopt]", "capacity[0]", '"spot"'),
    ("precision: bfloat16", "precision", "bf16"),
    ("precision: 16", "precision", "fp16 or bf16"),
    ("sharding: zero-3", "sharding", '"zero3"'),
    ("standby: hot", "standby", "warm"),
    ("outputs: [{path: a, keep: newest}]", "outputs[0].keep", "last"),
    ("probe: yes", "probe", "true"),
    ("Deadline: 48h", "Deadline", '"deadline"'),
    ("deadline: 48", "deadline", '"48h"'),
    ("budget: 250 EUR", "budget", '"250 USD"'),
    ("max-duration: 3h", "max-duration", '"max_duration"'),
    ("timeout: 3h", "timeout", "max_duration: 72h"),
    ("image_id: docker:x", "image_id", "delete it"),
]


@pytest.mark.parametrize(("lines", "field", "hint"), VALUES)
def test_a_typical_mistake_is_answered_with_what_to_write(folder: Path, lines: str, field: str, hint: str) -> None:
    problem = only_problem(f"name: x\n{'' if 'train:' in lines else 'train: {script: train.py}'}\n{lines}\n", folder)
    assert (problem.field, problem.line) == (field, 3)
    assert hint in problem.hint


# text, where the mistake begins, what is said
SYNTAX = [
    ("name: x\ntrain:\n\tscript: train.py\n", 3, 1, "use spaces"),
    ("name: x\ntrain:\n  script: train.py\n \tsteps: 5\n", 4, 2, "use spaces"),
    ("name: 'x\ntrain: {script: train.py}\n", 1, 7, "quote is never closed"),
    ("name: 'x\ntrain: {script: 'train.py'}\n", 1, 7, "quote may never be closed"),
    ('name: x\nproject: "a\ntrain:\n  script: "train.py"\n', 2, 10, "quote may never be closed"),
    ("name: 'it's'\n", 1, 11, "inside quotes"),
    ("name: x\nresources:\n  gpu: [A100, H100\nobjective: cheapest\n", 3, 8, '"[" is never closed'),
    ("name: x\ntrain: {script: train.py\nprobe: true\n", 2, 8, '"{" is never closed'),
    ("name: x\ncapacity: ]\n", 2, 11, "bracket"),
    ("name: x\ntrain: {script: t-${matrix.lr}.py, steps: 5}\n", 2, 20, "value in quotes"),
    ("name: x\ntrain: {script: t.py, args: [--lr, ${matrix.lr}]}\n", 2, 37, "value in quotes"),
    ("name: a: b\n", 1, 8, "in quotes"),
    ("name: @x\n", 1, 7, "in quotes"),
    ("name: x\nwhere: {regions: [eu-*, *-west]}\n", 2, 25, "in quotes"),
    ("name: x\nwhere:\n  regions: *\n", 3, 12, "in quotes"),
    ("name x\ntrain: {script: train.py}\n", 1, 1, "no value"),
    ("name: x\ntrain\n", 2, 1, "no value"),
    ("train:\n  script: train.py\n    steps: 5\n", 3, 5, "indent"),
    ("train:\n    script: train.py\n  steps: 5\n", 3, 3, "indent"),
]


@pytest.mark.parametrize(("text", "line", "column", "said"), SYNTAX)
def test_a_mistake_of_yaml_is_shown_where_it_begins(folder: Path, text: str, line: int, column: int, said: str) -> None:
    problem = only_problem(text, folder)
    assert (problem.line, problem.column) == (line, column)
    assert said in str(problem)


def only_problem(text: str, folder: Path) -> Problem:
    with pytest.raises(SpecError) as caught:
        parse_job(text, folder / "job.yaml")
    (problem,) = caught.value.problems
    return problem


def test_a_gpu_without_its_memory_means_every_memory(folder: Path) -> None:
    spec = job_from_mapping({**GOOD, "resources": {"gpu": ["A100:8", "V100"]}}, folder)
    assert spec.resources.gpus == (GpuRequest("A100-40GB", 8), GpuRequest("A100-80GB", 8), GpuRequest("V100", 1))
    with pytest.raises(SpecError, match="twice"):
        job_from_mapping({**GOOD, "resources": {"gpu": ["A100", "A100-80GB"]}}, folder)


@pytest.mark.parametrize("name", ["aws", "local", "fake", "aws*", "my-own-cloud", "???"])
def test_a_cloud_that_may_be_right_is_let_pass(name: str) -> None:
    assert cloud_meant(name) == ""


@pytest.mark.parametrize("name", ["us-east-1", "eu-*", "ap-southeast-99", "zz-central-1", "sim-east", "basement"])
def test_a_region_that_may_be_right_is_let_pass(name: str) -> None:
    assert region_meant(name) == ""


def test_regions_of_a_cloud_of_your_own_are_not_corrected(folder: Path) -> None:
    where = {"clouds": ["my-own-cloud"], "regions": ["eest"]}
    assert job_from_mapping({**GOOD, "where": where}, folder).where.regions == ("eest",)
    with pytest.raises(SpecError, match="east"):
        job_from_mapping({**GOOD, "where": {"regions": ["us-eest-1"]}}, folder)
