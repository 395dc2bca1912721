"""What databases report, in our words: each with a remedy."""

from __future__ import annotations

import sqlite3

import pytest
from sqlalchemy.exc import DBAPIError

from orchestrator.errors import RowError, StoreDamagedError
from orchestrator.store.backends.faults import explain


class PostgresReport(Exception):
    """An error as psycopg raises it: `sqlstate` is None when no connection came about."""

    def __init__(self, sqlstate: str | None) -> None:
        super().__init__("the server's own words")
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    ("sqlstate", "words"),
    [
        (None, "cannot be reached"),
        ("08006", "cannot be reached"),
        ("57P01", "cannot be reached"),
        ("55P03", "locked by another process"),
        ("25P03", "idle transaction"),
        ("53100", "disk is full"),
        ("53300", "too many clients"),
        ("53200", "out of resources"),
        ("57014", "statement_timeout"),
        ("42P01", "damaged"),
        ("XX000", "damaged"),
        ("25006", "read-only"),
        ("42501", "denies access"),
        ("58030", "cannot be read or written"),
        ("XX001", "damaged"),
        ("23505", "constraint"),
        ("42601", "failed"),
    ],
)
def test_reports_of_postgres(sqlstate: str | None, words: str) -> None:
    fault = explain(DBAPIError("SELECT 1", {}, PostgresReport(sqlstate)), "postgresql://host/db")
    assert str(fault).startswith("the store postgresql://host/db ")
    assert words in str(fault)
    assert "the server's own words" in str(fault)
    assert fault.hint


@pytest.mark.parametrize("sqlstate", ["22003", "22021", "23505", "23503"])
def test_a_database_error_about_one_row_is_not_a_fault_of_the_store(sqlstate: str) -> None:
    fault = explain(DBAPIError("INSERT", {}, PostgresReport(sqlstate)), "postgresql://host/db")
    assert isinstance(fault, RowError)
    assert not isinstance(explain(DBAPIError("INSERT", {}, PostgresReport("53100")), "postgresql://host/db"), RowError)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (sqlite3.SQLITE_BUSY, "locked by another process"),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, "locked by another process"),
        (sqlite3.SQLITE_FULL, "disk is full"),
        (sqlite3.SQLITE_READONLY_DBMOVED, "read-only"),
        (sqlite3.SQLITE_CANTOPEN, "cannot be opened"),
        (sqlite3.SQLITE_NOTADB, "not a database"),
        (sqlite3.SQLITE_CORRUPT_INDEX, "damaged"),
        (sqlite3.SQLITE_IOERR_SHMSIZE, "disk is full"),
        (sqlite3.SQLITE_IOERR_WRITE, "cannot be read or written"),
        (sqlite3.SQLITE_CONSTRAINT_UNIQUE, "constraint"),
        (sqlite3.SQLITE_ERROR, "failed"),
    ],
)
def test_reports_of_sqlite(code: int, words: str) -> None:
    report = sqlite3.OperationalError("SQLite's own words")
    report.sqlite_errorcode = code
    fault = explain(report, "/state/tradewind.db")
    assert words in str(fault)
    assert "SQLite's own words" in str(fault)
    assert fault.hint


def test_only_a_write_within_a_read_transaction_is_reported_as_one() -> None:
    report = sqlite3.OperationalError("attempt to write a readonly database")
    for code, in_a_read in ((sqlite3.SQLITE_READONLY, True), (sqlite3.SQLITE_READONLY_CANTINIT, False)):
        report.sqlite_errorcode = code
        assert ("read transaction" in str(explain(report, "/state/tradewind.db", reading=True))) is in_a_read
        assert "is read-only" in str(explain(report, "/state/tradewind.db"))


@pytest.mark.parametrize(
    "words",
    [
        "connection failed: FATAL:  sorry, too many clients already",
        "FATAL:  remaining connection slots are reserved for roles with the SUPERUSER attribute",
        'FATAL:  too many connections for role "tradewind"',
        "FATAL:  no more connections allowed (max_client_conn)",
    ],
)
def test_a_server_that_takes_no_more_clients_is_called_so_though_it_says_it_without_a_code(words: str) -> None:
    report = PostgresReport(None)
    report.args = (words,)
    fault = explain(DBAPIError("", {}, report), "postgresql://host/db")
    assert "the store postgresql://host/db has too many clients" in str(fault)
    assert "max_connections" in fault.hint


@pytest.mark.parametrize(
    "report",
    [
        sqlite3.OperationalError("no such table: job"),
        sqlite3.OperationalError("no such column: job.spec"),
        sqlite3.OperationalError("Could not decode to UTF-8 column 'owner' with text '\\xff'"),
    ],
)
def test_what_every_store_has_is_missed_as_damage(report: sqlite3.OperationalError) -> None:
    fault = explain(report, "/state/tradewind.db")
    assert isinstance(fault, StoreDamagedError)
    assert "store restore" in fault.hint
