"""Job files: all that is wrong is said at once and in its place."""

from __future__ import annotations

from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Any

import pytest

from orchestrator.errors import SpecError
from orchestrator.jobfile import job_from_mapping, parse_job
from tests.unit.jobfile.conftest import one_problem, problems_of


def test_eight_mistakes_are_eight_problems_in_their_places(folder: Path) -> None:
    text = """\
name: gpt small
lables: {a: b}
train:
  entry: train:mian
  args: {lr: 3e-4}
  stpes: 20
  steps: 0
resources:
  gpu: [H100:8, H900:8]
objective: cheepest
deadline: 48
name: again
"""
    path = folder / "job.yaml"
    found = [(p.line, p.column, p.field, p.hint) for p in problems_of(text, folder)]
    deadlines = (
        'write a duration from submission, like "48h", "90 min" or "2d 3h" (units s, min, h, d, w), or a time with its '
        'zone, like "2030-01-31T18:00:00Z" (UTC) or "2030-01-31 18:00+02:00"'
    )
    assert found == [
        (1, 7, "name", 'write it like "name: gpt-small"'),
        (2, 1, "lables", 'did you mean "labels"?'),
        (4, 10, "train.entry", 'did you mean "main"?'),
        (6, 3, "train.stpes", 'did you mean "steps"?'),
        (7, 10, "train.steps", 'write it like "steps: 20000"'),
        (9, 17, "resources.gpu[1]", 'did you mean "H200"?'),
        (10, 12, "objective", 'did you mean "cheapest"?'),
        (11, 11, "deadline", deadlines),
        (12, 1, "name", "keep one of the two"),
    ]
    with pytest.raises(SpecError) as caught:
        parse_job(text, path)
    lines = str(caught.value).splitlines()
    assert lines[1] == f'{path}:2:1: lables: unknown field (did you mean "labels"?)'
    assert lines[5] == f'{path}:9:17: resources.gpu[1]: unknown GPU "H900" (did you mean "H200"?)'


