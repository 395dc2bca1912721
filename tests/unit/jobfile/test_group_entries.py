"""Entries of group files: whose paths they are, what a matrix fills, and what mistakes in them are reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import Problem, SpecError
from orchestrator.jobfile.group import parse_group
from orchestrator.jobfile.group.paths import PATHS
from orchestrator.jobfile.schema import JobFile
from orchestrator.model import GroupSpec, JobSpec

TRAIN = "train: {entry: 'train:main', steps: 5}"


def parsed(text: str, folder: Path, **options: Any) -> GroupSpec:
    return parse_group(text, folder / "group.yaml", **options)


def problems(text: str, folder: Path) -> tuple[Problem, ...]:
    with pytest.raises(SpecError) as caught:
        parsed(text, folder)
    return caught.value.problems


def problem(text: str, folder: Path) -> Problem:
    (only,) = problems(text, folder)
    return only


@pytest.fixture
def below(folder: Path) -> Path:
    """A folder `sub` with its own code and a job file of it, beside the group file."""
    (folder / "sub").mkdir()
    (folder / "sub" / "train.py").write_text("def main(**given):\n    pass\n")
    (folder / "sub" / "set").mkdir()
    (folder / "sub" / "k.yaml").write_text(f"name: k\n{TRAIN}\n")
    return folder / "sub"


def only_job(text: str, folder: Path) -> JobSpec:
    (job,) = parsed(text, folder).jobs
    return job.spec


@pytest.mark.parametrize(
    ("group", "workdir"),
    [
        ("jobs: [{file: sub/k.yaml}]", "sub"),
        ("jobs: [{file: sub/k.yaml, train: {workdir: .}}]", "."),
        ("jobs: [{file: sub/k.yaml, train: {workdir: sub}}]", "sub"),
        ("defaults: {train: {workdir: .}}\njobs: [{file: sub/k.yaml}]", "."),
        ("defaults: {train: {workdir: ./sub}}\njobs: [{file: sub/k.yaml}]", "sub"),
        ("defaults: {train: {workdir: sub}}\njobs: [{name: a, train: {entry: 'train:main', steps: 3}}]", "sub"),
        ("jobs: [{file: sub/k.yaml, train: {workdir: '${matrix.at}'}, matrix: {at: [sub]}}]", "sub"),
        ("jobs: [{file: sub/k.yaml, train: {workdir: './${matrix.at}'}, matrix: {at: [.]}}]", "."),
    ],
)
def test_a_path_is_relative_to_the_file_that_it_was_written_in(
    folder: Path, below: Path, group: str, workdir: str
) -> None:
    assert only_job(f"group: g\n{group}\n", folder).train.workdir == str((folder / workdir).resolve())


def test_a_path_of_the_job_file_itself_is_relative_to_that(folder: Path, below: Path) -> None:
    lines = "data: [{source: set, mount: /data}]\ncheckpoint: {to: ck}\n"
    (below / "k.yaml").write_text("name: k\ntrain: {entry: 'train:main', steps: 5, workdir: .}\n" + lines)
    spec = only_job("group: g\njobs: [{file: sub/k.yaml, checkpoint: {keep: 2}}]\n", folder)
    assert spec.train.workdir == str(below)
    assert (spec.data[0].source, spec.checkpoint.to) == (str(below / "set"), str(below / "ck"))
    text = "group: g\njobs: [{file: sub/k.yaml, checkpoint: {to: ck}, data: [{source: sub, mount: /data}]}]\n"
    spec = only_job(text, folder)
    assert spec.train.workdir == str(below)
    assert (spec.data[0].source, spec.checkpoint.to) == (str(below), str(folder / "ck"))


def test_urls_and_the_home_folder_stay_what_they_are(folder: Path, below: Path) -> None:
    spec = only_job("group: g\njobs: [{file: sub/k.yaml, checkpoint: {to: 's3://bucket/ck'}}]\n", folder)
    assert spec.checkpoint.to == "s3://bucket/ck"
    spec = only_job("group: g\njobs: [{file: sub/k.yaml, checkpoint: {to: ~/ck}}]\n", folder)
    assert spec.checkpoint.to == str(Path("~/ck").expanduser())


def test_a_folder_that_is_missing_is_reported_where_it_was_written(folder: Path, below: Path) -> None:
    found = problem("group: g\njobs:\n  - file: sub/k.yaml\n    train: {workdir: none}\n", folder)
    assert (Path(found.path).name, found.line, found.field) == ("group.yaml", 4, "jobs[0].train.workdir")
    assert str(folder / "none") in found.message


def test_each_path_of_a_job_file_is_known() -> None:
    """Fields whose kind is a path, but for those below `workdir` and below the job's output folder."""
    below_others = {("train", "script"), ("train", "requirements"), ("outputs", "path"), ("data", "mount")}
    paths = {(name, *rest) for name, *rest in _kinds(JobFile.model_json_schema())} - below_others
    assert paths == {tuple(part for part in each if isinstance(part, str)) for each in PATHS}


