"""Group files: jobs inline, by file and from a matrix; each mistake is reported in its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import Problem, SpecError
from orchestrator.jobfile.group import is_group_file, load_group, parse_group
from orchestrator.jobfile.group.matrix import MOST_JOBS
from orchestrator.model import GROUP_POLICIES, GroupSpec

HEAD = "group: sweep\ndefaults: {train: {steps: 5}}\njobs:\n"
A, B = "  - {name: a, train: {entry: 'train:main'}}\n", "  - {name: b, train: {entry: 'train:main'}}\n"


def parsed(text: str, folder: Path, **options: Any) -> GroupSpec:
    return parse_group(text, folder / "group.yaml", **options)


def problem(text: str, folder: Path) -> Problem:
    with pytest.raises(SpecError) as caught:
        parsed(text, folder)
    (only,) = caught.value.problems
    return only


def job_file(folder: Path, name: str, *lines: str) -> None:
    rest = "".join(f"{line}\n" for line in lines)
    (folder / f"{name}.yaml").write_text(f"name: {name}\n{rest}train:\n  entry: train:main\n  steps: 7\n")


def test_jobs_come_inline_by_file_and_from_a_matrix(folder: Path) -> None:
    job_file(folder, "resnet", "labels: {team: vision}")
    text = """\
group: vision-sweep
policy: cheapest
budget: $400
project: research
defaults: {retries: 2, labels: {sweep: first}}
jobs:
  - file: resnet.yaml
    weight: 2
  - name: bert
    train: {entry: "train:main", steps: 9}
    after: resnet
  - name: train
    train: {entry: "train:main", steps: 3, args: {lr: "${matrix.lr}", tag: "seed ${matrix.seed}"}}
    matrix: {lr: [1e-1, 0.01], seed: [1, 2]}
