"""Jobs that wait, are paused, have ended or have not run, as the commands show them."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.services.recorded_history import Past


def test_a_queue_in_which_all_jobs_have_ended_says_how_to_see_them(tradewind: Run, state: Path, past: Past) -> None:
    with closing(sqlite3.connect(state / "tradewind.db")) as connection, connection:
        connection.execute("UPDATE job SET state = 'cancelled' WHERE state != 'finished'")
    queue = tradewind("queue")
    assert (queue.stdout, queue.stderr) == ("3 ended: tradewind queue --all\n", "")
    listed = json.loads(tradewind("queue", "--output", "json").stdout)
    assert (listed["jobs"], listed["ended"]) == ([], 3)
    everything = queue.stdout.strip().partition(": tradewind ")[2].split()
    assert "gpt" in tradewind(*everything).stdout


@pytest.mark.parametrize("command", ["queue", "status", "nodes"])
def test_open_jobs_and_machines_are_listed_with_a_warning_that_nobody_looks_after_them(
    tradewind: Run, past: Past, command: str
) -> None:
    listed = tradewind(command)
    assert listed.exit_code == 0
    assert "no control plane is running here" in listed.stderr
    assert "tradewind up" in listed.stderr
    (warning,) = json.loads(tradewind(command, "--output", "json").stdout)["command_warnings"]
    assert warning["hint"] == "tradewind up"


def test_waiting_for_a_job_that_is_not_there_says_only_that(tradewind: Run, past: Past) -> None:
    result = tradewind("wait", "nope")
    assert result.exit_code == 4
    assert result.stderr.splitlines() == ["error: there is no job 'nope'", "hint: tradewind queue lists them"]


def test_waiting_without_a_control_plane_says_once_that_nothing_happens(tradewind: Run, past: Past) -> None:
    result = tradewind("wait", "conv", "--timeout", "0")
    assert result.stderr.count("no control plane is running here") == result.stderr.count("tradewind up") == 1
    assert "hint: tradewind status conv" in result.stderr


def test_logs_of_a_job_that_has_not_run_say_so_and_why(tradewind: Run, state: Path, past: Past) -> None:
    result = tradewind("logs", "lstm")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.splitlines() == [
        "lstm has not run yet: submitted, objective cheapest",
        "warning: no control plane is running here, so jobs are not watched or moved, and costs are not booked",
        "hint: tradewind up",
    ]
    tradewind("cancel", "lstm")
    with closing(sqlite3.connect(state / "tradewind.db")) as connection, connection:
        connection.execute("UPDATE job SET state = 'cancelled', finished_at_ms = 1 WHERE id = ?", (past.lstm,))
    connection.close()
    assert "lstm never ran: " in tradewind("logs", "lstm").stderr


def test_waiting_for_a_paused_job_exits_with_its_reason(tradewind: Run, state: Path, past: Past) -> None:
    with closing(sqlite3.connect(state / "tradewind.db")) as connection, connection:
        connection.execute("UPDATE job SET state = 'paused' WHERE id = ?", (past.conv,))
    connection.close()
    result = tradewind("wait", "conv")
    assert result.exit_code == 8
    assert "error: conv is paused at its last checkpoint" in result.stderr
    assert "; to continue: tradewind resume conv" in result.stderr


def test_the_hint_of_a_pause_does_not_contradict_its_reason(tradewind: Run, state: Path, past: Past) -> None:
    """`resume` alone would pause it again."""
    why = "paused: its budget is spent; to continue: tradewind budget set conv 9, then tradewind resume conv"
    with closing(sqlite3.connect(state / "tradewind.db")) as connection, connection:
        connection.execute("UPDATE job SET state = 'paused' WHERE id = ?", (past.conv,))
        connection.execute(
            "INSERT INTO event (id, at_ms, kind, message, actor, job_id, data, project, owner, labels) "
            "SELECT 'ev_pause', at_ms, 'job.paused', ?, actor, job_id, data, project, owner, labels FROM event "
            "WHERE job_id = ? LIMIT 1",
            (why, past.conv),
        )
    connection.close()
    result = tradewind("wait", "conv")
    assert result.stderr.endswith(f"error: conv is {why}\n")
    assert json.loads(tradewind("wait", "conv", "--output", "json").stdout)["error"]["hint"] == ""


def test_a_failure_before_a_pause_is_a_sentence_of_its_own(tradewind: Run, state: Path, past: Past) -> None:
    with closing(sqlite3.connect(state / "tradewind.db")) as connection, connection:
        connection.execute("UPDATE job SET state = 'paused' WHERE id = ?", (past.conv,))
        connection.execute("UPDATE run SET state = 'ended', end = 'failed' WHERE job_id = ?", (past.conv,))
    connection.close()
    assert re.search(r"conv: attempt \d+ of \d+ failed: .*; paused at its last", tradewind("wait", "conv").stderr)
    assert "conv: attempt" in tradewind("explain", "conv").stdout


def test_events_of_all_jobs_say_whose_they_are(tradewind: Run, past: Past) -> None:
    every, own = tradewind("events").stdout.splitlines(), tradewind("events", "conv").stdout.splitlines()
    assert [line for line in every if " gpt " in line]
    assert [line for line in every if " conv " in line]
    assert not [line for line in own if " conv " in line]