@pytest.mark.parametrize(
    ("lines", "field", "message"),
    [
        ("train: {}", "train", "has neither entry nor script"),
        ("train: {steps: 5}", "train", "has neither entry nor script"),
        ("train:", "train", "is required"),
        ("train: 5", "train", "must be a mapping of fields, not 5"),
        ("train: {entry: 'train:main', script: train.py, steps: 5}", "train", "has both entry and script"),
        ("train: {entry: 'train:main'}", "train", "has neither steps nor epochs"),
        ("train: {entry: 'train:main', steps: 5, epochs: 5}", "train.epochs", "cannot be combined with steps"),
        ("train: {entry: train.main, steps: 5}", "train.entry", "is not of the form"),
        ("train: {entry: 'train:main', steps: 5, workdir: nowhere}", "train.workdir", "does not exist"),
        ("train: {entry: 'train:main', steps: 5.5}", "train.steps", "must be a whole number"),
        ("train: {entry: 'train:main', steps: true}", "train.steps", "must be a whole number"),
        ("train: {entry: 'train:main', steps: 5, args: [1]}", "train.args", "by name"),
        ("train: {script: train.py, args: 5}", "train.args", "must be a mapping"),
        ("train: {script: train.py, args: [a, [b]]}", "train.args", "must be text, not a list"),
        ("train: {script: train.py, args: [a, ~]}", "train.args", "must be text, not null"),
        ("train: {entry: 'train:main', steps: 5, args: {a: {b: {c: 1}}}}", "train.args", "nested deeper"),
        ("train: {entry: 'train:main', steps: 5, args: {steps: 6}}", "train.args.steps", "is 6, but train.steps is 5"),
        ("train: {script: train.py, epochs: 5, args: {epochs: x}}", "train.args.epochs", "but train.epochs is 5"),
        ("train: {entry: 'train:main', steps: 5, args: {a: .inf}}", "train.args.a", "must be a finite number"),
        ("train: {entry: 'train:main', steps: 5, env: {A B: c}}", "train.env.A B", "must be a name such as"),
        ("train: {entry: 'train:main', steps: 5, env: {A: 1.10}}", "train.env.A", "must be text"),
        ("train: {entry: 'train:main', steps: 5, env: {RANK: 1}}", "train.env.RANK", "set by Tradewind itself"),
        ("train: {entry: 'train:main', steps: 5, env: {A: x}, secrets: [A]}", "train.secrets[0]", "also set in env"),
        ("train: {script: train.py, requirements: nowhere.txt}", "train.requirements", "there is no file"),
        ("train: {script: train.py, requirements: [tqdm, -r x]}", "train.requirements", "is not a package"),
        ('train: {script: train.py, requirements: ["tqdm\\n-r x"]}', "train.requirements", "is not a package"),
        ("train: {script: train.py, requirements: ../other.txt}", "train.requirements", "inside train.workdir"),
        ("train: {script: train.py, requirements: /etc/hosts}", "train.requirements", "inside train.workdir"),
        ("train: {script: train.py, setup: ' '}", "train.setup", "must not be empty"),
        (f"train: {{script: train.py, setup: 'echo {'x' * 100_000}'}}", "train.setup", "longer than 100000 bytes"),
        ("train: {script: train.py, requirements: 5}", "train.requirements", "a path or a list"),
        ("train: {script: train.py, python: 3.12}", "train.python", "must be text"),
        ("train: {script: train.py, python: '3.12.1'}", "train.python", "is not a Python version"),
        ("train: {script: train.py, python: '3.9'}", "train.python", "too old"),
        ("setup: pip install x", "setup", "unknown field"),
        ("name:", "name", "is required"),
        ("name: ''", "name", "is not a valid name"),
        ("name: -x", "name", "is not a valid name"),
        ("name: 5", "name", "must be text, not 5"),
        ("name: [x]", "name", "must be text, not a list"),
        ("name: \N{GRINNING FACE}", "name", "is not a valid name"),
        ('name: "a\\0b"', "name", "contains a NUL character"),
        ('name: "\\ud800"', "name", "surrogate"),
        ("name: !!python/name:os.system", "name", "tags"),
        ("train: {script: train.py, args: {a: &a [*a]}}", "train.args.a[0]", "nested too deeply"),
        ("<<: {name: x}\nname: x", "<<", "merge keys"),
        ("? [a]\n: b", "", "plain text"),
        ("resources: {gpu: T4, gpu_memory: 40 GB..}", "resources.gpu_memory", "cannot be combined with gpu"),
        ("resources: {gpu: []}", "resources.gpu", "must name at least one"),
        ("resources: {gpu: [T4, t4]}", "resources.gpu", "twice"),
        ("resources: {gpu: 'T4:0'}", "resources.gpu", "count"),
        ("resources: {gpu: 5}", "resources.gpu", "5 is not a GPU with a count"),
        ("resources: {gpu: true}", "resources.gpu", "must be text"),
        ("resources: {gpu_memory: 80..40 GB}", "resources.gpu_memory", "is empty"),
        ("resources: {cpu: -1}", "resources.cpu", "must be a whole number from 1 to 100,000"),
        ("resources: {nodes: 0}", "resources.nodes", "must be a whole number from 1 to 10,000"),
        ("resources: {memory: 64}", "resources.memory", "is not a size"),
        ("resources: [T4]", "resources", "must be a mapping of fields"),
        ("objective: 5", "objective", "objective"),
        ("objective: {cost: 1}", "objective.time", "is required"),
        ("objective: {cost: -1, time: 1}", "objective.cost", "must be a number, 0 or more"),
        ("objective: {cost: 0, time: 0}", "objective", "both 0"),
        ("deadline: 0h", "deadline", "must be more than 0"),
        ("deadline: 2030-01-31T18:00:00", "deadline", "has no time zone"),
        ("budget: 0", "budget", "must be more than 0"),
        ("budget: -5 USD", "budget", "must be more than 0"),
        ("budget: 5 EUR", "budget", "is not an amount of money"),
        ("capacity: on-demand", "capacity", "is not one of spot, on_demand"),
        ("where: {regions: 'eu west'}", "where.regions", "pattern"),
        ("checkpoint: {keep: 0}", "checkpoint.keep", "must be a whole number from 1 to 10,000"),
        ("reproducible: {seed: 4294967296}", "reproducible.seed", "must be a whole number from 0 to 4,294,967,295"),
        ("retries: '3'", "retries", 'must be a whole number, not "3"'),
        ("checkpoint: {max_overhead: 3.5}", "checkpoint.max_overhead", "at most 100%"),
        ("checkpoint: {max_upload: 50}", "checkpoint.max_upload", "is not a bandwidth"),
        ("checkpoint: {max_upload: 50 MB}", "checkpoint.max_upload", "is not a bandwidth"),
        ("checkpoint: {max_upload: 50 Mbit/s}", "checkpoint.max_upload", "is not a bandwidth"),
        ("checkpoint: {max_upload: 50 Mb/s}", "checkpoint.max_upload", "may mean bits"),
        ("checkpoint: {max_upload: 5 B/s}", "checkpoint.max_upload", "is less than 1 kB/s"),
        ("checkpoint: {to: train.py}", "checkpoint.to", "is a file, not a folder"),
        ("checkpoint: {to: 's3://x/y'}", "checkpoint.to", "is not the URL of a bucket"),
        ("checkpoint: {to: 's3://bucket/../y'}", "checkpoint.to", "is not the URL of a bucket"),
        ("checkpoint: {to: 'ftp://x/y'}", "checkpoint.to", "ftp:// is not supported"),
        ("data: [{source: 'ftp://x/y', mount: /data}]", "data[0].source", "ftp:// is not supported"),
        ("data: [{source: nowhere, mount: /data}]", "data[0].source", "does not exist"),
        ("data: [{source: .}]", "data[0].mount", "is required"),
        ("data: {source: ., mount: /x}", "data", "must be a list, not a mapping"),
        ("outputs: [{path: ../secrets}]", "outputs[0].path", "inside the job's output folder"),
        ("outputs: [{path: /etc}]", "outputs[0].path", "inside the job's output folder"),
        ("outputs: [{path: a, keep: newest}]", "outputs[0].keep", "is not one of all, last, best"),
        ("standby: hot", "standby", "is not one of none, warm"),
        ("probe: yes", "probe", "must be true or false"),
        ("precision: bfloat16", "precision", "is not one of fp32, tf32, fp16, bf16, fp8"),
        ("precision: 16", "precision", "is not one of fp32, tf32, fp16, bf16, fp8"),
        ("precision: [bf16]", "precision", "is not one of fp32, tf32, fp16, bf16, fp8"),
        ("precision: BF16", "precision", "is not one of fp32, tf32, fp16, bf16, fp8"),
        ("sharding: true", "sharding", "is not one of none, zero1, zero2, zero3, fsdp"),
        ("sharding: {zero: 3}", "sharding", "is not one of none, zero1, zero2, zero3, fsdp"),
        ("retries: -1", "retries", "must be a whole number from 0 to 1,000"),
        ("max_duration: 5", "max_duration", "is not a duration"),
        ("labels: {a: [b]}", "labels.a", "must be text"),
        ("steps: 5", "steps", "unknown field"),
        ("capacity: cheap", "capacity", '"cheap" is not one of spot, on_demand'),
        ("capacity: [cheap]", "capacity[0]", '"cheap" is not one of spot, on_demand'),
        ("resources: {gpu: H900}", "resources.gpu", 'unknown GPU "H900"'),
        ("where: {clouds: a/b}", "where.clouds", "is not a valid name or pattern"),
    ],
)
@pytest.mark.parametrize("submitting", [False, True])
def test_each_mistake_is_one_problem_at_its_field(
    folder: Path, lines: str, field: str, message: str, submitting: bool
) -> None:
    problem = one_problem(lines, folder, submitting=submitting)
    assert problem.field == field
    assert message in problem.message
    assert problem.line > 0
    assert problem.column > 0


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("retries: -1", 'write it like "retries: 5"'),
        ("retries: '3'", "write 3, without quotes"),
        ("retries: three", "write only digits"),
        ("checkpoint: {keep: 0}", 'write it like "keep: 3"'),
        ("resources: {capacity: [spot]}", 'it belongs at the top level, such as "capacity: [spot, on_demand]"'),
        ("train: {entry: 'train:main', steps: 1, gpu: H100}", 'it belongs in resources, such as "resources: {gpu: '),
        ("checkpoint: {steps_per_s: 2}", 'it belongs in expected, such as "expected: {steps_per_s: '),
        ("gpu_memory: 40 GB", 'it belongs in resources, such as "resources: {gpu_memory: '),
    ],
)
def test_a_field_of_another_section_is_reported_with_its_section(folder: Path, text: str, hint: str) -> None:
    assert one_problem(text, folder).hint.startswith(hint)


