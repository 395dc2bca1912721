"""`store check` finds what is wrong and names the line; `store backup` and `restore` report what they did."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.config import load_config
from orchestrator.errors import StoreError
from orchestrator.installation import Installation
from orchestrator.services.store.backups import backup, restore
from orchestrator.services.store.check import check
from orchestrator.services.views import Check
from tests.postgres import Server
from tests.unit.services.recorded_history import Past

SOUND = [
    "database",
    "integrity",
    "schema",
    "append-only",
    "references",
    "rows",
    "ledger",
    "comparisons",
    "work",
    "leader",
]


def file_of(installation: Installation) -> Path:
    return installation.state_dir / "tradewind.db"


def tamper(installation: Installation, *statements: str) -> None:
    """As somebody with sqlite3 and bad intentions would."""
    with closing(sqlite3.connect(file_of(installation), isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def checks(installation: Installation) -> dict[str, Check]:
    return {each.name: each for each in check(installation.config).checks}


def test_a_sound_store_passes_every_check(installation: Installation, past: Past) -> None:
    lead = installation.store.campaign("me")
    assert lead is not None
    found = check(installation.config)
    assert [each.name for each in found.checks] == SOUND
    assert {each.state for each in found.checks} == {"ok"}, found
    assert not found.failed
    assert "me (process" in found.checks[-1].found
    assert all(not each.fix for each in found.checks)


def test_work_without_a_leader_is_a_warning(installation: Installation, past: Past) -> None:
    leader = checks(installation)["leader"]
    assert (leader.state, leader.fix) == ("warn", "tradewind up")


def test_the_check_changes_nothing(installation: Installation, past: Past) -> None:
    installation.store.close()
    before = file_of(installation).read_bytes()
    check(installation.config)
    assert file_of(installation).read_bytes() == before


UNPROTECT = "DROP TRIGGER ledger_entry_refuses_update"
PROTECT = (
    "CREATE TRIGGER ledger_entry_refuses_update BEFORE UPDATE ON ledger_entry "
    "BEGIN SELECT RAISE(ABORT, 'ledger_entry is append-only'); END"
)
FIRST_ENTRY = "seq = (SELECT min(seq) FROM ledger_entry)"


@pytest.mark.parametrize(
    ("name", "statements", "words"),
    [
        ("append-only", [UNPROTECT], "rows of ledger_entry can be changed"),
        ("schema", ["DROP INDEX run_unsettled"], "run has no index run_unsettled"),
        ("schema", ["ALTER TABLE periodic_task DROP COLUMN last_ok_ms"], "periodic_task has no column last_ok_ms"),
        ("schema", ["DROP TABLE periodic_task"], "table periodic_task is missing"),
        ("references", ["DELETE FROM job WHERE name = 'conv'"], "refers to a missing job"),
        ("references", ["DELETE FROM price_source"], "of price_point refer to a missing offer or price_source"),
        (
            "ledger",
            [UNPROTECT, f"UPDATE ledger_entry SET amount_nano_usd = amount_nano_usd + 1 WHERE {FIRST_ENTRY}", PROTECT],
            "is not booked at its prices",
        ),
        (
            "ledger",
            [UNPROTECT, f"UPDATE ledger_entry SET period_start_ms = period_start_ms - 1 WHERE {FIRST_ENTRY}", PROTECT],
            "is booked twice at",
        ),
        (
            "ledger",
            [UNPROTECT, f"UPDATE ledger_entry SET period_start_ms = period_start_ms + 1 WHERE {FIRST_ENTRY}", PROTECT],
            "is booked with a gap at",
        ),
        (
            "ledger",
            [UNPROTECT, f"UPDATE ledger_entry SET reverses = 'ent_X' WHERE {FIRST_ENTRY}", PROTECT],
            "corrects ent_X, which is not an entry",
        ),
        (
            "ledger",
            [
                UNPROTECT,
                f"UPDATE ledger_entry SET job_id = (SELECT id FROM job WHERE name = 'lstm') WHERE {FIRST_ENTRY}",
                PROTECT,
            ],
            "belongs to another job than its run",
        ),
        (
            "ledger",
            ["UPDATE run SET billed_to_ms = billed_to_ms + 1 WHERE billed_to_ms IS NOT NULL"],
            "only, and ended at",
        ),
        (
            "rows",
            ["UPDATE run SET billed_to_ms = 1 WHERE state <> 'ended'"],
            "billed_to_ms: it is 1, but the run has no end",
        ),
        (
            "work",
            ["UPDATE run SET instance_id = NULL WHERE state <> 'ended'", "UPDATE migration SET step = 'done'"],
            "without a machine and without a migration",
        ),
        (
            "work",
            ["UPDATE job SET state = 'running' WHERE name = 'lstm'"],
            "is running, but has no run",
        ),
        (
            "work",
            ["UPDATE migration SET step = 'provision', job_id = (SELECT id FROM job WHERE name = 'gpt')"],
            "migrations at once",
        ),
    ],
)
def test_what_is_wrong_is_a_line_that_fails_with_its_remedy(
    installation: Installation, past: Past, name: str, statements: list[str], words: str
) -> None:
    tamper(installation, *statements)
    found = checks(installation)[name]
    assert (found.state, bool(found.fix)) == ("fail", True)
    assert words in found.found
    assert check(installation.config).failed


def test_a_damaged_file_is_a_line_that_fails(installation: Installation, past: Past) -> None:
    installation.store.close()
    whole = file_of(installation).read_bytes()
    file_of(installation).write_bytes(whole[:-20_480] + b"\xff" * 20_480)
    found = check(installation.config)
    assert found.failed
    assert any("store restore" in each.fix for each in found.checks)
    file_of(installation).write_bytes(b"\xff" * 1000)
    (only,) = check(installation.config).checks
    assert (only.name, only.state) == ("store", "fail")


def test_other_versions_are_reported_and_left_alone(installation: Installation) -> None:
    tamper(installation, "UPDATE schema_revision SET version_num = '20991231_0000_ffffff'")
    schema = checks(installation)["schema"]
    assert (schema.state, schema.fix) == ("fail", "pip install --upgrade tradewind")
    tamper(installation, "UPDATE schema_revision SET version_num = '20261121_1015_6c4e9a'")
    assert checks(installation)["schema"].state == "warn"
    with closing(sqlite3.connect(file_of(installation))) as connection:
        assert connection.execute("SELECT version_num FROM schema_revision").fetchone() == ("20261121_1015_6c4e9a",)


def test_no_store_is_a_line_that_fails_and_none_is_made(installation: Installation) -> None:
    installation.store.close()
    file_of(installation).unlink()
    assert check(installation.config).failed
    assert not file_of(installation).exists()
    file_of(installation).touch()
    assert checks(installation)["schema"].found == "the database contains no store"


def test_a_backup_goes_back_and_into_postgres(
    installation: Installation, past: Past, tmp_path: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = backup(installation.config, tmp_path / "b.db")
    assert made.size_bytes == (tmp_path / "b.db").stat().st_size
    assert made.install_id == installation.store.install_id
    installation.store.close()
    done = restore(installation.config, tmp_path / "b.db")
    assert (done.revision, done.kept) == (made.revision, f"{file_of(installation)}.replaced")
    url = postgres.create("restored_service")
    monkeypatch.setenv("TRADEWIND_STORE_URL", url)
    config = load_config({"state_dir": str(tmp_path / "other"), "providers.enabled": "fake"})
    assert restore(config, tmp_path / "b.db").kept is None
    found = check(config)
    assert not found.failed, found
    assert [each.name for each in found.checks] == SOUND
    again = backup(config, tmp_path / "c.db")
    assert again.install_id == made.install_id
    with pytest.raises(StoreError, match="exists"):
        backup(config, tmp_path / "c.db")
