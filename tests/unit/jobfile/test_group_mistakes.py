"""Several mistakes in one group file: each is reported, once, and none that is not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.errors import Problem, SpecError
from orchestrator.jobfile import load_job
from orchestrator.jobfile.fields import OF_GROUPS
from orchestrator.jobfile.group import is_group_file, load_group, parse_group
from orchestrator.jobfile.group.order import cycles
from orchestrator.jobfile.group.schema import OWN_FIELDS, GroupFile
from orchestrator.jobfile.schema import JobFile

TRAIN = "train: {entry: 'train:main', steps: 5}"


def problems(text: str, folder: Path) -> tuple[Problem, ...]:
    with pytest.raises(SpecError) as caught:
        parse_group(text, folder / "group.yaml")
    assert all(each.line > 0 and each.field for each in caught.value.problems)
    return caught.value.problems


def fields(text: str, folder: Path) -> list[str]:
    return [each.field for each in problems(text, folder)]


def group(*entries: str, head: str = "") -> str:
    return f"group: g\n{head}jobs:\n" + "".join(f"  - {{{entry}}}\n" for entry in entries)


@pytest.mark.parametrize(
    ("entry", "reported"),
    [
        (f"name: a, weight: 0, retries: x, {TRAIN}", ["weight", "retries"]),
        ("file: none.yaml, name: a, weight: 0, retries: x", ["file", "weight", "retries"]),
        (f"name: a, retries: x, wieght: 1, matrix: {{lr: 3}}, {TRAIN}", ["retries", "wieght", "matrix.lr"]),
        (f"name: a, weight: 0, after: [a b, zz], matrix: {{}}, {TRAIN}", ["weight", "after[0]", "after[1]", "matrix"]),
        ("name: a, matrix: {l: 3, s: [0]}, train: {script: train.py, steps: '${matrix.s}', args: {lr: '${matrix.l}'}}",
         ["matrix.l", "train.steps"]),
        (f"name: a, matrix: {{x: [1, [2], 3]}}, retries: '${{matrix.y}}', {TRAIN}", ["matrix.x[1]", "retries"]),
        (f"file: none.yaml, project: p, {TRAIN}", ["file", "project"]),
        (f"name: a, budget: $7, retries: x, {TRAIN}", ["budget", "retries"]),
    ],
)  # fmt: skip
def test_all_mistakes_of_one_entry_are_reported(folder: Path, entry: str, reported: list[str]) -> None:
    assert fields(group(entry, head="budget: $5\n"), folder) == [f"jobs[0].{each}" for each in reported]


def test_a_wrong_entry_does_not_hide_names_cycles_and_budgets_of_others(folder: Path) -> None:
    text = group(
        f"name: a, retries: x, {TRAIN}",
        f"name: b, after: [c, a, q], {TRAIN}",
        f"name: c, after: [b], budget: $7, {TRAIN}",
        head="budget: $5\n",
    )
    assert fields(text, folder) == ["jobs[0].retries", "jobs[1].after", "jobs[1].after[2]", "jobs[2].budget"]


def test_a_name_that_lacks_its_quotes_is_a_name_for_others(folder: Path) -> None:
    text = group(f"name: 5, {TRAIN}", f"name: b, after: ['5', q], {TRAIN}")
    assert fields(text, folder) == ["jobs[0].name", "jobs[1].after[1]"]


@pytest.mark.parametrize(
    ("entry", "after"),
    [
        (TRAIN, "b"),  # its name is what is wrong
        ("file: none.yaml", "b"),
        (f"name: '${{matrix.x}}', {TRAIN}", "b"),
        (f"name: b, matrix: {{x: 3}}, {TRAIN}", "b-x3"),
        (f"name: b, matrix: {{x: 3}}, {TRAIN}", "b"),
        (f"name: b, matrix: {{x: {list(range(1001))}}}, {TRAIN}", "b-x1000"),
    ],
)
def test_a_name_that_a_wrong_entry_may_have_is_not_unknown(folder: Path, entry: str, after: str) -> None:
    assert all("after" not in each for each in fields(group(entry, f"name: a, after: [{after}], {TRAIN}"), folder))


def test_each_cycle_is_reported_and_a_long_one_is_cut(folder: Path) -> None:
    ring = [f"name: j{i}, after: [j{(i + 1) % 1000}], {TRAIN}" for i in range(998)]
    ring[-1] = f"name: j997, after: [j0], {TRAIN}"
    long, short = problems(group(*ring, f"name: a, after: [b], {TRAIN}", f"name: b, after: [a], {TRAIN}"), folder)
    assert long.message == "a cycle: j0 after j1 after j2 after j3 after ... (994 more) after j0"
    assert (short.line, short.field, short.message) == (1001, "jobs[998].after", "a cycle: a after b after a")


def test_cycles_of_a_graph() -> None:
    after = {"a": ["b"], "b": ["c", "a"], "c": ["d"], "d": ["c"], "e": ["a"], "f": ["f"], "g": []}
    assert cycles(after) == [["a", "b"], ["c", "d"], ["f"]]
    assert cycles({"a": ["b", "c"], "b": ["c"], "c": []}) == []


def test_mistakes_that_depend_on_a_value_name_it(folder: Path) -> None:
    text = """\