def test_an_unknown_field_that_another_section_has_is_pointed_there(folder: Path) -> None:
    assert one_problem("steps: 5", folder).hint == 'it belongs in train, such as "train: {steps: 20000}"'
    assert "cost, time" in one_problem("objective: {cost: 1, time: 1, zzz: 1}", folder).hint


def test_the_remedy_for_a_source_of_data_is_none_that_is_refused_in_turn(folder: Path) -> None:
    hint = one_problem("data: [{source: 'ftp://x/y', mount: /data}]", folder).hint
    assert hint == "copy the data to this machine and pass its path in train.args"
    assert "s3://" in one_problem("checkpoint: {to: 'ftp://x/y'}", folder).hint


def test_a_deadline_in_the_past_is_refused_when_the_time_is_known(folder: Path) -> None:
    lines = "deadline: 1970-01-02T00:00:00Z"
    assert "past" in one_problem(lines, folder, now_ms=86_400_000).message
    text = f"name: x\ntrain: {{script: train.py}}\n{lines}\n"
    assert parse_job(text, folder / "job.yaml", now_ms=86_399_999).deadline_at_ms == 86_400_000


def test_no_value_of_a_secret_or_variable_is_ever_repeated(folder: Path) -> None:
    for lines in (
        "train: {entry: 'train:main', steps: 5, secrets: [KEY=hunter2]}",
        "train: {entry: 'train:main', steps: 5, secrets: [{KEY: hunter2}]}",
        "train: {entry: 'train:main', steps: 5, secrets: {KEY: hunter2}}",
        "train: {entry: 'train:main', steps: 5, env: {KEY: [hunter2]}}",
    ):
        assert "hunter2" not in str(one_problem(lines, folder))


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("", 1, 1, "the file is empty"),
        ("# nothing\n", 1, 1, "the file is empty"),
        ("- a\n", 1, 1, "must be a mapping of fields"),
        ("name: x\ntrain: [\n", 2, 8, "never closed"),
        ("name: x\n\ttrain: 5\n", 2, 1, "not valid YAML"),
        ("name: x\n---\nname: y\n", 2, 1, "one document"),
        ("name: 'x\n", 1, 7, "never closed"),
        ("name: \x01\n", 1, 7, "character U+0001 is not allowed"),
        ('name: "\\UFFFFFFFF"\n', 1, 1, "not valid YAML"),
        ("[" * 5000, 1, 1, "nested too deeply"),
        ("a: [" + "x, " * 30_000 + "]", 1, 59_999, "too large (more than 20,000 values)"),
        ("name: *x\n", 1, 7, "alias"),
    ],
)
def test_what_is_not_a_job_file_at_all_has_one_problem(
    folder: Path, text: str, line: int, column: int, message: str
) -> None:
    (problem,) = problems_of(text, folder)
    assert (problem.line, problem.column) == (line, column)
    assert message in problem.message


