"""What databases report, in our words: each with a remedy."""

from __future__ import annotations

import sqlite3

import pytest
from sqlalchemy.exc import DBAPIError

from orchestrator.store.faults import explain


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
        ("25P03", "stood still"),
        ("53100", "disk is full"),
        ("53300", "out of resources"),
        ("25006", "read-only"),
        ("42501", "refuses this user"),
        ("58030", "cannot be read or written"),
        ("XX001", "damaged"),
        ("23505", "contradicts"),
        ("42601", "failed"),
    ],
)
def test_reports_of_postgres(sqlstate: str | None, words: str) -> None:
    fault = explain(DBAPIError("SELECT 1", {}, PostgresReport(sqlstate)), "postgresql://host/db")
    assert str(fault).startswith("the store postgresql://host/db ")
    assert words in str(fault)
    assert "the server's own words" in str(fault)
    assert fault.hint


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
        (sqlite3.SQLITE_IOERR_WRITE, "cannot be read or written"),
        (sqlite3.SQLITE_CONSTRAINT_UNIQUE, "contradicts"),
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
