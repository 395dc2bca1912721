"""Laws of converted task files: what is written reads back the same, and no task file makes the converter fail."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import SpecError
from orchestrator.jobfile.convert.task_file import convert_file
from orchestrator.jobfile.convert.write import comment, write_job
from orchestrator.jobfile.source.source_map import read_yaml

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["1e-4", "no", "on", "~", "0o17", "12:30", "a: b", "# x", "- x", "[", "3h", "64 GiB", "=", "<<", "*a", "&a", "y"]
)
scalars = texts | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=8
)


@given(st.dictionaries(texts, values, max_size=4), st.dictionaries(texts, values, max_size=3), st.lists(texts))
def test_what_is_written_reads_back_as_the_same_values(
    job: dict[str, Any], train: dict[str, Any], lines: list[str]
) -> None:
    whole = {**job, "train": {**train, "workdir": "."}}
    tree, _, findings = read_yaml(write_job(whole, lines, lines))
    merges = [finding for finding in findings if finding.field.endswith("<<")]
    assert findings == merges
    assert merges or tree == whole


@given(texts)
def test_a_comment_is_one_line_whatever_it_says(text: str) -> None:
    assert len(comment(text).splitlines()) == 1


words = st.sampled_from(
    [
        "H100:8",
        "A100",
        "tpu-v3-8",
        "aws",
        "k8s/x",
        "aws/us-east-1/z",
        "4+",
        "32",
        "8x",
        "s3://b/k",
        "../x",
        "~/x",
        "24GB..:2",
    ]
)
commands = st.lists(
    st.sampled_from(
        [
            "python",
            "train.py",
            "-m",
            "torchrun",
            "--nproc_per_node",
            "8",
            "--lr",
            "$X",
            "${Y:-1}",
            "&&",
            "|",
            ";",
            "cd",
            "uv",
            "run",
            "export",
            "A=b",
            "'",
            "\\",
            "\n",
            ">",
            "#",
            "pip",
            "accelerate",
            "launch",
            "deepspeed",
            "--x=1",
        ]
    ),
    max_size=8,
).map(" ".join)


def mapped(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = ["source", "name", "mode", "store", "accelerators", "infra", "min", "max", "count", "memory", "strategy"]
    return st.dictionaries(st.sampled_from(names) | texts, inner, max_size=3)


anything = st.recursive(
    words | scalars | commands, lambda inner: st.lists(inner, max_size=3) | mapped(inner), max_leaves=5
)


def fields(names: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=dict.fromkeys(names.split(), anything))


skypilot = st.fixed_dictionaries(
    {"run": commands | anything},
    optional={
        "resources": fields("accelerators cpus memory infra cloud region zone instance_type use_spot any_of ordered")
        | anything,
        **dict.fromkeys(("name", "workdir", "num_nodes", "envs", "secrets", "file_mounts", "setup"), anything),
    },
)
dstack = st.fixed_dictionaries(
    {"type": st.just("task"), "commands": st.lists(commands | anything, max_size=3) | anything},
    optional={
        "resources": fields("gpu cpu memory disk") | anything,
        **dict.fromkeys(
            ["name", "nodes", "env", "backends", "regions", "spot_policy", "max_duration", "retry"], anything
        ),
        **dict.fromkeys(["retry", "files", "repos", "working_dir", "tags", "instance_types", "image"], anything),
    },
)


argument = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=8)


@given(st.lists(argument, min_size=1, max_size=5).filter(lambda words: not words[0].startswith("--")))
def test_quoted_arguments_reach_the_program_word_for_word(words: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "task.yaml")
        path.write_text(yaml.safe_dump({"run": shlex.join(["python", "train.py", *words])}))
        assert convert_file(path).job["train"]["args"] == words


@given(skypilot | dstack)
def test_no_task_file_makes_the_converter_fail(task: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "task.yaml")
        path.write_text(yaml.safe_dump(task, allow_unicode=True), encoding="utf-8")
        try:
            conversion = convert_file(path)
        except SpecError:
            return
        read, _, findings = read_yaml(conversion.text)
        assert findings == []
        assert read == conversion.job
