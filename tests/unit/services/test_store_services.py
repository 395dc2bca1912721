"""`store check` finds what is wrong and names the line; `store backup` and `restore` are told as they went."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.config import load_config
from orchestrator.errors import StoreError
from orchestrator.installation import World
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


def file_of(world: World) -> Path:
    return world.state_dir / "tradewind.db"


def tamper(world: World, *statements: str) -> None:
    """As somebody with sqlite3 and bad intentions would."""
    with closing(sqlite3.connect(file_of(world), isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def checks(world: World) -> dict[str, Check]:
    return {each.name: each for each in check(world.config).checks}


def test_a_sound_store_passes_every_check(world: World, past: Past) -> None:
    lead = world.store.campaign("me")
    assert lead is not None
    found = check(world.config)
    assert [each.name for each in found.checks] == SOUND
    assert {each.state for each in found.checks} == {"ok"}, found
    assert not found.failed
    assert "me (process" in found.checks[-1].found
    assert all(not each.fix for each in found.checks)


def test_work_without_a_leader_is_a_warning(world: World, past: Past) -> None:
    leader = checks(world)["leader"]
    assert (leader.state, leader.fix) == ("warn", "tradewind up")


def test_the_check_changes_nothing(world: World, past: Past) -> None:
    world.store.close()
    before = file_of(world).read_bytes()
    check(world.config)
    assert file_of(world).read_bytes() == before


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
        ("schema", ["ALTER TABLE duty DROP COLUMN last_ok_ms"], "duty has no column last_ok_ms"),
        ("schema", ["DROP TABLE duty"], "there is no table duty"),
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
            "corrects ent_X, which is no entry",
        ),
        (
            "ledger",
            [
                UNPROTECT,
                f"UPDATE ledger_entry SET job_id = (SELECT id FROM job WHERE name = 'lstm') WHERE {FIRST_ENTRY}",
                PROTECT,
            ],
            "names another job than its run",
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
            "without a machine and without a move",
        ),
        (
            "work",
            ["UPDATE job SET state = 'running' WHERE name = 'lstm'"],
            "is running, and nothing runs or is under way for it",
        ),
        (
            "work",
            ["UPDATE migration SET step = 'provision', job_id = (SELECT id FROM job WHERE name = 'gpt')"],
            "moves at once",
        ),
    ],
)
def test_what_is_wrong_is_a_line_that_fails_with_its_remedy(
    world: World, past: Past, name: str, statements: list[str], words: str
) -> None:
    tamper(world, *statements)
    found = checks(world)[name]
    assert (found.state, bool(found.fix)) == ("fail", True)
    assert words in found.found
    assert check(world.config).failed


def test_a_damaged_file_is_a_line_that_fails(world: World, past: Past) -> None:
    world.store.close()
    whole = file_of(world).read_bytes()
    file_of(world).write_bytes(whole[:-20_480] + b"\xff" * 20_480)
    found = check(world.config)
    assert found.failed
    assert any("store restore" in each.fix for each in found.checks)
    file_of(world).write_bytes(b"\xff" * 1000)
    (only,) = check(world.config).checks
    assert (only.name, only.state) == ("store", "fail")


def test_other_versions_are_told_and_left_alone(world: World) -> None:
    tamper(world, "UPDATE schema_revision SET version_num = '20991231_0000_ffffff'")
    schema = checks(world)["schema"]
    assert (schema.state, schema.fix) == ("fail", "pip install --upgrade tradewind")
    tamper(world, "UPDATE schema_revision SET version_num = '20261121_1015_6c4e9a'")
    assert checks(world)["schema"].state == "warn"
    with closing(sqlite3.connect(file_of(world))) as connection:
        assert connection.execute("SELECT version_num FROM schema_revision").fetchone() == ("20261121_1015_6c4e9a",)


def test_no_store_is_a_line_that_fails_and_none_is_made(world: World) -> None:
    world.store.close()
    file_of(world).unlink()
    assert check(world.config).failed
    assert not file_of(world).exists()
    file_of(world).touch()
    assert checks(world)["schema"].found == "there is no store in it"


def test_a_backup_goes_back_and_into_postgres(
    world: World, past: Past, tmp_path: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = backup(world.config, tmp_path / "b.db")
    assert made.size_bytes == (tmp_path / "b.db").stat().st_size
    assert made.install_id == world.store.install_id
    world.store.close()
    done = restore(world.config, tmp_path / "b.db")
    assert (done.revision, done.kept) == (made.revision, f"{file_of(world)}.replaced")
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
