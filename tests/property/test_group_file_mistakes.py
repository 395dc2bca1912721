"""Mistakes in group files are independent: several in one file are reported as each of them alone, and once."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import Problem, SpecError
from orchestrator.jobfile.group import parse_group

FILE = """\
group: sweep
policy: cheapest
budget: $400
project: research
deadline: 48h
defaults:
  retries: 2
  labels: {team: a}
  train: {entry: "train:main"}
jobs:
  - file: one.yaml
    weight: 2
    name: first
  - name: second
    after: [first]
    budget: $30
    max_duration: 3h
    train:
      steps: 9
      env: {A: b}
  - name: third
    after: [second, "grid-s${matrix.x}-p1"]
    matrix: {x: [1, 2]}
    precision: bf16
    train: {steps: "${matrix.x}", args: {lr: "${matrix.x}"}}
  - name: grid
    matrix:
      s: [1, 2]
      p: [1, 2]
    checkpoint: {keep: 2}
    train: {steps: 4, stall_after: 1h}
"""
MISTAKES = [
    ("group: sweep", "group: a b"),
    ("group: sweep", "Group: sweep"),
    ("group: sweep", "group: [sweep]"),
    ("group: sweep", "group: !x sweep"),
    ("group: sweep", "name: sweep"),
    ("policy: cheapest", "policy: best"),
    ("policy: cheapest", "polcy: cheapest"),
    ("policy: cheapest", "policy: {a: b}"),
    ("project: research", "project: [x]"),
    ("deadline: 48h", "deadline: 48"),
    ("deadline: 48h", "deadline: !x 48h"),
    ("  retries: 2", "  retries: many"),
    ("  retries: 2", "  retires: 2"),
    ("  retries: 2", "  resources: {gpu: H900}"),
    ("  retries: 2", "  where: {clouds: [awss, gcp, gcp]}"),
    ("  labels: {team: a}", "  labels: hello"),
    ("  labels: {team: a}", "  labels: '${matrix.x'"),
    ('  train: {entry: "train:main"}', "  train: hello"),
    ('  train: {entry: "train:main"}', "  train: !x {}"),
    ('  train: {entry: "train:main"}', "  train: {enty: train:main}"),
    ("  labels: {team: a}", "  labels: {team: [a]}"),
    ("  labels: {team: a}", '  labels: {team: "a\\0"}'),
    ("  labels: {team: a}", '  labels: {team: "${matrix.x"}'),
    ("file: one.yaml", "file: none.yaml"),
    ("file: one.yaml", "file: [one.yaml]"),
    ("file: one.yaml", 'file: "a\\0b"'),
    ("file: one.yaml", "file: !x one.yaml"),
    ("file: one.yaml", "file: ''"),
    ("file: one.yaml", "File: one.yaml"),
    ("  - name: third", "  - nmae: third"),
    ("  - name: grid", "  - name: [grid]"),
    ("    matrix: {x: [1, 2]}", "    matirx: {x: [1, 2]}"),
    ("    weight: 2", "    weight: 0"),
    ("    weight: 2", "    wieght: 2"),
    ("    weight: 2", "    weight: .nan"),
    ("after: [first]", "after: [first, nobody]"),
    ("after: [first]", "after: [first, second]"),
    ("after: [first]", "after: [first, {a: b}]"),
    ("after: [first]", "after: [first, !x b]"),
    ("    budget: $30", "    budget: $500"),
    ("    budget: $30", "    budget: lots"),
    ("    budget: $30", "    budget: {<<: {a: b}}"),
    ("    budget: $30", "    bugdet: $30"),
    ("max_duration: 3h", "max_duration: [3h]"),
    ("max_duration: 3h", "max_duration: !x 3h"),
    ("      steps: 9", "      steps: -9"),
    ("      steps: 9", "      stpes: 9"),
    ("      steps: 9", "      steps: !x 9"),
    ("      steps: 9", '      steps: "${matrix.y}"'),
    ("      env: {A: b}", "      env: [A]"),
    ("      env: {A: b}", "      env: {<<: {A: b}}"),
    ("      env: {A: b}", "      env: {A: b, A: c}"),
    ("    precision: bf16", "    precision: ${matrix.x}"),
    ("    precision: bf16", "    precision: 16"),
    ("    precision: bf16", "    Precision: bf16"),
    ("      p: [1, 2]", "      p: [1, 2, [3]]"),
    ("      p: [1, 2]", "      p: [1, 2, 2]"),
    ("    checkpoint: {keep: 2}", "    checkpoint: {keep: 0}"),
    ("    checkpoint: {keep: 2}", "    checkpoint: {keep: '${Matrix.s}'}"),
    ("    checkpoint: {keep: 2}", "    checkpoint: [2]"),
    ("stall_after: 1h", "stall_after: 1 parsec"),
    ("stall_after: 1h", "stall_after: '${matrix.s'"),
]
RAW = re.compile(r"[Ii]nput should|valid (string|integer|number|dictionary|tuple|list|boolean)")


def reported(text: str, folder: Path) -> list[Problem]:
    try:
        parse_group(text, folder / "group.yaml")
    except SpecError as error:
        return list(error.problems)
    return []


def with_mistakes(mistakes: list[tuple[str, str]]) -> str:
    text = FILE
    for right, wrong in mistakes:
        assert text.count(right) == 1, right
        text = text.replace(right, wrong)
    return text


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(MISTAKES), min_size=1, max_size=6, unique_by=lambda each: each[0].strip()))
def test_several_mistakes_are_reported_as_each_of_them_alone(mistakes: list[tuple[str, str]]) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text("def main(lr=1, **others):\n    pass\n")
        (folder / "one.yaml").write_text("name: one\ntrain: {steps: 5}\n")
        assert reported(FILE, folder) == []
        together = reported(with_mistakes(mistakes), folder)
        alone = [reported(with_mistakes([each]), folder) for each in mistakes]
    assert all(alone)
    expected = {str(each) for problems in alone for each in problems}
    if any("- name:" in right for right, _ in mistakes):  # who is not there is not known without all names
        expected = {each for each in expected if "there is no job" not in each}
    if any("matrix:" in right for right, _ in mistakes):  # nor what is wrong with values that are not known
        expected = {each for each in expected if ", where x is" not in each}
    assert sorted(map(str, together)) == sorted(expected)
    for each in together:
        assert each.line > 0, str(each)
        assert each.field, str(each)
        assert not RAW.search(each.message), str(each)
        assert each.hint or re.search(r"must be (at least|at most|more than)", each.message), str(each)
    assert len({(each.path, each.line, each.field, each.message) for each in together}) == len(together)
