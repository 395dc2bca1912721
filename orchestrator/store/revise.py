"""Schema revisions: the revision of a database, and the scripts that upgrade it.

Alembic takes a quarter of a second to import, so it is imported only to run scripts. HEAD is the revision that this
version needs; a test compares it with the scripts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Column, Connection, MetaData, Table, Text, column, insert, inspect, select, table, update

from orchestrator.errors import StoreDamagedError, StoreError, StoreVersionError, UnreadableRowError
from orchestrator.store.schema_base import metadata

if TYPE_CHECKING:
    from alembic.script import Script

VERSION_TABLE = "schema_revision"
HEAD = "20261130_2330_c07b1e"


class ForeignDatabaseError(StoreError):
    """The database contains the tables of another program."""


@dataclass(frozen=True, slots=True)
class Revisions:
    """A folder of Alembic scripts and the newest revision among them."""

    folder: Path
    head: str

    def upwards(self, present: str | None, place: str) -> list[Script]:
        """The scripts that upgrade from `present` (None: an empty database) to the head, oldest first.

        Raises, naming `place`, StoreVersionError if `present` is newer than all of them and StoreDamagedError if it
        never existed.
        """
        from alembic.script import ScriptDirectory

        scripts = ScriptDirectory(str(self.folder), version_locations=[str(self.folder)])
        chain = list(scripts.iterate_revisions(self.head, "base"))[::-1]
        known = [script.revision for script in chain]
        if present is None:
            return chain
        if present not in known and present < self.head:
            raise StoreDamagedError(
                f"the store {place} is damaged: {present!r} is not a schema revision",
                hint="stop everything that uses it, then: tradewind store restore BACKUP",
            )
        if present not in known:
            raise StoreVersionError(
                f"the store {place} was written by a newer version (revision {present})",
                hint="upgrade Tradewind: pip install --upgrade tradewind",
            )
        return chain[known.index(present) + 1 :]


SHIPPED = Revisions(Path(__file__).parent / "revisions", HEAD)

_VERSION = table(VERSION_TABLE, column("version_num"))
_CURRENT = select(_VERSION.c.version_num)
_REVISION = re.compile(r"\d{8}_\d{4}_[0-9a-f]{6}")


def revision_of(connection: Connection, place: str) -> str | None:
    """The schema revision of a store; None for an empty database.

    Raises ForeignDatabaseError, StoreDamagedError.
    """
    present = set(inspect(connection).get_table_names())
    if VERSION_TABLE in present:
        return current_revision(connection)
    if len(present & metadata.tables.keys()) > len(metadata.tables) / 2:
        raise StoreDamagedError(
            f"the store {place} is damaged: its schema revision is missing",
            hint="stop everything that uses it, then: tradewind store restore BACKUP",
        )
    if present:
        raise ForeignDatabaseError(
            f"{place} contains the tables of another program", hint="give the store its own file or database"
        )
    return None


def current_revision(connection: Connection) -> str:
    """The schema revision of an existing store. Raises StoreDamagedError."""
    found = connection.execute(_CURRENT).scalar_one()
    if not (isinstance(found, str) and _REVISION.fullmatch(found)):
        raise UnreadableRowError(VERSION_TABLE, "row", f"{found!r} is not a schema revision")
    return found


def apply(connection: Connection, present: str | None, revisions: Revisions, place: str) -> None:
    """Runs the scripts newer than `present` in the transaction of `connection` and records the new revision."""
    from alembic.migration import MigrationContext
    from alembic.operations import Operations

    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    with Operations.context(context):
        for script in revisions.upwards(present, place):
            script.module.upgrade()
    if present is None:
        Table(VERSION_TABLE, MetaData(), Column("version_num", Text, primary_key=True)).create(connection)
        connection.execute(insert(_VERSION).values(version_num=revisions.head))
    else:
        connection.execute(update(_VERSION).values(version_num=revisions.head))
