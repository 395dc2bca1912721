"""Traces of jobs: what is read, and what is refused with file, line and field."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import lists, text

from orchestrator.arena.csv_rows import Mistakes, rows
from orchestrator.arena.job_traces import JobTrace, read_jobs
from orchestrator.errors import SpecError

HEAD = "job_id,arrival_s,job_type,scale_factor,total_steps,priority_weight,slo_multiple,v100_duration_s"
RATES = "job_type,scale_factor,k80,v100\nA3C,1,1.0,2.0\nA3C,2,0,3.5\nLM,1,0,0\n"


def read(
    folder: Path,
    *rows: str,
    head: str = HEAD,
    rates: str = RATES,
    kinds: tuple[str, ...] = ("v100", "k80"),
    room: tuple[int, ...] | None = None,
) -> JobTrace:
    (folder / "trace.csv").write_text("\n".join([head, *rows]) + "\n")
    (folder / "rates.csv").write_text(rates)
    return read_jobs(folder / "trace.csv", folder / "rates.csv", kinds, room=room)


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


def test_a_speed_at_which_a_job_does_not_end_in_ten_years_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        read(tmp_path, "a,0,A3C,1,100,1,,", rates=RATES.replace("A3C,1,1.0,2.0", "A3C,1,1e-9,2.0"))
    (problem,) = caught.value.problems
    assert (problem.path, problem.line, problem.field) == (str(tmp_path / "rates.csv"), 2, "k80")
    assert problem.message == "'1e-9' steps/s is less than a step in ten years"
    assert problem.hint == "write steps/s, or 0 if the job does not run there"
    slow = RATES.replace("A3C,1,1.0,2.0", "A3C,1,1e-6,2.0")
    with pytest.raises(SpecError) as caught:
        read(tmp_path, "a,0,A3C,1,100,1,,", "b,0,A3C,1,1000,1,,", rates=slow)
    (problem,) = caught.value.problems
    assert (problem.path, problem.line, problem.field) == (str(tmp_path / "trace.csv"), 3, "total_steps")
    assert problem.message == "it would take more than ten years on k80, at 1e-06 steps/s"
    assert problem.hint == f"correct it, or the speed in {tmp_path / 'rates.csv'}: 0 if the job does not run there"
    assert len(read(tmp_path, "b,0,A3C,1,1000,1,,", rates=slow.replace("1e-6", "0")).jobs.at_s) == 1


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
        ("a,0,A3C,10001,100,1,,", "scale_factor", "at most 10000"),
        ("a,0,A3C,1,100,0,,", "priority_weight", "at least 1e-06"),
        ("a,0,A3D,1,100,1,,", "job_type", "no row of job_type 'A3D' with scale_factor 1"),
        ("a,0,A3C,8,100,1,,", "job_type", "with scale_factor 8"),
        ("a,0,LM,1,100,1,,", "job_type", "does not run on any of v100, k80"),
        ("a,0,A3C,1,100,1,2,", "v100_duration_s", "missing"),
        ("a,0,A3C,1,100,1,,,,9", "", "more values than the 8 columns"),
        ("a\0,0,A3C,1,100,1,,", "job_id", "contains a NUL character"),
        ("a,0,A3C,1,1\x0000,1,,", "total_steps", "contains a NUL character"),
    ],
)
def test_a_row_that_makes_no_sense_is_refused_with_its_line(tmp_path: Path, row: str, field: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        read(tmp_path, "ok,0,A3C,1,100,1,,", row)
    (problem,) = caught.value.problems
    assert (Path(problem.path).name, problem.line, problem.field) == ("trace.csv", 3, field)
    assert message in problem.message
    assert problem.hint


def test_a_near_name_is_suggested(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        read(tmp_path, "a,0,A3D,1,100,1,,")
    assert caught.value.problems[0].hint == 'did you mean "A3C"?'


def test_a_known_job_type_is_not_suggested_for_itself(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        read(tmp_path, "a,0,A3C,8,100,1,,")
    assert "it has this job_type with scale_factor 1, 2" in caught.value.problems[0].hint


def test_every_mistake_is_reported_where_it_is(tmp_path: Path) -> None:
    rows = ['"a, b",soon,A3C,1,,1,,', "ok,0,A3C,1,100,1,,", "c,0,A3D,0,100,x,,", "d,0,A3C,1,1,1,,,"]
    with pytest.raises(SpecError) as caught:
        read(tmp_path, *rows)
    found = [(each.line, each.column, each.field) for each in caught.value.problems]
    assert found == [
        (2, 8, "arrival_s"),
        (2, 19, "total_steps"),
        (4, 9, "scale_factor"),
        (4, 15, "priority_weight"),
        (5, 17, ""),
    ]


def test_mistakes_of_both_files_are_reported_together(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        read(tmp_path, "a,soon,A3C,1,100,1,,", rates="job_type,scale_factor,k80,v100\nA3C,1,fast,-1\nA3C,1,1,1\n")
    found = [(Path(each.path).name, each.line, each.field) for each in caught.value.problems]
    assert found == [
        ("trace.csv", 2, "arrival_s"),
        ("rates.csv", 2, "k80"),
        ("rates.csv", 2, "v100"),
        ("rates.csv", 3, "job_type"),
    ]


def test_of_very_many_mistakes_the_first_are_listed_and_the_others_counted(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        read(tmp_path, *["a,soon,A3C,1,100,1,,"] * 25)
    *listed, rest = caught.value.problems
    assert [each.line for each in listed] == list(range(2, 22))
    assert rest.message.startswith("5 more mistakes")


def test_a_job_that_is_too_large_for_the_cluster_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        read(tmp_path, "a,0,A3C,1,100,1,,", "b,0,A3C,2,100,1,,", ",0,A3C,2,100,1,,", room=(1, 8))
    first, second = caught.value.problems
    assert (first.line, first.field) == (3, "scale_factor")
    assert first.message == "b takes 2 GPUs of one kind, but the cluster has only 1 for it"
    assert (second.line, second.message.split(" takes")[0]) == (4, "the job")
    assert len(read(tmp_path, "b,0,A3C,2,100,1,,", room=(2, 1)).jobs.at_s) == 1


@given(texts=lists(lists(text(alphabet='a1,"\n ', max_size=4), min_size=3, max_size=3), min_size=1, max_size=4))
def test_a_place_is_where_the_cell_begins(texts: list[list[str]]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "cells.csv"
        with path.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([["a", "b", "c"], *texts])
        mistakes = Mistakes(path)
        read_back = list(rows(mistakes, ("a", "b", "c"), absent=""))
        for row in read_back:
            for field in ("a", "b", "c"):
                row.wrong(field, row.cells[field], "")
        lines = path.read_text().splitlines()
        assert [[row.cells[field] for field in "abc"] for row in read_back] == texts
        for each in mistakes.problems():
            rest = "\n".join([lines[each.line - 1][each.column - 1 :], *lines[each.line :]])
            assert (next(csv.reader(io.StringIO(rest)), None) or [""])[0] == each.message


def test_a_mark_of_the_encoding_is_no_part_of_a_column(tmp_path: Path) -> None:
    assert len(read(tmp_path, "10,A3C,100", head="\ufeffarrival_s,job_type,total_steps").jobs.at_s) == 1


def test_a_trace_that_does_not_exist_is_reported_before_its_table(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        read_jobs(tmp_path / "nix.csv", tmp_path / "throughputs.csv", ("v100",))
    (problem,) = caught.value.problems
    assert (Path(problem.path).name, problem.message) == ("nix.csv", "the file does not exist")
    assert "a trace of jobs" in problem.hint


def test_files_that_are_missing_empty_or_without_a_column_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no jobs"):
        read(tmp_path)
    with pytest.raises(SpecError, match="the column is missing"):
        read(tmp_path, "a,0,A3C,1,100,1,,", kinds=("h100",))
    with pytest.raises(SpecError, match="the column is missing"):
        read(tmp_path, "0,A3C", head="arrival_s,job_type")
    with pytest.raises(SpecError, match="does not exist"):
        read_jobs(tmp_path / "nowhere.csv", tmp_path / "rates.csv", ("v100",))
    with pytest.raises(SpecError, match="it cannot be read: Is a directory"):
        read_jobs(tmp_path, tmp_path / "rates.csv", ("v100",))
    (tmp_path / "trace.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="cannot be read as CSV"):
        read_jobs(tmp_path / "trace.csv", tmp_path / "rates.csv", ("v100",))


def test_a_pipe_or_a_column_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(SpecError, match=r"pipe\.csv: it cannot be read: it is a pipe or a device"):
        read_jobs(tmp_path / "pipe.csv", tmp_path / "throughputs.csv", ["v100"])
    (tmp_path / "jobs.csv").write_text("arrival_s,job_type,total_steps\n0,a,10\n")
    (tmp_path / "throughputs.csv").write_text("job_type,scale_factor,v100,v100\na,1,2,3\n")
    with pytest.raises(SpecError, match=r"throughputs\.csv:1:1: v100: the column occurs twice"):
        read_jobs(tmp_path / "jobs.csv", tmp_path / "throughputs.csv", ["v100"])
