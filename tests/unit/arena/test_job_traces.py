"""Traces of jobs: what is read, and what is refused with file, line and field."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from orchestrator.arena.job_traces import JobTrace, read_jobs
from orchestrator.errors import SpecError

HEAD = "job_id,arrival_s,job_type,scale_factor,total_steps,priority_weight,slo_multiple,v100_duration_s"
RATES = "job_type,scale_factor,k80,v100\nA3C,1,1.0,2.0\nA3C,2,0,3.5\nLM,1,0,0\n"


def read(
    folder: Path, *rows: str, head: str = HEAD, rates: str = RATES, kinds: tuple[str, ...] = ("v100", "k80")
) -> JobTrace:
    (folder / "trace.csv").write_text("\n".join([head, *rows]) + "\n")
    (folder / "rates.csv").write_text(rates)
    return read_jobs(folder / "trace.csv", folder / "rates.csv", kinds)


def test_jobs_in_order_of_arrival_with_rates_in_the_order_of_the_kinds(tmp_path: Path) -> None:
    found = read(tmp_path, "b,60,A3C,2,500,2.0,,", "a,0,A3C,1,100,,1.5,50")
    assert found.name == "trace"
    assert found.jobs.at_s.tolist() == [0.0, 60.0]
    assert found.jobs.rate.tolist() == [[2.0, 1.0], [3.5, 0.0]]
    assert (found.jobs.gpus.tolist(), found.jobs.steps.tolist()) == ([1.0, 2.0], [100.0, 500.0])
    assert found.jobs.weight is not None
    assert found.jobs.weight.tolist() == [1.0, 2.0]
    assert found.deadline_s.tolist() == [75.0, np.inf]


def test_only_three_columns_are_needed_and_a_deadline_may_be_in_seconds(tmp_path: Path) -> None:
    found = read(tmp_path, "10,A3C,100,30", head="arrival_s,job_type,total_steps,deadline_s")
    assert (found.jobs.gpus.tolist(), found.deadline_s.tolist()) == ([1.0], [40.0])


@pytest.mark.parametrize(
    ("row", "field", "message"),
    [
        ("a,soon,A3C,1,100,1,,", "arrival_s", "'soon' is not a number"),
        ("a,-1,A3C,1,100,1,,", "arrival_s", "'-1' is not a number"),
        ("a,0,A3C,1,,1,,", "total_steps", "missing"),
        ("a,0,A3C,1,nan,1,,", "total_steps", "at least 1"),
        ("a,0,A3C,1,1e300,1,,", "total_steps", "more than ten years"),
        ("a,1e300,A3C,1,100,1,,", "total_steps", "more than ten years"),
        ("a,0,A3C,1.5,100,1,,", "scale_factor", "not a number of GPUs"),
        ("a,0,A3C,1,100,0,,", "priority_weight", "at least 1e-06"),
        ("a,0,A3D,1,100,1,,", "job_type", "no row of job_type 'A3D' with scale_factor 1"),
        ("a,0,A3C,8,100,1,,", "job_type", "with scale_factor 8"),
        ("a,0,LM,1,100,1,,", "job_type", "runs on none of v100, k80"),
        ("a,0,A3C,1,100,1,2,", "v100_duration_s", "missing"),
        ("a,0,A3C,1,100,1,,,,9", "", "more values than the 8 columns"),
    ],
)
def test_a_row_that_makes_no_sense_is_refused_with_its_line(tmp_path: Path, row: str, field: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        read(tmp_path, "ok,0,A3C,1,100,1,,", row)
    (problem,) = caught.value.problems
    assert (Path(problem.path).name, problem.line, problem.field) == ("trace.csv", 3, field)
    assert message in problem.message


def test_a_near_name_is_suggested(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        read(tmp_path, "a,0,A3D,1,100,1,,")
    assert caught.value.problems[0].hint == 'did you mean "A3C"?'


def test_files_that_are_missing_empty_or_without_a_column_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no jobs"):
        read(tmp_path)
    with pytest.raises(SpecError, match="the column is missing"):
        read(tmp_path, "a,0,A3C,1,100,1,,", kinds=("h100",))
    with pytest.raises(SpecError, match="the column is missing"):
        read(tmp_path, "0,A3C", head="arrival_s,job_type")
    with pytest.raises(SpecError, match="does not exist"):
        read_jobs(tmp_path / "nowhere.csv", tmp_path / "rates.csv", ("v100",))
    (tmp_path / "trace.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="cannot be read as CSV"):
        read_jobs(tmp_path / "trace.csv", tmp_path / "rates.csv", ("v100",))