def test_a_file_that_is_nested_too_deeply_says_what_to_do(folder: Path) -> None:
    (problem,) = problems_of("[" * 5000, folder)
    assert problem.hint == "use fewer levels of lists and mappings"


def test_arguments_as_one_line_of_text_get_the_list_to_write(folder: Path) -> None:
    assert one_problem("train: {script: train.py, args: --lr 3e-4}", folder).hint == "write [--lr, 3e-4]"


@pytest.mark.parametrize(
    ("count", "line", "words"),
    [(65, 4, "at most 64"), (1001, 3, "at most 1,000"), (100_000, 16_728, "larger than")],
)
def test_too_many_labels_are_refused_with_the_line_and_the_field(
    count: int, line: int, words: str, tmp_path: Path
) -> None:
    text = "name: a\ntrain: {script: train.py}\nlabels:\n" + "".join(f"  k{i}: v{i}\n" for i in range(count))
    (tmp_path / "train.py").touch()
    with pytest.raises(SpecError) as caught:
        parse_job(text, tmp_path / "job.yaml")
    (problem,) = caught.value.problems
    assert (problem.line, problem.field, problem.hint != "") == (line, "labels", True)
    assert words in problem.message


@pytest.mark.parametrize("field", ["labels", "train.args", "train.env", "train.secrets", "data", "outputs"])
def test_no_list_or_mapping_of_a_job_file_has_more_than_a_thousand_entries(field: str, tmp_path: Path) -> None:
    section, _, name = field.rpartition(".")
    many = {f"K{i}": "v" for i in range(1001)} if field in ("labels", "train.args", "train.env") else ["x"] * 1001
    job: dict[str, Any] = {"name": "a", "train": {"script": "train.py"}}
    (job[section] if section else job)[name] = many
    (tmp_path / "train.py").touch()
    with pytest.raises(SpecError) as caught:
        job_from_mapping(job, tmp_path)
    assert [(each.field, "at most 1,000" in each.message) for each in caught.value.problems] == [(field, True)]