group: g
jobs:
  - name: a
    matrix: {s: [0, 3, -1], p: [bf16, foo], w: [1, 0]}
    weight: ${matrix.w}
    precision: ${matrix.p}
    train: {entry: 'train:main', steps: '${matrix.s}'}
"""
    assert [(each.line, each.message) for each in problems(text, folder)] == [
        (5, "0 is not a valid weight, where w is 0"),
        (6, '"foo" is not one of fp32, tf32, fp16, bf16, fp8, where p is foo'),
        (7, "must be a whole number from 1 to 1,000,000,000,000,000, where s is 0 or -1"),
    ]


def test_a_mistake_that_no_text_at_its_place_explains_names_the_value_that_decides(folder: Path) -> None:
    text = group("name: a, matrix: {x: [main, other], y: [1, 2]}, train: {entry: 'train:${matrix.x}', steps: 5}")
    (found,) = problems(text, folder)
    assert found.message.endswith(", where x is other")
    (folder / "train.py").write_text("def main(lr):\n    pass\n\n\ndef other():\n    pass\n")
    text = group(
        "name: a, matrix: {x: [main, other], y: [1, 2]}, train: {entry: 'train:${matrix.x}', steps: 5, args: {}}"
    )
    (found,) = problems(text, folder)
    assert (found.field, found.message) == ("jobs[0].train.args", 'train:main needs "lr", where x is main')


def test_of_many_wrong_values_the_first_are_reported(folder: Path) -> None:
    text = group(f"name: a, matrix: {{x: {list(range(20))}}}, precision: 'p${{matrix.x}}', {TRAIN}")
    found = problems(text, folder)
    assert len(found) == 5
    assert found[-1].message == "and 16 more mistakes with other values of the matrix"


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        (f"group: g\nproject: a b\njobs:\n  - hello\n  -\n  - {{name: a, retries: x, {TRAIN}}}\n",
         ["project", "jobs[0]", "jobs[1]", "jobs[2].retries"]),
        (group("name: a, train: {entry: 'train:main'}", f"name: b, retries: x, {TRAIN}", head="defaults: hello\n"),
         ["defaults", "jobs[1].retries"]),
        (group("name: a", "name: b, train: {steps: 0}", head="defaults: [{train: {entry: 'train:main'}}]\n"),
         ["defaults", "jobs[1].train.steps"]),
        (f"group: g\njobs: {{a: {{retries: x, {TRAIN}}}, b: {{wieght: 1, {TRAIN}}}}}\n",
         ["jobs", "jobs.a.retries", "jobs.b.wieght"]),
        (f"group: g\njobs: {{name: a, retries: x, {TRAIN}}}\n", ["jobs", "jobs.retries"]),
        ("group: g\njobs: hello\n", ["jobs"]),
        ("group: g\njobs:\n", ["jobs"]),
        ("jobs: [5]\n", ["group", "jobs[0]"]),
    ],
)  # fmt: skip
def test_a_wrong_part_of_the_group_does_not_hide_the_mistakes_of_its_jobs(
    folder: Path, text: str, reported: list[str]
) -> None:
    assert fields(text, folder) == reported


def test_a_file_in_place_of_an_entry_gets_what_to_write(folder: Path) -> None:
    (found,) = problems("group: g\njobs: [job.yaml]\n", folder)
    assert found.hint == "write {file: job.yaml}"


@pytest.mark.parametrize(
    "text",
    [
        group(f"name: !x a, {TRAIN}"),
        group(f"<<: {{name: b}}, {TRAIN}"),
        group('file: "a\\0b"'),
        "group: g\njobs: [!x {name: a}]\n",
        "group: g\njobs: !x [{name: a}]\n",
        "group: !x g\njobs: [{name: a, " + TRAIN + "}]\n",
        group("name: a, train: {entry: 'train:main', steps: !x 5}"),
        group("name: a, train: {entry: 'train:main'}", head="defaults: !x {train: {steps: 3}}\n"),
        group("name: a, train: {entry: 'train:main'}", head="defaults: {train: {steps: !x 3}}\n"),
        group("name: a, train: {entry: 'train:main'}", head="defaults: {train: {<<: {steps: 3}}}\n"),
        group("name: a, train: {entry: 'other:main', steps: 5}", head="defaults: {train: {workdir: !x y}}\n"),
        group(f"name: a, matrix: {{x: !x [1]}}, labels: {{x: '${{matrix.x}}'}}, {TRAIN}"),
        group(f"name: a, matrix: {{x: [!x 1]}}, labels: {{x: '${{matrix.x}}'}}, {TRAIN}"),
        group(f"name: a, matrix: !x {{x: [1]}}, labels: {{x: '${{matrix.x}}'}}, {TRAIN}"),
        group("nmae: a, " + TRAIN, f"name: b, after: [a], {TRAIN}"),
        group("name: a, File: a.yaml"),
        group(f"name: a, matirx: {{x: [1]}}, labels: {{x: '${{matrix.x}}'}}, {TRAIN}"),
        group(f"name: a b, matrix: {{x: [1, 2]}}, {TRAIN}"),
        group("name: a, train: {steps: 5}", head="defaults: {train: 'train:main'}\n"),
        group(f"name: a, budget: {{<<: {{a: b}}}}, {TRAIN}", head="budget: $5\n"),
        group(f"name: a, resources: {{gpu: {{<<: {{a: b}}}}}}, {TRAIN}"),
        group(f"name: a, matrix: {{x: [1]}}, {TRAIN}", head="defaults: {labels: '${matrix.x}'}\n"),
        group(f"name: a, weight: !x 1, {TRAIN}"),
        group(f"name: a, after: [!x 1], {TRAIN}"),
    ],
)
def test_what_cannot_be_read_is_reported_alone(folder: Path, text: str) -> None:
    assert len(fields(text, folder)) == 1


def test_values_that_make_two_jobs_of_one_name(folder: Path) -> None:
    same, twice = problems(
        group(f"name: a, matrix: {{x: [p/q, p_q, 'p q']}}, {TRAIN}", f"name: b, matrix: {{x: [1, 1]}}, {TRAIN}"), folder
    )
    assert (same.line, same.field) == (3, "jobs[0].matrix")
    assert same.message == "x p/q and x p_q give the same job name, a-xp_q (and 1 more like this)"
    assert "differ in letters" in same.hint
    assert (twice.field, twice.message) == ("jobs[1].matrix.x[1]", "1 is listed twice")


def test_one_number_in_two_forms_is_there_twice(folder: Path) -> None:
    (same,) = problems(group(f"name: a, matrix: {{lr: [1, 1.0, 2]}}, {TRAIN}"), folder)
    assert (same.field, same.message) == ("jobs[0].matrix.lr[1]", "1.0 is listed already, as 1")
    spec = parse_group(group(f"name: a, matrix: {{x: [1, true, one, 2, 1.5]}}, {TRAIN}"), folder / "group.yaml")
    assert len(spec.jobs) == 5


@pytest.mark.parametrize(
    ("head", "is_group"),
    [
        ("group: g\njobs: []\n", True),
        ("Group: g\nJobs: []\n", True),
        ("JOBS: []\n", True),
        ("jobs: []\ntrain: {}\n", True),
        ("group: g\n", True),
        ("group: g\ntrain: {}\n", False),
        ("name: a\n", False),
    ],
)
def test_a_file_with_jobs_is_a_group_file_whatever_its_capitals(folder: Path, head: str, is_group: bool) -> None:
    (folder / "file.yaml").write_text(head)
    assert is_group_file(folder / "file.yaml") is is_group


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        (f"Group: g\nJobs:\n  - {{name: a, retries: x, {TRAIN}}}\n",
         [("Group", '"group"'), ("Jobs", '"jobs"'), ("jobs[0].retries", "digits")]),
        ("group: g\ntrain: {entry: 'train:main', stepz: 1, steps: 3}\njobs: [{name: a}, {name: b}]\n",
         [("train", "`defaults`"), ("train.stepz", '"steps"')]),
        (f"group: g\nresources: {{use_spot: true}}\njobs: [{{name: a, {TRAIN}}}]\n",
         [("resources", "`defaults`"), ("resources.use_spot", "capacity: [spot]")]),
        (f"name: g\nmatrix: {{x: [1]}}\njobs: [{{name: a, {TRAIN}}}]\n",
         [("name", '"group"'), ("matrix", "entry of `jobs`")]),
        (f"group: g\nDefaults: {{retries: x}}\njobs: [{{name: a, {TRAIN}}}]\n",
         [("Defaults", '"defaults"'), ("defaults.retries", "digits")]),
    ],
)  # fmt: skip
def test_fields_in_the_wrong_place_or_capitals_say_where_they_belong(
    folder: Path, text: str, reported: list[tuple[str, str]]
) -> None:
    found = problems(text, folder)
    assert [each.field for each in found] == [field for field, _ in reported]
    assert all(word in each.hint for each, (_, word) in zip(found, reported, strict=True))


def test_a_field_of_groups_in_a_job_file_says_so(folder: Path) -> None:
    (folder / "job.yaml").write_text(f"name: a\ngroup: g\nmatrix: {{x: [1]}}\n{TRAIN}\n")
    with pytest.raises(SpecError) as caught:
        load_job(folder / "job.yaml")
    assert [(each.field, "group file" in each.hint) for each in caught.value.problems] == [
        ("group", True),
        ("matrix", True),
    ]
    assert OF_GROUPS.keys() == {*GroupFile.model_fields, *OWN_FIELDS} - JobFile.model_fields.keys()


def test_defaults_that_every_entry_replaces_are_checked(folder: Path) -> None:
    text = group(f"name: a, retries: 3, {TRAIN}", head="defaults: {train: hello, retries: x}\n")
    assert fields(text, folder) == ["defaults.train", "defaults.retries"]
    labels = ", ".join(f"k{index}: v" for index in range(65))
    text = group(f"name: a, {TRAIN}", f"name: b, {TRAIN}", head=f"defaults: {{labels: {{{labels}}}}}\n")
    assert fields(text, folder) == ["defaults.labels"]


@pytest.mark.parametrize(
    "wrong",
    [
        "${matrix.b",
        "${Matrix.b}",
        "${{ matrix.b }}",
        "${ matrix . b }",
        "a ${MATRIX.b} b",
        "${matrx.b}",
        "${martix.b}",
        "${metrix.b}",
        "${mattrix.b}",
    ],
)
def test_a_value_that_is_written_wrong_is_reported(folder: Path, wrong: str) -> None:
    (found,) = problems(group(f"name: a, matrix: {{b: [1]}}, labels: {{x: '{wrong}'}}, {TRAIN}"), folder)
    assert (found.field, found.hint) == ("jobs[0].labels.x", "write ${matrix.b}")


@pytest.mark.parametrize(
    ("wrong", "quoted", "meant"),
    [("${matrx.lr-0}", "${matrx.lr-0}", "lr"), ("${matrix.lrr/x y", "${matrix.lrr/x", "lr"), ("${matrx.}", "", "b"),
     ("${matrx.zz}", "", "zz")],
)  # fmt: skip
def test_what_is_written_wrong_is_quoted_whole_with_the_value_that_is_meant(
    folder: Path, wrong: str, quoted: str, meant: str
) -> None:
    (found,) = problems(group(f"name: a, matrix: {{b: [1], lr: [2]}}, labels: {{x: '{wrong}'}}, {TRAIN}"), folder)
    assert found.message == f'"{quoted or wrong}" is not a valid placeholder'
    assert found.hint == f"write ${{matrix.{meant}}}"


def test_values_in_the_names_of_fields_and_in_other_values_are_reported(folder: Path) -> None:
    text = group(f"name: a, matrix: {{b: [1], c: ['x${{matrix.b}}']}}, labels: {{'${{matrix.b}}': x}}, {TRAIN}")
    assert fields(text, folder) == ["jobs[0].matrix.c[0]", "jobs[0].labels.${matrix.b}"]


def test_variables_of_a_shell_are_let_pass(folder: Path) -> None:
    setup = "echo ${HOME} ${MATRIX_B} ${matrix} ${matrix:0:3} ${matrix_b} $matrix.b $${x}"
    setup += " ${max.b} ${metric.b} ${my_matrix.b} ${dmatrix.b} ${matrices.b}"
    (folder / "group.yaml").write_text(
        group(f"name: a, matrix: {{b: [1]}}, train: {{script: train.py, setup: '{setup}'}}")
    )
    (job,) = load_group(folder / "group.yaml").jobs
    assert job.spec.train.setup is not None
    assert job.spec.train.setup.command == setup


def test_more_than_a_thousand_jobs_hide_no_other_mistake(folder: Path) -> None:
    many = f"matrix: {{x: {list(range(600))}}}, {TRAIN}"
    text = group(f"name: a, retries: x, {many}", f"name: b, {many}", f"name: c, retries: x, {many}")
    assert fields(text, folder) == ["jobs[0].retries", "jobs[1]", "jobs[2].retries"]


def test_a_pipe_in_place_of_a_job_file_is_reported_in_the_entry(folder: Path) -> None:
    os.mkfifo(folder / "pipe.yaml")
    (found,) = problems(group("file: pipe.yaml"), folder)
    assert (found.line, found.field) == (3, "jobs[0].file")
    assert found.message == "pipe.yaml cannot be read: it is a pipe or a device"


def test_a_group_and_its_jobs_cannot_be_called_as_ids(folder: Path) -> None:
    an_id = "01JD3K5M7P9R2T4"
    jobs = f"  - {{name: job_{an_id}, {TRAIN}}}\n  - {{name: 'job_${{matrix.x}}', matrix: {{x: [a/b, c]}}, {TRAIN}}}\n"
    found = problems(f"group: group_{an_id}\njobs:\n{jobs}", folder)
    assert [(each.field, each.message) for each in found] == [
        ("group", f'"group_{an_id}" looks like the id of a group'),
        ("jobs[0].name", f'"job_{an_id}" looks like the id of a job'),
    ]


@pytest.mark.parametrize("count", [10, 11, 1000])
def test_of_many_unknown_names_the_first_are_named_and_the_rest_counted(folder: Path, count: int) -> None:
    names = [f"job-{number}" for number in range(count)]
    jobs = "".join(f"  - {{name: {name}x, {TRAIN}}}\n" for name in names[:20])
    text = f"group: g\njobs:\n{jobs}  - {{name: last, {TRAIN}, after: [{', '.join(names)}]}}\n"
    *reported, last = problems(text, folder)
    assert len(reported) == 9
    assert all(each.hint.startswith("did you mean") for each in reported)
    assert [each.message for each in reported] == [f"there is no job {name!r} in this group" for name in names[:9]]
    assert last.field == f"jobs[{min(count, 20)}].after[9]"
    if count == 10:
        assert last.message == "there is no job 'job-9' in this group"
    else:
        assert last.message == f"and {count - 9:,} more unknown names"
        assert "to see the rest" in last.hint


def test_unknown_names_of_a_matrix_are_reported_at_their_place(folder: Path) -> None:
    values = ", ".join(f"v{number}" for number in range(30))
    text = group(
        f"name: a, matrix: {{x: [{values}]}}, after: ['b-${{matrix.x}}'], {TRAIN}", f"name: c, after: [d], {TRAIN}"
    )
    found = problems(text, folder)
    assert [each.field for each in found] == ["jobs[0].after[0]"] * 5 + ["jobs[1].after[0]"]
    assert found[4].message == "and 26 more mistakes with other values of the matrix"
