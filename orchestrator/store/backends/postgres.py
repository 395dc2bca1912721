"""The Postgres backend.

A write transaction first takes one advisory lock, so writers run one at a time as on SQLite: rows become visible in the
order of their sequence numbers, and rows that a transaction has read do not change before it writes.
"""

from __future__ import annotations

import random
import select
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Dialect, Engine, create_engine, event, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import InvalidatePoolError

from orchestrator.errors import MissingExtraError, StoreError
from orchestrator.store.backends.faults import too_many_clients
from orchestrator.store.backends.files import unused
from orchestrator.store.backends.sqlite import seconds

LOCK_TIMEOUT_S = 30.0
"""How long a writer waits for the lock; `?timeout=2` in the URL overrides it."""

CONNECT_POLL_S = 0.2
"""Seconds between two attempts to connect to a server without a free connection."""

WRITER_IDLE_S = 4
"""Seconds without a statement after which the server ends a write, so a stopped process cannot block others."""

READER_IDLE_S = 60
"""The same for a read."""

UNHURRIED_IDLE_S = 600
"""The same for a transaction that copies or upgrades a whole store: a slow disk or a busy host must not end it."""

_TIMEOUTS = {  # the defaults would wait a quarter of an hour for an unreachable server
    "connect_timeout": 10,
    "tcp_user_timeout": 10_000,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
}
_WRITER = 0x7472_6164_6577  # "tradew": the advisory lock of writers, one per database


class PostgresBackend:
    """Engines for reading (one snapshot per transaction) and for writing (one transaction at a time).

    Raises MissingExtraError without psycopg.
    """

    def __init__(self, url: URL, *, backups: Path | None) -> None:
        if find_spec("psycopg") is None:
            raise MissingExtraError("psycopg", "postgres")
        self.file: str | None = None
        self.place = url.set(drivername="postgresql").render_as_string(hide_password=True)
        self._backups = backups
        self._patience_s = seconds(url, LOCK_TIMEOUT_S)
        patience_ms = round(self._patience_s * 1000)
        url = url.difference_update_query(["timeout"])
        self.reading: Engine = _engine(
            url,
            default_transaction_isolation="repeatable read",
            default_transaction_read_only="on",
            idle_in_transaction_session_timeout=f"{READER_IDLE_S}s",
        )
        self.writing: Engine = _engine(
            url, lock_timeout=f"{patience_ms}ms", idle_in_transaction_session_timeout=f"{WRITER_IDLE_S}s"
        )
        event.listen(self.writing, "begin", _take_turn)
        event.listen(self.reading, "do_connect", lambda *asked: self._connect(self.writing, *asked))
        event.listen(self.writing, "do_connect", lambda *asked: self._connect(self.reading, *asked))

    def _connect(self, other: Engine, dialect: Dialect, _record: object, args: Any, options: Any) -> Any:
        """A connection. While the server has none left, it closes idle connections of the `other` engine and tries
        again: otherwise many processes could wait for connections that other processes keep idle."""
        began_s = time.monotonic()
        while True:
            try:
                return dialect.connect(*args, **options)
            except dialect.loaded_dbapi.OperationalError as error:
                if not too_many_clients(error) or time.monotonic() - began_s >= self._patience_s:
                    raise
            other.dispose()
            time.sleep(CONNECT_POLL_S * random.uniform(0.5, 1.5))

    def enable_sharing(self) -> None:
        """Does nothing: Postgres is always shared."""

    def check(self) -> None:
        """Does nothing: a lost database shows at the next statement."""

    def discard(self) -> None:
        """Closes idle connections."""
        self.reading.dispose()
        self.writing.dispose()

    def backup(self, path: Path) -> None:
        """Writes a consistent copy, an SQLite store, to `path`, which must not exist. Raises StoreError."""
        from orchestrator.store.recovery.copy import copy_to_file

        copy_to_file(self.reading, path, self.place)

    def backup_before(self, revision: str) -> None:
        """Takes a backup in the folder for backups. Raises StoreError if none was given."""
        if self._backups is None:
            raise StoreError(
                f"{self.place} needs an upgrade, and there is no folder for the backup before it",
                hint="open it with backups=FOLDER, or use the command line, which puts backups into state_dir",
            )
        self.backup(unused(self._backups / f"store.before-upgrade-from-{revision}"))

    def close(self) -> None:
        """Closes all connections."""
        self.discard()


def _engine(url: URL, **settings: str) -> Engine:
    """A pool of connections with these server `settings`. JIT is off: compiling takes longer than our queries."""
    settings["jit"] = "off"
    options = " ".join("-c " + f"{name}={value}".replace(" ", r"\ ") for name, value in settings.items())
    engine = create_engine(
        url.set(drivername="postgresql+psycopg"),
        max_overflow=-1,
        connect_args=_TIMEOUTS | {"options": options},
    )
    event.listen(engine, "checkout", _require_alive)
    return engine


def _require_alive(connection: Any, _record: object, _proxy: object) -> None:
    """Checks a pooled connection without a query: an idle one has data to read only if its server has closed it."""
    poller = select.poll()
    if not connection.closed:
        poller.register(connection.fileno(), select.POLLIN)
    if connection.closed or poller.poll(0):
        raise InvalidatePoolError  # the server restarted: the other pooled connections are dead, too


def _take_turn(connection: Connection) -> None:
    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITER})")


def unhurried(connection: Connection) -> None:
    """Lets the transaction pause between statements for up to UNHURRIED_IDLE_S. Does nothing on SQLite."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SET LOCAL idle_in_transaction_session_timeout = '{UNHURRIED_IDLE_S}s'"))
