"""A damaged cell in any column of any table: every command works, or says what is damaged and what to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

import pytest
from sqlalchemy import Column, Text

from orchestrator.errors import TradewindError, UnreadableRowError
from orchestrator.installation import Installation
from orchestrator.reports import report
from orchestrator.services.jobs import current, plan
from orchestrator.services.nodes import listing
from orchestrator.services.store import check
from orchestrator.store.schema_base import metadata
from tests.unit.services.recorded_history import SPOT, Past

OF_TEXT = ("'T4-none'", "x'ff00'", "CAST(x'ff' AS TEXT)", "''", "'{'", "-1")
OF_NUMBERS = ("-1", "x'ff00'", "9e999", "9223372036854775807", "'noon'", "NULL")
COMMANDS: dict[str, Callable[[Installation], object]] = {
    "queue": lambda installation: current.jobs(installation, ended=True),
    "status": lambda installation: current.status(installation, "gpt"),
    "nodes": listing.nodes,
    "report": report.report,
    "plan": lambda installation: plan.preview(installation, [], all_jobs=True),
    "store check": lambda installation: check.check(installation.config),
}
PARTS = 4


@pytest.fixture
def database(installation: Installation, past: Past) -> Iterator[sqlite3.Connection]:
    """The tables of the store, without what protects them."""
    assert past
    with closing(sqlite3.connect(installation.config.state_dir / "tradewind.db", isolation_level=None)) as connection:
        connection.executescript("PRAGMA foreign_keys = OFF; PRAGMA synchronous = OFF")
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        yield connection


@contextmanager
def damaged(database: sqlite3.Connection, column: Column[object], cell: str) -> Iterator[None]:
    """A table with `cell` in this column of its first row, unless it refuses that."""
    table = column.table
    first = " AND ".join(f'"{key.name}" = (SELECT min("{key.name}") FROM {table.name})' for key in table.primary_key)
    database.execute(f"CREATE TEMP TABLE saved AS SELECT * FROM {table.name}")
    with suppress(sqlite3.IntegrityError):
        database.execute(f'UPDATE {table.name} SET "{column.name}" = {cell} WHERE {first}')
    try:
        yield
    finally:
        database.execute(f"DELETE FROM {table.name}")
        database.execute(f"INSERT INTO {table.name} SELECT * FROM saved")
        database.execute("DROP TABLE saved")


def said(installation: Installation, command: str) -> TradewindError | None:
    try:
        COMMANDS[command](installation)
    except TradewindError as error:
        return error
    return None


@pytest.mark.parametrize("part", range(PARTS))
def test_a_damaged_cell_of_any_column_is_left_out_or_named_with_a_remedy(
    installation: Installation, database: sqlite3.Connection, part: int
) -> None:
    """Each column in one way and for three of the commands, its neighbours in other ways and for others."""
    names = list(COMMANDS)
    for number, table in enumerate(metadata.sorted_tables):
        if number % PARTS != part or not database.execute(f"SELECT count(*) FROM {table.name}").fetchone()[0]:
            continue
        for turn, column in enumerate(table.columns):
            ways = OF_TEXT if isinstance(column.type, Text) else OF_NUMBERS
            with damaged(database, column, ways[turn % len(ways)]):
                for command in (names[(turn + more) % len(names)] for more in range(3)):
                    error = said(installation, command)
                    assert error is None or error.hint, (column, command, error)
    assert all(said(installation, command) is None for command in COMMANDS)


NAMED = [
    ("offer", "gpu", "'T4-none'", "gpu: 'T4-none' is not"),
    ("offer", "gpu_count", "-1", "gpu_count: -1"),
    ("offer", "capacity_type", "'stolen'", "capacity_type"),
    ("offer", "memory_bytes", "-1", "memory_bytes: -1"),
    ("offer", "region", "'a/b'", "do not form a valid offer id"),
    ("perf_point", "gpu", "'T4-none'", "gpu"),
    ("perf_point", "gpu_count", "-1", "gpu_count"),
    ("perf_point", "steps_per_s", "9e999", "steps_per_s"),
    ("perf_point", "steps", "-1", "steps"),
    ("perf_point", "job_id", "x'ff00'", "job_id"),
    ("price_now", "effective_at_ms", "9223372036854775807", "effective_at_ms"),
]


@pytest.mark.parametrize(("table", "column", "cell", "reason"), NAMED)
def test_values_that_no_row_can_have_are_named_by_their_columns(
    installation: Installation, database: sqlite3.Connection, table: str, column: str, cell: str, reason: str
) -> None:
    wanted = f"id = '{SPOT}'" if table == "offer" else "1 = 1"
    database.execute(f'UPDATE {table} SET "{column}" = {cell} WHERE {wanted}')
    error = said(installation, "plan")
    assert isinstance(error, UnreadableRowError)
    assert error.table == table
    assert reason in error.reason
    assert "tradewind store check" in error.hint
    assert "restore" in error.hint


def test_a_job_whose_id_is_no_text_is_named(installation: Installation, database: sqlite3.Connection) -> None:
    database.execute("UPDATE job SET id = x'ff00' WHERE name = 'gpt'")
    for command in ("queue", "status", "report"):
        error = said(installation, command)
        assert isinstance(error, UnreadableRowError)
        assert (error.table, error.key) == ("job", b"\xff\x00")


def test_a_job_whose_runs_have_lost_when_they_trained_is_not_compared(
    installation: Installation, database: sqlite3.Connection
) -> None:
    database.execute("UPDATE run SET training_from_ms = NULL")
    rows = report.report(installation).jobs
    assert len(rows) == 3


def test_a_job_whose_name_is_no_text_does_not_keep_others_from_being_looked_for(
    installation: Installation, database: sqlite3.Connection
) -> None:
    database.execute("UPDATE job SET name = x'ff00' WHERE name = 'gpt'")
    error = said(installation, "status")
    assert error is not None
    assert "there is no job 'gpt'" in str(error)