"""
    group = parsed(text, folder)
    assert (group.name, group.policy, group.project, group.budget_nano_usd) == (
        "vision-sweep", "cheapest", "research", 400_000_000_000,
    )  # fmt: skip
    assert [each.spec.name for each in group.jobs] == [
        "resnet", "bert", "train-lr1e-1-seed1", "train-lr1e-1-seed2", "train-lr0.01-seed1", "train-lr0.01-seed2",
    ]  # fmt: skip
    resnet, bert, first, second = group.jobs[:4]
    assert (resnet.weight, resnet.spec.train.steps, resnet.spec.retries) == (2.0, 7, 2)
    assert resnet.spec.labels == {"sweep": "first", "team": "vision"}
    assert bert.after == ("resnet",)
    assert first.spec.train.args == {"lr": 0.1, "tag": "seed 1"}
    assert second.spec.train.env == {"MATRIX_LR": "1e-1", "MATRIX_SEED": "2"}
    assert {each.spec.project for each in group.jobs} == {"research"}


def test_words_of_a_script_are_as_written(folder: Path) -> None:
    text = "group: g\njobs:\n  - name: a\n    train: {script: train.py, args: [--lr, '${matrix.lr}', --b, 2e0]}\n"
    group = parsed(text + "    matrix: {lr: [3e-4]}\n", folder)
    assert group.jobs[0].spec.train.argv == ("--lr", "3e-4", "--b", "2e0")


def test_the_entry_wins_over_its_file_and_that_over_the_defaults(folder: Path) -> None:
    job_file(folder, "one", "retries: 3")
    text = "group: g\ndefaults: {retries: 1, max_duration: 1h}\njobs: [{file: one.yaml, name: two, max_duration: 2h}]\n"
    (job,) = parsed(text, folder).jobs
    assert (job.spec.name, job.spec.retries, job.spec.max_duration_s) == ("two", 3, 7200)


def test_paths_of_a_job_file_are_relative_to_its_folder(folder: Path) -> None:
    (folder / "below").mkdir()
    (folder / "below" / "train.py").write_text("def main(): pass\n")
    job_file(folder / "below", "one")
    (job,) = parsed("group: g\njobs: [{file: below/one.yaml}]\n", folder).jobs
    assert job.spec.train.workdir == str(folder / "below")


def test_deadlines_stay_as_written(folder: Path) -> None:
    group = parsed("deadline: 2h\n" + HEAD + A.replace("}}", "}, deadline: 9h}") + B, folder)
    assert group.deadline_s == 7200
    assert [each.spec.deadline_s for each in group.jobs] == [32400, None]


def test_after_may_name_all_jobs_of_a_matrix(folder: Path) -> None:
    jobs = A.replace("name: a,", "name: a, matrix: {seed: [1, 2]},") + B.replace("name: b,", "name: b, after: [a],")
    assert parsed(HEAD + jobs, folder).jobs[2].after == ("a-seed1", "a-seed2")


@pytest.mark.parametrize("policy", GROUP_POLICIES)
def test_policies(folder: Path, policy: str) -> None:
    assert parsed(f"policy: {policy}\n{HEAD}{A}", folder).policy == policy


@pytest.mark.parametrize(
    ("policy", "hint"),
    [
        ("fifo", "first-in-first-out"),
        ("min_cost", "cheapest"),
        ("makespam", "makespan"),
        ("fastst", 'did you mean "makespan"?'),
        ("cost-min", 'did you mean "cheapest"?'),
        ("9", "one of cheapest"),
    ],
)
def test_a_policy_by_another_name_gets_the_right_one(folder: Path, policy: str, hint: str) -> None:
    found = problem(f"{HEAD}{A}policy: {policy}\n", folder)
    assert (found.field, found.line) == ("policy", 5)
    assert hint in found.hint


@pytest.mark.parametrize(
    ("jobs", "field", "word"),
    [
        (A + B.replace("name: b,", "name: b, after: [x],"), "jobs[1].after[0]", "no job 'x'"),
        (A.replace("name: a,", "name: a, after: [b],") + B.replace("name: b,", "name: b, after: [a],"), "jobs[0].after",
         "cycle: a after b after a"),
        (A.replace("name: a,", "name: a, after: [a],"), "jobs[0].after", "cycle"),
        (A + A, "jobs[1]", "second job is named a"),
        (A.replace("name: a,", "name: a, weight: 0,"), "jobs[0].weight", "weight"),
        (A.replace("name: a,", "name: a, weight: -2,"), "jobs[0].weight", "weight"),
        (A.replace("name: a,", "name: a, matrix: {},"), "jobs[0].matrix", "empty"),
        (A.replace("name: a,", "name: a, matrix: {lr: []},"), "jobs[0].matrix.lr", "no values"),
        (A.replace("name: a,", "name: a, matrix: {lr: 3},"), "jobs[0].matrix.lr", "list"),
        (A.replace("name: a,", "name: a, matrix: {lr: [[1]]},"), "jobs[0].matrix.lr[0]", "number"),
        (A.replace("name: a,", "name: a, labels: {x: '${matrix.lr}'},"), "jobs[0].labels.x", "no 'lr'"),
        (A.replace("name: a,", "name: a, wieght: 2,"), "jobs[0].wieght", "unknown field"),
        ("  - {name: a}\n", "jobs[0]", ""),
        ("  - {file: none.yaml}\n", "jobs[0].file", "cannot be read"),
        ("  - {file: other.yaml}\n", "jobs[0].file", "is a group file"),
        ("  - {name: a, project: p, train: {entry: 'train:main'}}\n", "jobs[0].project", "one project"),
    ],
)  # fmt: skip
def test_mistakes_are_reported_in_their_place(folder: Path, jobs: str, field: str, word: str) -> None:
    (folder / "other.yaml").write_text("group: x\njobs: []\n")
    found = problem(HEAD + jobs, folder)
    assert found.field.startswith(field)
    assert word in found.message
    assert found.path == str(folder / "group.yaml")
    assert found.line >= 4 or found.field.startswith("jobs[0]")
    assert found.hint or not word


def test_a_mistake_in_a_job_file_is_reported_there_and_one_in_the_defaults_there(folder: Path) -> None:
    job_file(folder, "one", "retries: many")
    in_file = problem("group: g\njobs: [{file: one.yaml}]\n", folder)
    assert (Path(in_file.path).name, in_file.line, in_file.field) == ("one.yaml", 2, "retries")
    job_file(folder, "two")
    in_defaults = problem("group: g\ndefaults:\n  standby: hot\njobs: [{file: two.yaml}]\n", folder)
    assert (Path(in_defaults.path).name, in_defaults.line, in_defaults.field) == ("group.yaml", 3, "defaults.standby")


def test_too_many_combinations(folder: Path) -> None:
    matrix = f"matrix: {{a: {list(range(100))}, b: {list(range(11))}}},"
    found = problem(HEAD + A.replace("name: a,", f"name: a, {matrix}"), folder)
    assert (found.field, f"{MOST_JOBS:,}" in found.message) == ("jobs[0].matrix", True)


def test_no_jobs_unknown_fields_and_no_mapping(folder: Path) -> None:
    assert "at least one" in problem("group: g\njobs: []\n", folder).message
    assert "policy" in problem(f"polcy: cheapest\n{HEAD}{A}", folder).hint
    with pytest.raises(SpecError):
        parsed("[1]", folder)
    with pytest.raises(SpecError):
        parsed("", folder)


@pytest.mark.parametrize(
    ("head", "jobs", "fields"),
    [
        ("budgt: $5\npolicy: best\n" + HEAD, A + A, ["budgt", "policy", "jobs[1]"]),
        (HEAD, A + A + "  - {name: c, wieght: 2, train: {entry: 'train:main'}}\n", ["jobs[1]", "jobs[2].wieght"]),
        (HEAD.replace("group: sweep", "group: ''"), A + A, ["group", "jobs[1]"]),
        (HEAD.replace("defaults:", "defualts:"), A + A, ["defualts", "jobs[1]"]),
        (HEAD, A.replace("name: a,", "name: a, wieght: 2,") + B.replace("name: b,", "name: b, after: [a],"),
         ["jobs[0].wieght"]),
    ],
)  # fmt: skip
def test_a_mistake_hides_no_other_and_makes_up_none(folder: Path, head: str, jobs: str, fields: list[str]) -> None:
    with pytest.raises(SpecError) as caught:
        parsed(head + jobs, folder)
    assert [each.field for each in caught.value.problems] == fields


def test_a_job_budget_above_the_groups_is_a_contradiction(folder: Path) -> None:
    found = problem("budget: $5\n" + HEAD + A.replace("name: a,", "name: a, budget: $9,"), folder)
    assert (found.field, "larger than its group's" in found.message) == ("jobs[0].budget", True)


def test_which_files_are_group_files(folder: Path) -> None:
    job_file(folder, "one")
    (folder / "group.yaml").write_text(HEAD + A)
    assert is_group_file(folder / "group.yaml")
    assert not is_group_file(folder / "one.yaml")
    assert load_group(folder / "group.yaml").name == "sweep"
