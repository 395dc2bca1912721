"""Each finding about a job or group file says what to write; nothing is said twice, nor what only follows from it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import Problem, SpecError
from orchestrator.jobfile import load_job, parse_job
from orchestrator.jobfile.fields import section_of
from orchestrator.jobfile.group import load_group, parse_group
from orchestrator.jobfile.group.schema import EntryFields, GroupFile
from orchestrator.jobfile.schema import JobFile, Section
from orchestrator.jobfile.source.source_map import Loc

RAW = re.compile(
    r"[Ii]nput should|valid (string|integer|number|dictionary|tuple|list|boolean)|validation error|\bctx\b"
)
SAYS_ALL = re.compile(r"must be (at least|at most|more than)")
WRONG = (
    """
5  -1  1.5  .nan  .inf  true  ''  hello  'a b/c'  [1]  [[1]]  [hello]  [{a: 1}]  [~]  {a: 1}  {a: [1]}  {}  []  !!int 5
"a\\0b"  99999999999999999999  2030-01-01  été
""".replace("\n", "  ")
    .strip()
    .split("  ")
)


def fields_of(model: type[Section], at: Loc = ()) -> list[Loc]:
    found: list[Loc] = []
    for name, field in model.model_fields.items():
        found.append((*at, name))
        if inner := section_of(field.annotation):
            found += fields_of(inner, (*at, name))
    return found


def written(loc: Loc, value: str) -> str:
    for name in reversed(loc[1:]):
        value = f"{{{name}: {value}}}"
    return f"{loc[0]}: {value}"


def problems_of(text: str, folder: Path, parse: Any = parse_job) -> tuple[Problem, ...]:
    try:
        parse(text, folder / "file.yaml")
    except SpecError as error:
        return error.problems
    return ()


def well_reported(problems: tuple[Problem, ...]) -> None:
    for each in problems:
        assert each.line > 0
        assert each.field or each.message == "must be a mapping of fields"
        assert not RAW.search(str(each)), str(each)
        assert each.hint or SAYS_ALL.search(each.message), str(each)
    places = [(each.path, each.line, each.column, each.field, each.message) for each in problems]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize("workdir", ["~/nowhere", "/nowhere/at/all", "nowhere"])
def test_only_of_a_relative_workdir_it_is_said_where_it_is_looked_for(folder: Path, workdir: str) -> None:
    text = f"name: a\ntrain: {{script: train.py, steps: 5, workdir: {workdir}}}\n"
    (problem,) = problems_of(text, folder)
    assert problem.message.endswith(" does not exist")
    assert ("relative to the job file" in problem.hint) == (workdir == "nowhere")


@pytest.mark.parametrize("loc", fields_of(JobFile), ids=".".join)
def test_a_wrong_value_of_a_job_file_is_reported_with_its_remedy(folder: Path, loc: Loc) -> None:
    rest = {"name": "name: x", "train": "train: {entry: 'train:main', steps: 5}"}
    rest.pop(str(loc[0]), None)
    for value in WRONG:
        well_reported(problems_of("\n".join([*rest.values(), written(loc, value)]) + "\n", folder))


@pytest.mark.parametrize(
    "loc", [*fields_of(GroupFile), *(("jobs", *loc) for loc in fields_of(EntryFields))], ids=".".join
)
def test_a_wrong_value_of_a_group_file_is_reported_with_its_remedy(folder: Path, loc: Loc) -> None:
    for value in WRONG:
        job = f", {loc[1]}: {value}" if len(loc) > 1 else ""
        lines = {"group": "g", "jobs": f"[{{name: a, train: {{entry: 'train:main', steps: 5}}{job}}}]"}
        if len(loc) == 1:
            lines[str(loc[0])] = value
        well_reported(problems_of("".join(f"{key}: {each}\n" for key, each in lines.items()), folder, parse_group))


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("name: !!str x\ntrain: !!map {script: train.py}\nproject: !x y\n", ["project"]),
        ("name: !x x\ntrain: {script: train.py}\n", ["name"]),
        ("<<: {name: x}\ntrain: {script: train.py}\n", ["<<"]),
        ("name: x\ntrain:\n  <<: {script: train.py}\n", ["train.<<"]),
        ("name: x\ntrain: {script: train.py, args: [a, !x b]}\n", ["train.args[1]"]),
        ("name: x\ntrain: {script: !x train.py}\n", ["train.script"]),
        ("name: x\ntrain: {entry: 'train:main', steps: !x 5}\n", ["train.steps"]),
        ("name: x\ntrain: {entry: 'train:main', steps: !x 5, workdir: !x y}\n", ["train.steps", "train.workdir"]),
        ("Name: x\nTrain: {script: train.py}\n", ["Name", "Train"]),
        ("name: x\ntrain: {entry: 'train:main', stpes: 5}\n", ["train.stpes"]),
        ("name: x\nsteps: 5\ntrain: {entry: 'train:main'}\n", ["steps"]),
        ("name: x\ntrain: {script: !x y, stall_after: 5}\nretries: -1\n",
         ["train.script", "train.stall_after", "retries"]),
    ],
)  # fmt: skip
def test_what_only_follows_from_a_mistake_is_not_reported(folder: Path, text: str, fields: list[str]) -> None:
    assert [each.field for each in problems_of(text, folder)] == fields


def test_text_is_shown_as_written(folder: Path) -> None:
    (problem,) = problems_of("name: été\ntrain: {script: train.py}\n", folder)
    assert '"été"' in problem.message
    (problem,) = problems_of('name: "a\\u200bb"\ntrain: {script: train.py}\n', folder)
    assert '"a\\u200bb"' in problem.message
    u = "\xfc"
    text = f'name: x\nlabels: {{"{u}\\u0007": a, "{u * 70}": b}}\ntrain: {{script: train.py}}\n'
    fields = [each.field for each in problems_of(text, folder)]
    assert fields == [f'labels."{u}\\u0007"', f'labels."{u * 55}..."']


@pytest.mark.parametrize("load", [load_job, load_group])
def test_a_pipe_or_a_device_is_refused_and_nobody_waits_for_it(tmp_path: Path, load: Any) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    for path in (tmp_path / "pipe.yaml", "/dev/zero"):
        with pytest.raises(SpecError) as caught:
            load(path)
        (problem,) = caught.value.problems
        assert problem.message == "cannot be read: it is a pipe or a device"
        assert "save the text as a file" in problem.hint
