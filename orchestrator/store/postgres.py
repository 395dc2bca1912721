"""Postgres as a backend, by URL. Must not know tables.

A write transaction takes one advisory lock first, so that writers take turns as they do on SQLite: rows become visible
in the order of their sequence numbers, and what a transaction has read does not change before it writes.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL

from orchestrator.errors import MissingExtraError, StoreError

LOCK_TIMEOUT_S = 10
"""How long a writer waits for its turn."""

IDLE_TIMEOUT_S = 30
"""After this long without a statement the server ends a transaction: a stopped process cannot block the others."""

_WRITER = 0x7472_6164_6577  # "tradew": the advisory lock of writers, one per database


class PostgresBackend:
    """Engines for reading (one snapshot per transaction) and for writing (one transaction at a time).

    Raises MissingExtraError without psycopg.
    """

    def __init__(self, url: URL) -> None:
        if find_spec("psycopg") is None:
            raise MissingExtraError("psycopg", "postgres")
        self.place = url.set(drivername="postgresql").render_as_string(hide_password=True)
        engine = create_engine(
            url.set(drivername="postgresql+psycopg"),
            pool_pre_ping=True,  # the server may have been restarted since
            max_overflow=-1,
            connect_args={
                "connect_timeout": LOCK_TIMEOUT_S,
                "options": f"-c lock_timeout={LOCK_TIMEOUT_S}s"
                f" -c idle_in_transaction_session_timeout={IDLE_TIMEOUT_S}s",
            },
        )
        event.listen(engine, "begin", _begin)
        self.reading: Engine = engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        self.writing: Engine = engine.execution_options(writes=True)

    def settle(self) -> None:
        """Nothing to turn on."""

    def check(self) -> None:
        """A lost database shows at the next statement."""

    def backup(self, path: Path) -> None:
        raise StoreError("a Postgres store is backed up by Postgres", hint=f"pg_dump -Fc -f {path} {self.place}")

    def backup_before(self, revision: str) -> None:
        """Left to the backups of the database."""

    def close(self) -> None:
        self.writing.dispose()


def _begin(connection: Connection) -> None:
    if connection.get_execution_options().get("writes", False):
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITER})")
