"""Read-only checks of a store: damaged pages, missing triggers, dangling references, missing tables and columns.

Each check returns one line per finding.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Connection, inspect, text

from orchestrator.errors import StoreVersionError
from orchestrator.store.backends.backend import backend_of, transaction
from orchestrator.store.leadership import leader
from orchestrator.store.leadership.leader import LeaderInfo
from orchestrator.store.revise import HEAD, SHIPPED, revision_of
from orchestrator.store.schema import APPEND_ONLY, ARCHIVED
from orchestrator.store.schema_base import metadata

_MOST = 10  # lines per check
_TRIGGERS_OF_POSTGRES = """
SELECT tgname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
WHERE tgenabled = 'O' AND relnamespace = current_schema()::regnamespace
"""


@dataclass(frozen=True)
class Examination:
    """A database under examination, in one snapshot. `revision` is None if it is empty."""

    connection: Connection
    place: str
    revision: str | None

    @property
    def age(self) -> str:
        """`current`, `older` (will be upgraded at the next use) or `newer` (this version cannot use it)."""
        if self.revision == HEAD:
            return "current"
        try:
            SHIPPED.upwards(self.revision, self.place)
        except StoreVersionError:
            return "newer"
        return "older"

    def damage(self) -> list[str]:
        """Damaged pages, as the database reports them. Raises StoreError if the check itself fails."""
        if self._sqlite:
            found = self.connection.execute(text(f"PRAGMA integrity_check({_MOST})")).scalars().all()
            return [] if found == ["ok"] else [str(line) for line in found]
        for name in inspect(self.connection).get_table_names():
            self.connection.execute(text(f'SELECT count(each::text) FROM "{name}" AS each'))  # reads every byte
        return []

    def lost_protection(self) -> list[str]:
        """Append-only tables whose triggers are missing."""
        verbs = ["update", "delete"] if self._sqlite else ["change"]
        query = "SELECT name FROM sqlite_master WHERE type = 'trigger'" if self._sqlite else _TRIGGERS_OF_POSTGRES
        present = set(self.connection.execute(text(query)).scalars())
        tables = set(inspect(self.connection).get_table_names())  # an older revision has fewer
        needed = {name: {f"{name}_refuses_{verb}" for verb in verbs} for name in APPEND_ONLY if name in tables}
        if self.revision == HEAD:
            for name in ARCHIVED:
                needed[name].add(f"{name}_refuses_delete")
        return [f"rows of {table} can be changed" for table, names in needed.items() if names - present]

    def dangling(self) -> list[str]:
        """Rows that refer to missing rows."""
        return self._dangling_prices() + self._dangling_keys()

    def _dangling_prices(self) -> list[str]:
        """Price tables have no foreign keys, because each poll writes thousands of rows."""
        query = (
            "SELECT count(*) FROM {table} WHERE NOT EXISTS (SELECT 1 FROM offer WHERE key = {table}.offer_key) "
            "OR NOT EXISTS (SELECT 1 FROM price_source WHERE key = {table}.source_key)"
        )
        present = set(inspect(self.connection).get_table_names())  # an older revision has fewer
        tables = [name for name in ("price_point", "price_now") if name in present]
        counts = {table: self.connection.execute(text(query.format(table=table))).scalar_one() for table in tables}
        return [f"{n} rows of {table} refer to a missing offer or price_source" for table, n in counts.items() if n]

    def _dangling_keys(self) -> list[str]:
        if self._sqlite:
            rows = self.connection.execute(text("PRAGMA foreign_key_check")).all()
            return [f"row {row[1]} of {row[0]} refers to a missing {row[2]}" for row in rows[:_MOST]]
        loose = text(
            "SELECT conrelid::regclass || '.' || conname FROM pg_constraint "
            "WHERE contype = 'f' AND NOT convalidated AND connamespace = current_schema()::regnamespace"
        )
        return [f"{name} is not enforced" for name in self.connection.execute(loose).scalars()]

    def differences(self) -> list[str]:
        """Tables, columns and indexes of the current revision that are missing."""
        inspector = inspect(self.connection)
        present = set(inspector.get_table_names())
        lines = []
        for table in metadata.sorted_tables:
            if table.name not in present:
                lines.append(f"table {table.name} is missing")
                continue
            columns = {each["name"] for each in inspector.get_columns(table.name)}
            indexes = {each["name"] for each in inspector.get_indexes(table.name)}
            lines += [f"{table.name} has no column {each.name}" for each in table.columns if each.name not in columns]
            lines += [
                f"{table.name} has no index {each.name}"
                for each in sorted(table.indexes, key=lambda index: str(index.name))
                if each.name not in indexes
            ]
        return lines

    def leader(self) -> LeaderInfo | None:
        """The current leader, or None."""
        return leader.info_of(leader.current(self.connection))

    @property
    def _sqlite(self) -> bool:
        return self.connection.dialect.name == "sqlite"


@contextmanager
def examine(url: str) -> Iterator[Examination]:
    """Opens the database at `url` for checks, without creating or changing anything. Raises StoreError."""
    backend = backend_of(url, create=False)
    try:
        with transaction(backend, writes=False) as connection:
            yield Examination(connection, backend.place, revision_of(connection, backend.place))
    finally:
        backend.close()
