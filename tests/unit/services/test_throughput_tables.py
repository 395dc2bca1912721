"""Tables of throughputs from files: three formats, and every bad row named with file, line, field and remedy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.errors import SpecError, UsageError
from orchestrator.perf import FITTED, Row, fit
from orchestrator.services.speed.throughput_tables import MAX_CHARACTERS, Misfit, read_table
from tests.shared_data import shared

OURS = """\
job,family,gpu,gpu_count,steps_per_s
bert b32,BERT,nvidia-tesla-v100,1,4.5
bert b32,,A100-80GB,8,50
"""
GAVEL = """\
job_type,scale_factor,k80,v100,k80_unconsolidated
ResNet-50 (batch size 128),1,0.35,2.5,0.35
ResNet-50 (batch size 128),2,0.0,4.2,
"""


@pytest.fixture
def written(tmp_path: Path):
    def write(text: str, name: str = "table.csv") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def problems(path: Path) -> list[str]:
    with pytest.raises(SpecError) as caught:
        read_table(path)
    return [str(problem).replace(str(path), path.name) for problem in caught.value.problems]


def test_our_own_table(written):
    table = read_table(written(OURS))
    assert table.rows == (Row("bert b32", "BERT", "V100", 1, 4.5), Row("bert b32", "bert b32", "A100-80GB", 8, 50.0))
    assert table.misfits == ()


RESNET = "ResNet-50 (batch size 128)"


def test_gavels_table_where_zero_means_that_it_does_not_fit(written):
    table = read_table(written(GAVEL))
    assert table.rows == (
        Row(RESNET, "ResNet-50", "K80", 1, 0.35),
        Row(RESNET, "ResNet-50", "V100", 1, 2.5),
        Row(RESNET, "ResNet-50", "V100", 2, 4.2),
    )
    assert table.misfits == (Misfit(RESNET, "K80", 2),)


def test_gavels_json_without_shared_gpus_and_servers(written):
    rates = {f"('{RESNET}', 1)": {"null": 2.5, "('A3C', 1)": [1.0, 2.0]}, f"('{RESNET}', 2)": {"null": 0.0}}
    document = {"v100": rates, "v100_unconsolidated": {"('A3C', 1)": {"null": -1}}}
    table = read_table(written(json.dumps(document), "rates.json"))
    assert table.rows == (Row(RESNET, "ResNet-50", "V100", 1, 2.5),)
    assert table.misfits == (Misfit(RESNET, "V100", 2),)


def test_every_bad_row_is_named_with_its_line_field_and_remedy(written):
    bad = written(
        "job,gpu,gpu_count,steps_per_s\n"
        "a,V100,1,0\n"
        "a,V100,1,nan\n"
        "a,V100,1,-2\n"
        "a,V10O,1,1\n"
        "a,V100,0,1\n"
        ",V100,1,1\n"
        "a,V100,1\n"
        "a,V100,1,fast\n"
        "a,V100,1,inf\n"
    )
    assert problems(bad) == [
        "table.csv:2:4: steps_per_s: 0 is not a rate (omit the row if the job does not fit)",
        "table.csv:3:4: steps_per_s: nan is not a rate (give steps per second above 0)",
        "table.csv:4:4: steps_per_s: -2 is not a rate (give steps per second above 0)",
        'table.csv:5:2: gpu: V10O is not a known GPU (did you mean "V100"?)',
        "table.csv:6:3: gpu_count: 0 is not a number of GPUs (give 1, 2, 4, ...)",
        "table.csv:7:1: job: is empty (name the model and its settings)",
        "table.csv:8:1: 3 fields, the header has 4 (quote commas)",
        "table.csv:9:4: steps_per_s: fast is not a rate (give steps per second above 0)",
        "table.csv:10:4: steps_per_s: inf is not a rate (give steps per second above 0)",
    ]


def test_gavels_tables_are_checked_as_well(written):
    assert problems(written("job_type,scale_factor,v100,h10O\nA3C,one,-1,1\n")) == [
        'table.csv:1:4: h10O: h10O is not a known GPU (did you mean "H100"?)',
        "table.csv:2:2: scale_factor: one is not a number of GPUs (give 1, 2, 4, ...)",
        "table.csv:2:3: v100: -1 is not a rate (give steps per second above 0)",
    ]
    document = {"v100": {"A3C": {"null": 1}, "('A3C', 1)": {"null": "NaN"}, "('A3C', 2)": {}}}
    found = problems(written(json.dumps(document), "rates.json"))
    assert [line.split(": ", 1)[1] for line in found] == [
        'v100.A3C: has no rate of its own (give "(\'job\', 1)": {"null": steps/s})',
        "v100.('A3C', 1): NaN is not a rate (give steps per second above 0)",
        "v100.('A3C', 2): has no rate of its own (give \"('job', 1)\": {\"null\": steps/s})",
    ]


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("", "table.csv", "table.csv:1:1: the header lacks job, gpu, gpu_count, steps_per_s"),
        ("job,gpu,gpu_count\n", "table.csv", "table.csv:1:1: the header lacks steps_per_s"),
        ("job,gpu,gpu_count,steps_per_s\n", "table.csv", "table.csv:1:1: the table has no rows"),
        ("[1]", "rates.json", "rates.json:1:1: is not an object of GPU types"),
        ("{", "rates.json", "rates.json:1:2: is not valid JSON"),
    ],
)
def test_a_file_that_is_not_a_table(written, text, name, message):
    (problem,) = problems(written(text, name))
    assert problem.startswith(message)


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(UsageError, match="cannot read"):
        read_table(tmp_path / "nowhere.csv")


def test_the_shipped_model_is_the_fit_to_gavels_table():
    """Fails when the hardware table changes: run scripts/fit_throughput.py again."""
    table = read_table(shared("jobs/throughputs_isolated.csv"))
    assert len(table.rows) == 246
    assert [misfit.gpu_count for misfit in table.misfits] == [2, 4, 8]
    model = fit(table.rows)
    assert model.spreads.exponent == pytest.approx(FITTED.spreads.exponent, rel=1e-3)
    assert model.mean == pytest.approx(FITTED.mean, abs=1e-3)
    assert model.covariance == pytest.approx(FITTED.covariance, abs=1e-3)
    assert (model.offsets, model.families) == (FITTED.offsets, FITTED.families)


def test_implausible_words_and_numbers_are_refused_by_row(tmp_path):
    table = tmp_path / "table.csv"
    table.write_text(
        "job,gpu,gpu_count,steps_per_s\n"
        "a\x1b[2J,V100,1,1\n"
        f"{'b' * 60_000},V100,1,1\n"
        "c,V100\u202e,1,1\n"
        f"d,V100,{'9' * 5_000},1\n"
        "e,V100,1,1e-320\n"
    )
    found = problems(table)
    assert [problem.split(": ")[1] for problem in found] == ["job", "job", "gpu", "gpu_count", "steps_per_s"]
    assert all(problem.isprintable() and len(problem) < 600 for problem in found)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"v100": ' + "9" * 5_000 + "}", '{"v100": {"(\'a\', 1)": {"null": 1e999}}}']
)
def test_json_that_is_not_a_table_is_a_named_problem(tmp_path, text):
    table = tmp_path / "table.json"
    table.write_text(text)
    with pytest.raises(SpecError):
        read_table(table)


def test_a_file_of_another_kind_is_refused_before_it_is_read_whole(tmp_path):
    table = tmp_path / "table.csv"
    with table.open("w") as file:
        file.truncate(MAX_CHARACTERS + 1)
    with pytest.raises(UsageError, match="more than 16 MiB"):
        read_table(table)
