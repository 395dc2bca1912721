"""Bringing a store to the present schema revision. Must not know what the tables are for.

Alembic takes a quarter of a second to import, so it is imported only when a store has to be made or upgraded; HEAD says
which revision this version needs (a test compares it with the scripts).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Column, Connection, MetaData, Table, Text, column, insert, inspect, select, table, update

from orchestrator.errors import StoreError, StoreVersionError
from orchestrator.store.backend import Backend, transaction
from orchestrator.store.schema import leader, meta

if TYPE_CHECKING:
    from alembic.script import Script

HEAD = "20261121_1015_6c4e9a"


@dataclass(frozen=True, slots=True)
class Revisions:
    """A folder of Alembic scripts and the newest revision in it."""

    folder: Path
    head: str

    def upwards(self, present: str | None) -> list[Script]:
        """The scripts that lead from `present` (None: an empty database) to the head. Raises KeyError."""
        from alembic.script import ScriptDirectory

        scripts = ScriptDirectory(str(self.folder), version_locations=[str(self.folder)])
        chain = list(scripts.iterate_revisions(self.head, "base"))[::-1]
        known = [script.revision for script in chain]
        if present is None:
            return chain
        if present not in known:
            raise KeyError(present)
        return chain[known.index(present) + 1 :]


_VERSION = table("schema_revision", column("version_num"))

SHIPPED = Revisions(Path(__file__).parent / "revisions", HEAD)


def prepare(backend: Backend, *, create: bool, install_id: str, revisions: Revisions = SHIPPED) -> None:
    """Make the store at `backend`, or upgrade it (after a backup), or leave it as it is when it is up to date.

    Raises StoreVersionError for one of a newer version and StoreError for what is no store; both are left untouched.
    """
    with transaction(backend, writes=False) as connection:
        found = revision_of(connection, backend.place)
    if found is None and not create:
        raise StoreError(f"there is no store in {backend.place}", hint="the first submit makes one")
    if found not in (None, revisions.head):
        try:
            revisions.upwards(found)
        except KeyError:
            raise StoreVersionError(
                f"the store {backend.place} was written by a newer version (revision {found})",
                hint="upgrade Tradewind: pip install --upgrade tradewind",
            ) from None
        backend.backup_before(found)
    backend.settle()
    if found == revisions.head:
        return
    with transaction(backend, writes=True) as connection:
        present = revision_of(connection, backend.place)  # another process may have been faster
        if present != revisions.head:
            _apply(connection, present, revisions)
            if present is None:
                connection.execute(insert(meta).values(key="install_id", value=install_id))
            _depose(connection)


def revision_of(connection: Connection, place: str) -> str | None:
    """The schema revision of a store, None where there is nothing yet. Raises StoreError for another's database."""
    inspector = inspect(connection)
    if inspector.has_table(_VERSION.name):
        return str(connection.execute(select(_VERSION.c.version_num)).scalar_one())
    if inspector.get_table_names():
        raise StoreError(
            f"{place} holds the tables of another program", hint="give the store a file or a database of its own"
        )
    return None


def require_current(connection: Connection, place: str) -> None:
    """Raises StoreVersionError when another version has upgraded the store since it was opened."""
    found = revision_of(connection, place)
    if found != HEAD:
        raise StoreVersionError(
            f"the store {place} was upgraded while it was in use (revision {found}, this version needs {HEAD})",
            hint="restart with the version that upgraded it",
        )


def _apply(connection: Connection, present: str | None, revisions: Revisions) -> None:
    """Run the scripts above `present` inside the transaction of `connection`, and record the new revision."""
    from alembic.migration import MigrationContext
    from alembic.operations import Operations

    context = MigrationContext.configure(connection, opts={"version_table": _VERSION.name})
    with Operations.context(context):
        for script in revisions.upwards(present):
            script.module.upgrade()
    if present is None:
        Table(_VERSION.name, MetaData(), Column("version_num", Text, primary_key=True)).create(connection)
        connection.execute(insert(_VERSION).values(version_num=revisions.head))
    else:
        connection.execute(update(_VERSION).values(version_num=revisions.head))


def _depose(connection: Connection) -> None:
    """A control plane of the older version must not go on writing into the new tables: its leadership ends here."""
    connection.execute(update(leader).values(epoch=leader.c.epoch + 1, holder=None))
