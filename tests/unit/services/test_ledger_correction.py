"""Books that are wrong: the check names the command, which books the difference with a reason, and then it passes."""

from __future__ import annotations

import csv
import io
import sqlite3
from contextlib import closing

import pytest

from orchestrator.errors import UsageError
from orchestrator.installation import Installation
from orchestrator.model import Entry
from orchestrator.reports import report
from orchestrator.reports.entries_csv import entries_csv
from orchestrator.services.store.check import CORRECT, check
from orchestrator.services.store.ledger_correction import correct
from orchestrator.services.views import Check
from tests.unit.services.recorded_history import ME, Past


def ledger_of(installation: Installation) -> Check:
    return next(each for each in check(installation.config).checks if each.name == "ledger")


def entries(installation: Installation) -> list[Entry]:
    with installation.store.read() as tx:
        return tx.entries()


def book_again(installation: Installation, run_id: str, shift_ms: int, longer_ms: int) -> int:
    """As two control planes did: the end of a run once more, and on past it. Returns what that was too much."""
    own = next(each for each in entries(installation) if each.run_id == run_id and each.kind == "compute")
    begin, end = own.period_start_ms + shift_ms, own.period_end_ms + longer_ms
    with closing(sqlite3.connect(installation.state_dir / "tradewind.db", isolation_level=None)) as connection:
        kept = "basis, offer_id, at_ms, reverses, project, owner, labels"
        connection.execute(
            "INSERT INTO ledger_entry (id, run_id, job_id, period_start_ms, period_end_ms, kind, amount_nano_usd, "
            f"{kept}) SELECT id || 'x', run_id, job_id, ?, ?, kind, 18400000, {kept} FROM ledger_entry WHERE id = ?",
            (begin, end, own.id),
        )
        connection.execute(
            "UPDATE ledger_sum SET entries = entries + 1, amount_nano_usd = amount_nano_usd + 18400000 "
            "WHERE run_id = ? AND kind = 'compute'",
            (run_id,),
        )
    return 18_400_000


def test_a_machine_that_was_booked_twice_is_corrected_with_a_reason_and_the_store_is_sound_again(
    installation: Installation, past: Past
) -> None:
    before = sum(each.amount_nano_usd for each in entries(installation))
    too_much = book_again(installation, past.runs[0], 1000, 500_000)
    found = ledger_of(installation)
    assert (found.state, found.fix) == ("fail", CORRECT)
    assert f"{past.runs[0]} is booked twice" in found.found
    wanted = correct(installation, "", dry_run=True, caller=ME)
    assert [(each.run_id, each.right_nano_usd - each.booked_nano_usd) for each in wanted.runs] == [
        (past.runs[0], -too_much)
    ]
    assert ledger_of(installation).state == "fail"
    done = correct(installation, "two control planes booked it", caller=ME)
    assert [each.entries for each in done.runs] != []
    assert done.change_nano_usd == wanted.change_nano_usd == -too_much
    assert sum(each.amount_nano_usd for each in entries(installation)) == before
    assert ledger_of(installation).state == "ok"
    with installation.store.read() as tx:
        (reported,) = tx.events(kinds=("ledger.corrected",))
    assert reported.message.endswith("two control planes booked it")
    assert reported.data["reason"] == "two control planes booked it"
    assert reported.actor.startswith("user:")
    assert correct(installation, "again", caller=ME).runs == ()


def test_a_correction_is_a_row_of_the_report_and_of_its_csv(installation: Installation, past: Past) -> None:
    book_again(installation, past.runs[0], 1000, 0)
    correct(installation, "booked twice", caller=ME)
    view = report.report(installation)
    rows = list(csv.DictReader(io.StringIO(entries_csv(view.entries))))
    (row,) = (row for row in rows if row["kind"] == "correction")
    assert row["reverses"] in {each["id"] for each in rows}
    assert sum(int(each["amount_nano_usd"]) for each in rows) == view.paid_nano_usd
    assert "ledger.corrected" in {event.kind for event in view.events}


def test_books_with_a_hole_or_a_wrong_amount_are_made_whole(installation: Installation, past: Past) -> None:
    right = sum(each.amount_nano_usd for each in entries(installation))
    with closing(sqlite3.connect(installation.state_dir / "tradewind.db", isolation_level=None)) as connection:
        triggers = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'ledger_entry'"
        ).fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute("DELETE FROM ledger_entry WHERE run_id = ?", (past.runs[0],))
        connection.execute("UPDATE ledger_entry SET amount_nano_usd = 5 WHERE run_id = ?", (past.runs[1],))
        for _, sql in triggers:
            connection.execute(sql)
    assert ledger_of(installation).fix == CORRECT
    assert {each.run_id for each in correct(installation, "lost", caller=ME).runs} == {past.runs[0], past.runs[1]}
    assert sum(each.amount_nano_usd for each in entries(installation)) == right
    assert ledger_of(installation).state == "ok"


def test_only_the_books_of_the_job_that_is_named_are_corrected(installation: Installation, past: Past) -> None:
    book_again(installation, past.runs[0], 1000, 0)
    assert correct(installation, "mine are well", "lstm", caller=ME).runs == ()
    assert ledger_of(installation).state == "fail"
    assert len(correct(installation, "these are not", "gpt", caller=ME).runs) == 1


@pytest.mark.parametrize("reason", ["", "   ", "two\nlines", "\x1b[2J", "x" * 501])
def test_a_correction_without_a_reason_in_one_printable_line_is_refused(
    installation: Installation, past: Past, reason: str
) -> None:
    book_again(installation, past.runs[0], 1000, 0)
    before = entries(installation)
    with pytest.raises(UsageError):
        correct(installation, reason, caller=ME)
    assert entries(installation) == before


def test_damage_that_no_entry_makes_right_is_not_said_to_be_correctable(installation: Installation, past: Past) -> None:
    name = "ledger_entry_refuses_update"
    with closing(sqlite3.connect(installation.state_dir / "tradewind.db", isolation_level=None)) as connection:
        (sql,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (name,)).fetchone()
        connection.execute(f"DROP TRIGGER {name}")
        connection.execute("UPDATE ledger_entry SET job_id = (SELECT id FROM job WHERE name = 'lstm') WHERE seq = 1")
        connection.execute(sql)
    assert "report this" in ledger_of(installation).fix