def test_texts_of_a_job_file_have_a_longest_length(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    job = {"name": "a", "train": {"script": "train.py", "env": {"A": "x" * 131_073}}, "labels": {"a": "x" * 257}}
    with pytest.raises(SpecError) as caught:
        job_from_mapping(job, tmp_path)
    assert {each.field: "is longer than" in each.message for each in caught.value.problems} == {
        "train.env.A": True,
        "labels.a": True,
    }


def test_values_of_a_groups_matrix_have_no_meaning_in_a_job_by_itself(folder: Path) -> None:
    labels = 'x: "${matrix.x}", y: "${HOME} ${max.x} ${submatrix.x}", z: "${matrix.x} ${matrix.x}"'
    lines = f'labels: {{{labels}}}\nretries: "${{matrx.n}}"'
    found = problems_of(f"name: x\ntrain: {{entry: 'train:main', steps: 5}}\n{lines}\n", folder)
    assert [(each.field, each.line) for each in found] == [("labels.x", 3), ("labels.z", 3), ("retries", 4)]
    assert all("submit the group file" in each.hint for each in found)


def test_a_mapping_from_python_is_refused_where_it_has_values_of_a_matrix(folder: Path) -> None:
    job = {
        "name": "x",
        "train": {"entry": "train:main", "steps": 5, "args": MappingProxyType({"lr": "${matrix.lr}"})},
        "outputs": (PurePath("out/${matrx.n}"),),
        "labels": {"home": "${HOME}"},
    }
    with pytest.raises(SpecError) as caught:
        job_from_mapping(job, folder)
    reported = [(each.field, each.message.split(" stands")[0]) for each in caught.value.problems]
    assert reported == [("train.args.lr", '"${matrix.lr}"'), ("outputs[0]", '"${matrx.n}"')]
    assert all("submit the group file" in each.hint for each in caught.value.problems)


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("${matrix.l-r}/x", '"${matrix.l-r}"'),
        ("${matrx.lr or 3}", '"${matrx.lr or 3}"'),
        ("${{ matrix.lr | int }}", '"${{ matrix.lr | int }}"'),
        ("{n: ${matrix.lr}}", '"${matrix.lr}"'),
        ("${matrix.lr/x and ${HOME}", '"${matrix.lr/x"'),
        ("${matrix.lr-x is open", '"${matrix.lr-x"'),
        ("${matrix. ", '"${matrix."'),
        (f"${{matrix.{'l-' * 50}}}", f'"${{matrix.{"l-" * 23}..."'),
    ],
)
def test_a_placeholder_is_quoted_as_it_is_written(folder: Path, text: str, quoted: str) -> None:
    with pytest.raises(SpecError) as caught:
        job_from_mapping({"name": "x", "train": {"script": "train.py"}, "labels": {"x": text}}, folder)
    assert caught.value.problems[0].message == f"{quoted} stands for a value of a group's matrix"


@pytest.mark.parametrize("name", ["job_01JD3K5M7P9R2T4", "JOB_01jd3k5m7p9r2t4"])
def test_a_job_cannot_be_called_as_an_id(folder: Path, name: str) -> None:
    found = one_problem(f"name: {name}", folder)
    assert (found.field, found.message) == ("name", f'"{name}" looks like the id of a job')
    assert found.hint
    for fine in ("job_1", "group_01JD3K5M7P9R2T4"):
        parse_job(f"name: {fine}\ntrain: {{entry: 'train:main', steps: 5}}\n", folder / "job.yaml")
