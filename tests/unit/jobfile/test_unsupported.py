"""What a job may ask for but not get yet is refused when it is submitted, and only then."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import SpecError
from orchestrator.jobfile import load_job, parse_job, refuse_unsupported_fields, unsupported_fields

BASE = "name: x\ntrain: {script: train.py}\n"


@pytest.mark.parametrize(
    ("lines", "field"),
    [
        ("data: [{source: 'gs://bucket/x', mount: /x}]", "data[0].source"),
        ("data: [{source: ., mount: /data}]", "data[0].mount"),
        ("outputs: [{path: a}, {path: b, keep: best}]", "outputs[1].keep"),
    ],
)
def test_a_field_without_its_machinery_is_not_yet(folder: Path, lines: str, field: str) -> None:
    spec = parse_job(f"{BASE}{lines}\n", folder / "job.yaml")
    (item,) = unsupported_fields(spec)
    assert item.field == field
    assert item.message.startswith("not supported yet: ")
    with pytest.raises(SpecError, match=r"job\.yaml: .*not supported yet: "):
        refuse_unsupported_fields(spec, "job.yaml")


def test_on_submission_it_has_its_place_in_the_file(folder: Path, whole: str) -> None:
    (folder / "job.yaml").write_text(whole)
    with pytest.raises(SpecError) as caught:
        load_job(folder / "job.yaml", submitting=True)
    places = [(problem.line, problem.field) for problem in caught.value.problems]
    assert places == [(11, "data[0].source"), (12, "outputs[0].keep")]


def test_everything_else_goes_ahead(folder: Path) -> None:
    lines = (
        f"data: [{{source: {folder}, mount: {folder}}}]\n"
        "outputs: [{path: a, keep: last}]\n"
        "checkpoint: {to: ck, keep: 2}\n"
        "resources: {gpu: ['H100:8', SIM-S]}\nprobe: true\nstandby: warm\ndeadline: 3h\nbudget: 3 USD\n"
    )
    spec = parse_job(BASE + lines, folder / "job.yaml", submitting=True)
    assert unsupported_fields(spec) == ()
    assert spec.checkpoint.to == str(folder / "ck")
    refuse_unsupported_fields(spec)