def _kinds(schema: dict[str, Any]) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name, about in schema["properties"].items():
        refs = [each.rsplit("/", 1)[1] for each in _refs(about)]
        if "path" in about.get("kind", "").split(", ")[0].split():
            found.append((name,))
        for ref in refs:
            for inner, deeper in schema["$defs"][ref].get("properties", {}).items():
                if "path" in deeper.get("kind", "").split(", ")[0].split():
                    found.append((name, inner))
    return found


def _refs(value: object) -> list[str]:
    if isinstance(value, dict):
        return [each for key, item in value.items() for each in ([item] if key == "$ref" else _refs(item))]
    return [each for item in value for each in _refs(item)] if isinstance(value, list) else []


def test_a_matrix_fills_the_name_and_what_it_leaves_out_is_added(folder: Path) -> None:
    text = "group: g\njobs:\n  - {name: 'm-${matrix.x}', matrix: {x: [1, a/b], y: [3]}, " + TRAIN + "}\n"
    assert [each.spec.name for each in parsed(text, folder).jobs] == ["m-1-y3", "m-a_b-y3"]
    text = "group: g\njobs:\n  - {name: '${matrix.x}', matrix: {x: [1e-1, 0.2]}, " + TRAIN + "}\n"
    assert [each.spec.name for each in parsed(text, folder).jobs] == ["1e-1", "0.2"]


def test_names_that_a_matrix_makes_equal_are_refused(folder: Path) -> None:
    text = "group: g\njobs:\n  - {name: 'm${matrix.x}${matrix.y}', matrix: {x: [1, 11], y: [1, 11]}, " + TRAIN + "}\n"
    found = problem(text, folder)
    assert (found.line, found.field) == (3, "jobs[0].matrix")
    assert found.message == "x 1, y 11 and x 11, y 1 give the same job name, m111"
    assert "separator" in found.hint


def test_a_matrix_fills_after_file_and_weight(folder: Path, below: Path) -> None:
    (below / "two.yaml").write_text(f"name: two\n{TRAIN}\n")
    text = f"""\
group: g
jobs:
  - {{name: a, matrix: {{x: [1, p/q]}}, {TRAIN}}}
  - {{name: b, matrix: {{x: [1, p/q]}}, after: ["a-x${{matrix.x}}"], {TRAIN}}}
  - {{file: "sub/${{matrix.which}}.yaml", matrix: {{which: [k, two]}}}}
  - {{name: heavy, weight: "${{matrix.w}}", matrix: {{w: [1, 2.5]}}, {TRAIN}}}
  - {{name: last, after: ["${{matrix.one}}"], matrix: {{one: [b, k]}}, {TRAIN}}}
"""
    jobs = {each.spec.name: each for each in parsed(text, folder).jobs}
    assert [jobs[f"b-x{x}"].after for x in ("1", "p_q")] == [("a-x1",), ("a-xp_q",)]
    assert {"k-whichk", "two-whichtwo"} <= jobs.keys()
    assert (jobs["heavy-w1"].weight, jobs["heavy-w2.5"].weight) == (1.0, 2.5)
    assert jobs["last-oneb"].after == ("b-x1", "b-xp_q")
    assert jobs["last-onek"].after == ("k-whichk",)


@pytest.mark.parametrize("field", ["name: 'a${matrix.y}'", "after: ['${matrix.y}'], name: a",
                                   "weight: '${matrix.y}', name: a",
                                   "file: '${matrix.y}.yaml'"])  # fmt: skip
def test_an_unknown_value_is_reported_in_its_field(folder: Path, field: str) -> None:
    text = "group: g\njobs:\n  - {" + field + ", matrix: {x: [1, 2]}, " + TRAIN + "}\n"
    found = problem(text, folder)
    assert found.field.startswith(f"jobs[0].{field.partition(':')[0]}")
    assert (found.message, found.hint) == ("the matrix of this job has no 'y'", "the matrix has x")


def test_a_weight_that_a_matrix_gives_is_checked(folder: Path) -> None:
    found = problem(
        "group: g\njobs:\n  - {name: a, weight: '${matrix.w}', matrix: {w: [1, 0]}, " + TRAIN + "}\n", folder
    )
    assert (found.field, "0 is not a valid weight" in found.message) == ("jobs[0].weight", True)


