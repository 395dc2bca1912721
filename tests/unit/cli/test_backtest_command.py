"""`tradewind backtest`: the table on stdout, the page in a file, exit codes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from orchestrator.arena.paper_tables import Cell, PaperTable, PaperTables
from orchestrator.cli.app import app
from orchestrator.formats.documents import to_json

MARKET = Path(__file__).parents[3] / "examples" / "scenarios" / "made-up"


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(
        f"""
name: small
traces: [{{path: {MARKET}, on_demand: 3.06, spot: 0.92}}]
jobs: [{{work: 10h, ratio: 1.5, overhead: 12 min, checkpoint: 50 GB}}]
starts: 2
policies: [greedy, deadline]
"""
    )
    return path


def tradewind(*arguments):
    return CliRunner().invoke(app, ["backtest", *map(str, arguments)], prog_name="tradewind")


def test_the_table_and_the_page(scenario, tmp_path):
    done = tradewind(scenario, "--html", tmp_path / "page.html")
    assert done.exit_code == 0, done.stderr
    assert "small: 2 runs" in done.stdout
    assert "deadline" in done.stdout
    assert "\x1b" not in done.output
    assert "<svg" in (tmp_path / "page.html").read_text()


def test_the_json_has_a_schema(scenario):
    document = json.loads(tradewind(scenario, "--output", "json").stdout)
    assert document["schema"] == "tradewind/backtest/v1"
    assert [row["policy"] for row in document["policies"]] == ["greedy", "deadline"]
    assert all(row["missed"] == 0 for row in document["policies"])


def test_the_json_of_the_papers_tables_keeps_its_shape():
    table = PaperTable("Cost", 0.01, (Cell("packed", "A3C", 1.71, 1.72), Cell("packed", "LM", 1.08, None)))
    assert to_json(PaperTables((table,), 3)) == {
        "schema": "tradewind/backtest-paper/v1",
        "tables": [
            {
                "title": "Cost",
                "within": 0.01,
                "cells": [
                    {"row": "packed", "column": "A3C", "value": 1.71, "published": 1.72},
                    {"row": "packed", "column": "LM", "value": 1.08, "published": None},
                ],
            }
        ],
        "refused_runs": 3,
    }


def test_invalid_values(scenario, tmp_path):
    assert tradewind().exit_code == 2
    assert tradewind(scenario, "--paper", tmp_path).exit_code == 2
    assert tradewind(tmp_path / "none.yaml").exit_code == 3
    nowhere = tradewind(scenario, "--html", tmp_path / "none" / "page.html")
    assert (nowhere.exit_code, "does not exist" in nowhere.stderr) == (2, True)
    folder = tradewind(scenario, "--html", tmp_path)
    assert (folder.exit_code, "is a folder" in folder.stderr) == (2, True)


@pytest.fixture
def jobs(tmp_path):
    """A trace of jobs, and their throughputs."""
    trace, rates = tmp_path / "trace.csv", tmp_path / "rates.csv"
    trace.write_text("arrival_s,job_type,total_steps,deadline_s\n0,A3C,7200,9000\n60,LM,3600,\n120,A3C,100,200\n")
    rates.write_text("job_type,scale_factor,v100,k80\nA3C,1,2.0,1.0\nLM,1,1.0,0.8\n")
    return trace, rates


def of_jobs(trace, rates, *more):
    return tradewind("--jobs", trace, "--throughputs", rates, "--cluster", "v100=1@0.74,k80=1@0.135", *more)


def test_policies_for_collections_of_jobs_are_one_row_each(jobs, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    done = of_jobs(*jobs, "--policy", "max-min-fairness,finish-time-fairness,cheapest")
    assert done.exit_code == 0, done.output
    assert "trace: 3 jobs, 2 with a deadline; 1 v100, 1 k80" in done.stdout
    rows = [line.split()[0] for line in done.stdout.splitlines() if line.strip()]
    assert [row for row in rows if row in ("max-min-fairness", "finish-time-fairness", "cheapest")] == [
        "max-min-fairness",
        "finish-time-fairness",
        "cheapest",
        "cheapest",  # what it is, below the table
    ]
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert "\x1b" not in done.output


def test_their_json_has_a_schema(jobs):
    document = json.loads(of_jobs(*jobs, "--policy", "first-in-first-out", "--output", "json").stdout)
    assert document["schema"] == "tradewind/backtest-jobs/v1"
    assert (document["jobs"], document["with_deadline"]) == (3, 2)
    assert document["cluster"] == {"v100": 1, "k80": 1}
    assert document["usd_per_hour"] == {"v100": 0.74, "k80": 0.135}
    (row,) = document["policies"]
    assert row.keys() == {
        *("policy", "elastic", "mean_h", "p95_h", "makespan_h", "cost_nano_usd", "late"),
    }


def test_a_cluster_without_prices_has_no_cost(jobs):
    done = of_jobs(*jobs, "--policy", "first-in-first-out", "--cluster", "v100=1")
    assert done.exit_code == 0, done.output
    assert "$" not in done.stdout


def test_a_malformed_trace_is_refused_with_file_line_and_field(jobs):
    trace, rates = jobs
    trace.write_text("arrival_s,job_type,total_steps\n0,A3C,soon\n")
    done = of_jobs(trace, rates)
    assert done.exit_code == 3
    for part in ("trace.csv", "2", "total_steps", "'soon' is not a number"):
        assert part in done.output


def test_a_job_that_the_cluster_has_no_room_for_is_named_before_anything_is_played(jobs):
    trace, rates = jobs
    trace.write_text("job_id,arrival_s,job_type,total_steps,scale_factor\na,0,A3C,100,1\nbig,0,A3C,100,4\n")
    rates.write_text(rates.read_text() + "A3C,4,8.0,4.0\n")
    done = of_jobs(trace, rates)
    assert (done.exit_code, done.stdout) == (3, "")
    assert (
        "trace.csv:3:15: scale_factor: big takes 4 GPUs of one kind, but the cluster has only 1 for it" in done.stderr
    )
    assert of_jobs(trace, rates, "--policy", "cheapest").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--policy", "makspan"), 'did you mean "makespan"?'),
        (("--cluster", "v100"), "v100=8@0.74"),
        (("--paper", "."), "name a scenario"),
    ],
)
def test_options_that_make_no_sense_are_refused(jobs, arguments, said):
    done = of_jobs(*jobs, *arguments)
    assert done.exit_code == 2
    assert said in done.output.replace("\n    ", " ")


def test_throughputs_are_beside_the_trace_or_named(jobs):
    trace, rates = jobs
    done = tradewind("--jobs", trace, "--cluster", "v100=1", "--policy", "first-in-first-out")
    assert done.exit_code == 3
    assert "throughputs.csv" in done.output
    assert "--throughputs" in done.output.replace("\n    ", " ")
    rates.rename(rates.with_name("throughputs.csv"))
    assert tradewind("--jobs", trace, "--cluster", "v100=1", "--policy", "first-in-first-out").exit_code == 0


def test_the_example_can_be_played():
    example = MARKET.parents[1] / "job-traces" / "jobs.csv"
    document = json.loads(tradewind("--jobs", example, "--policy", "cheapest", "--output", "json").stdout)
    assert (document["jobs"], document["with_deadline"], document["policies"][0]["late"]) == (12, 6, 0)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--jobs", "jobs.csv", "--html", "page.html"), "--html is an option only for a scenario"),
        (("--jobs", "jobs.csv", "--keep"), "--keep is an option only for a scenario"),
        (("--paper", ".", "--processes", "2"), "--processes is an option only for a scenario"),
        (("small.yaml", "--cluster", "v100=1"), "--cluster is an option only with --jobs"),
        (("small.yaml", "--policy", "makespan"), "--policy is an option only with --jobs"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(options, named):
    refused = tradewind(*options)
    assert (refused.exit_code, named in refused.stderr) == (2, True), refused.output


def test_a_page_that_cannot_be_written_is_refused_and_leaves_nothing(scenario, tmp_path):
    page = tmp_path / ("x" * 300 + ".html")
    refused = tradewind(scenario, "--html", page)
    assert (refused.exit_code, "cannot be written: File name too long" in refused.stderr) == (2, True), refused.output
    assert [each.name for each in tmp_path.iterdir()] == [scenario.name]


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("paper_ratios.csv", b"", "paper_ratios.csv:1:1: region: is not a column of this file"),
        ("paper_ratios.csv", b"region,days,model,policy,ratio\n", "paper_ratios.csv: paper: the table has no rows"),
        ("paper_ratios.csv", b"region,days,model,policy,ratio\nx,y,z,a,1\n", "paper_ratios.csv:2:1: days: invalid"),
        ("paper_ratios.csv", b"region,days,model,policy,ratio\nx,4\n", "paper_ratios.csv:2:1: model: is empty"),
        ("paper_ratios.csv", b"\xff\xfe", "paper_ratios.csv: trace: is not a readable table"),
        ("throughputs.csv.gz", b"text", "throughputs.csv.gz: trace: is not a readable table"),
        ("aws_spot_2020_dispa.parquet", b"text", "aws_spot_2020_dispa.parquet: trace: is not a valid Parquet file"),
    ],
)
def test_damaged_data_of_the_paper_are_refused_with_file_and_line(tmp_path, name, content, named):
    steps = b"source,job_type,worker_type,steps_per_sec\ndispa_oracle,A3C,v100,1\n"
    sound = {
        "aws_spot_2020_dispa.parquet": b"",
        "azure_spot_2020_dispa.csv.gz": b"",
        "throughputs.csv.gz": gzip.compress(steps),
        "paper_ratios.csv": b"region,days,model,policy,ratio\nus-east-1,4,A3C,baseline,1\n",
    }
    for each, text in {**sound, name: content}.items():
        (tmp_path / each).write_bytes(text)
    refused = tradewind("--paper", tmp_path)
    assert (refused.exit_code, named in refused.stderr) == (3, True), refused.output


def test_prices_and_speeds_of_another_planet_are_refused(tmp_path):
    (tmp_path / "jobs.csv").write_text("arrival_s,job_type,total_steps\n0,a,10\n")
    (tmp_path / "throughputs.csv").write_text("job_type,scale_factor,v100\na,1,1e300\n")
    refused = tradewind("--jobs", tmp_path / "jobs.csv", "--cluster", "v100=1@1")
    assert refused.exit_code == 3
    assert "throughputs.csv:2:5: v100: '1e300' is not a number of at most 1e+09" in refused.stderr
    refused = tradewind("--jobs", tmp_path / "jobs.csv", "--cluster", f"v100=1@{'9' * 400}")
    assert (refused.exit_code, "is not a valid part of a cluster" in refused.stderr) == (2, True), refused.output
