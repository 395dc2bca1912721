"""`tradewind backtest`: the table on stdout, the page in a file, exit codes."""

from __future__ import annotations

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
    assert (nowhere.exit_code, "there is no folder" in nowhere.stderr) == (2, True)
    folder = tradewind(scenario, "--html", tmp_path)
    assert (folder.exit_code, "is a folder" in folder.stderr) == (2, True)