@pytest.mark.parametrize("weight", ["1.0e-300", "0.0009", "1001", "0", "-1", ".nan", ".inf", "true", "two"])
def test_weights_lie_between_a_thousandth_and_a_thousand(folder: Path, weight: str) -> None:
    found = problem(f"group: g\njobs:\n  - name: a\n    weight: {weight}\n    {TRAIN}\n", folder)
    assert (found.line, found.field) == (4, "jobs[0].weight")
    if weight not in (".nan", ".inf"):
        assert "from 0.001 to 1,000" in found.hint


def test_the_least_and_the_largest_weight(folder: Path) -> None:
    for weight in (0.001, 1000):
        text = f"group: g\njobs: [{{name: a, weight: {weight}, {TRAIN}}}]\n"
        assert parsed(text, folder).jobs[0].weight == weight


def test_two_names_for_one_variable_are_refused(folder: Path) -> None:
    text = "group: g\njobs:\n  - name: a\n    " + TRAIN + "\n    matrix:\n      lr: [1]\n      LR: [3]\n"
    found = problem(text, folder)
    assert (found.line, found.field) == (7, "jobs[0].matrix.LR")
    assert "MATRIX_LR" in found.message
    assert "rename" in found.hint


@pytest.mark.parametrize(
    ("field", "hint"),
    [
        ("wieght: 2", 'did you mean "weight"?'),
        ("afer: [b]", 'did you mean "after"?'),
        ("matrx: {a: [1]}", 'did you mean "matrix"?'),
        ("fil: x", 'did you mean "file"?'),
        ("budgte: 3", 'did you mean "budget"?'),
        ("run: x", "write train"),
        ("xyzzy: 1", "valid fields: file, weight, after, matrix, name"),
    ],
)
def test_a_misspelt_field_of_an_entry(folder: Path, field: str, hint: str) -> None:
    found = problem("group: g\njobs:\n  - {name: a, " + field + ", " + TRAIN + "}\n", folder)
    assert hint in found.hint


def test_fields_of_entries_elsewhere_say_where_they_belong(folder: Path) -> None:
    (folder / "w.yaml").write_text(f"name: w\nweight: 2\n{TRAIN}\n")
    found = problem("group: g\njobs: [{file: w.yaml}]\n", folder)
    assert (Path(found.path).name, found.line) == ("w.yaml", 2)
    assert found.hint == "write it in an entry of `jobs` in a group file"
    found = problem("group: g\ndefaults: {matrix: {x: [1]}}\njobs: [{name: a, " + TRAIN + "}]\n", folder)
    assert (found.field, found.hint) == ("defaults.matrix", "write it in an entry of `jobs` in a group file")


def test_too_many_entries_are_one_problem(folder: Path) -> None:
    jobs = "".join(f"  - {{name: a{n}, {TRAIN}}}\n" for n in range(1001))
    found = problem(f"group: g\njobs:\n{jobs}", folder)
    assert (found.line, found.field) == (2, "jobs")
    assert found.message == "has 1,001 entries; at most 1,000 are allowed"
    assert found.hint == "split them into several groups"


def test_too_many_values_are_one_problem(folder: Path) -> None:
    found = problem(f"group: g\njobs:\n  - {{name: a, matrix: {{x: {list(range(1001))}}}, {TRAIN}}}\n", folder)
    assert (found.field, found.hint) == ("jobs[0].matrix.x", "use fewer values")


def test_a_mistake_in_a_job_file_of_two_entries_is_reported_once(folder: Path, below: Path) -> None:
    (below / "bad.yaml").write_text("name: s\ntrain: {entry: 'train:main', steps: -5}\n")
    found = problem("group: g\njobs: [{file: sub/bad.yaml}, {file: sub/bad.yaml, name: t}]\n", folder)
    assert (Path(found.path).name, found.field) == ("bad.yaml", "train.steps")
    (below / "bad.yaml").write_text("name: s\nname: t\n" + TRAIN + "\n")
    assert "duplicate" in problem(
        "group: g\njobs: [{file: sub/bad.yaml, name: u}, {file: sub/bad.yaml, name: t}]\n", folder
    ).message  # fmt: skip


def test_a_spec_does_not_depend_on_when_it_is_read(folder: Path) -> None:
    at = "'2030-01-01T01:00:00Z'"
    text = f"group: g\ndeadline: 1h\njobs: [{{name: a, deadline: {at}, {TRAIN}}}]\n"
    noon = 1_893_456_000_000  # 2030-01-01T00:00:00Z
    before, after = (parsed(text, folder, now_ms=noon + shift * 1000) for shift in (-60, 60))
    assert before == after
