"""Reports, costs and the books by command, and what pruning says."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run


def test_the_report_goes_to_a_page_or_to_csv(tradewind: Run, tmp_path: Path) -> None:
    page = tradewind("report", "--html", "out.html")
    assert (page.exit_code, page.stdout) == (0, "")
    assert (tmp_path / "out.html").read_text().startswith("<!doctype html>")
    lines = tradewind("report", "--csv").stdout.splitlines()
    assert lines[0].startswith("id,job_id,run_id,")
    assert len(lines) == 9


def test_prune_asks_with_a_preview_on_stderr_and_says_what_was_freed(tradewind: Run) -> None:
    refused = tradewind("store", "prune", "--older-than", "1s")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "add --yes" in refused.stderr
    assert "would be deleted" in refused.stderr
    done = tradewind("store", "prune", "--older-than", "1s", "--yes")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "deleted: 0.0 MB of 1 job and 1 unused runtime" in done.stdout
    again = tradewind("store", "prune", "--older-than", "1s")
    assert again.stdout.startswith("nothing to delete in")
    assert "duration" in tradewind("store", "prune", "--older-than", "long").stderr


def test_a_correction_of_the_books_wants_a_reason_and_finds_nothing_where_they_are_right(tradewind: Run) -> None:
    refused = tradewind("ledger", "correct", "--yes")
    assert (refused.exit_code, "--reason" in refused.stderr) == (2, True)
    done = tradewind("ledger", "correct", "--reason", "store check", "--yes")
    assert (done.exit_code, "nothing to correct" in done.stdout) == (0, True)


def test_costs_name_the_period_that_they_are_compared_with_and_one_that_has_not_ended(tradewind: Run) -> None:
    def shown(*period: str) -> list[str]:
        return tradewind("costs", *period).stdout.splitlines()

    month = json.loads(tradewind("costs", "--output", "json").stdout)
    name, before = month["period"], month["before_period"]
    this = datetime.fromtimestamp(month["from_ms"] / 1000, UTC)
    assert shown()[0] == f"{name} so far, by project"
    assert f"before is {before}; --csv shows exact amounts" in shown()
    assert (name, before) == (f"{this:%B %Y}", f"{this - timedelta(days=1):%B %Y}")
    week = ("--since", "2026-11-08", "--until", "2026-11-15")
    ranged = json.loads(tradewind("costs", *week, "--output", "json").stdout)
    assert (ranged["period"], ranged["before_period"]) == ("2026-11-08 to 2026-11-15", "2026-11-01 to 2026-11-08")


def test_costs_are_titled_with_the_instants_that_were_named(tradewind: Run) -> None:
    def title(since: str, until: str) -> str:
        return json.loads(tradewind("costs", "--since", since, "--until", until, "--output", "json").stdout)["period"]

    assert title("2026-11-29T20:00:00+02:00", "2026-11-29T23:00:00Z") == "2026-11-29 18:00 to 2026-11-29 23:00 UTC"
    assert title("2026-11-21", "2026-11-28") == "2026-11-21 to 2026-11-28"


@pytest.mark.parametrize(
    ("option", "wrong", "remedy", "right"),
    [
        ("--kind", "compue", 'did you mean "compute"?', "egress"),
        ("--cloud", "awz", 'did you mean "aws"?', "gcp"),
        ("--project", "nosuch", "one of default", "default"),
    ],
)
def test_costs_of_what_does_not_exist_are_refused(
    tradewind: Run, option: str, wrong: str, remedy: str, right: str
) -> None:
    refused = tradewind("costs", option, wrong)
    assert refused.exit_code == 2
    assert f"unknown {option[2:]} '{wrong}'" in refused.stderr
    assert remedy in refused.stderr
    found = tradewind("costs", option, right, "--since", "2020-01-01", "--until", "2020-01-02")
    assert found.exit_code == 0
    assert "nothing was booked" in found.stdout
