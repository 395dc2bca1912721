"""Bringing a store to the present schema revision."""

from __future__ import annotations

from sqlalchemy import Connection, insert, select, update

from orchestrator.errors import StoreError, StoreVersionError, UnreadableRowError
from orchestrator.store.backends.backend import Backend, transaction
from orchestrator.store.revise import HEAD, SHIPPED, Revisions, apply, current_revision, revision_of
from orchestrator.store.schema import leader, meta

_INSTALL_ID = select(meta.c.value).where(meta.c.key == "install_id")


def prepare(backend: Backend, *, create: bool, install_id: str, revisions: Revisions = SHIPPED) -> None:
    """Make the store at `backend`, or upgrade it (after a backup), or leave it as it is when it is up to date.

    Raises StoreVersionError for one of a newer version and StoreError for what is no store; both are left untouched.
    """
    with transaction(backend, writes=False) as connection:
        found = revision_of(connection, backend.place)
    if found is None and not create:
        raise StoreError(f"there is no store in {backend.place}", hint="the first submit makes one")
    if found != revisions.head:
        revisions.upwards(found, backend.place)  # also loads Alembic before anybody has to wait for us
    backend.settle()
    if found == revisions.head:
        return
    with transaction(backend, writes=True) as connection:
        present = revision_of(connection, backend.place)  # another process may have been faster
        if present == revisions.head:
            return
        if present is not None:
            backend.backup_before(present)  # nobody else can write until the upgrade is done: nothing is missed
        apply(connection, present, revisions, backend.place)
        if present is None:
            connection.execute(insert(meta).values(key="install_id", value=install_id))
        _depose(connection)


def require_current(connection: Connection, place: str) -> None:
    """Raises StoreVersionError when another version has upgraded the store since it was opened."""
    found = current_revision(connection)
    if found != HEAD:
        raise StoreVersionError(
            f"the store {place} was upgraded while it was in use (revision {found}, this version needs {HEAD})",
            hint="restart with the version that upgraded it",
        )


def install_id_of(connection: Connection) -> str:
    """Whose store it is. Raises StoreDamagedError when it does not say."""
    found = connection.execute(_INSTALL_ID).scalar_one()
    if not (isinstance(found, str) and found and found.isascii() and found.isprintable()):
        raise UnreadableRowError("meta", "install_id", f"{found!r} is no identity")
    return found


def _depose(connection: Connection) -> None:
    """A control plane of the older version must not go on writing into the new tables: its leadership ends here."""
    connection.execute(update(leader).values(epoch=leader.c.epoch + 1, holder=None))
