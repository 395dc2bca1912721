"""Creates a store or upgrades it to the current schema revision."""

from __future__ import annotations

from sqlalchemy import Connection, insert, select, update

from orchestrator.errors import StoreError, StoreVersionError, UnreadableRowError
from orchestrator.store.backends.backend import Backend, transaction
from orchestrator.store.backends.postgres import unhurried
from orchestrator.store.revise import HEAD, SHIPPED, Revisions, apply, current_revision, revision_of
from orchestrator.store.schema import leader, meta

_INSTALL_ID = select(meta.c.value).where(meta.c.key == "install_id")


def prepare(backend: Backend, *, create: bool, install_id: str, revisions: Revisions = SHIPPED) -> None:
    """Creates the store at `backend`, upgrades it after a backup, or leaves it unchanged if it is current.

    Raises StoreVersionError for a store of a newer version and StoreError for a database that is not a store; both are
    left unchanged.
    """
    with transaction(backend, writes=False) as connection:
        found = revision_of(connection, backend.place)
    if found is None and not create:
        raise StoreError(
            f"there is no store in {backend.place}",
            hint="check state_dir; the first `tradewind submit` creates the store",
        )
    if found != revisions.head:
        revisions.upwards(found, backend.place)  # also imports Alembic, before other writers have to wait
    backend.enable_sharing()
    if found == revisions.head:
        return
    with transaction(backend, writes=True) as connection:
        unhurried(connection)
        present = revision_of(connection, backend.place)  # another process may have upgraded it meanwhile
        if present == revisions.head:
            return
        if present is not None:
            backend.backup_before(
                present
            )  # writers are locked out until the upgrade is done, so the backup misses nothing
        apply(connection, present, revisions, backend.place)
        if present is None:
            connection.execute(insert(meta).values(key="install_id", value=install_id))
        _depose(connection)


def require_current(connection: Connection, place: str) -> None:
    """Raises StoreVersionError if another version has upgraded the store since it was opened."""
    found = current_revision(connection)
    if found != HEAD:
        raise StoreVersionError(
            f"the store {place} was upgraded while it was in use (revision {found}, this version needs {HEAD})",
            hint="restart with the version that upgraded it",
        )


def install_id_of(connection: Connection) -> str:
    """The id of the installation that owns the store. Raises StoreDamagedError if there is none."""
    found = connection.execute(_INSTALL_ID).scalar_one()
    if not (isinstance(found, str) and found and found.isascii() and found.isprintable()):
        raise UnreadableRowError("meta", "install_id", f"{found!r} is not an installation id")
    return found


def _depose(connection: Connection) -> None:
    """Ends the leadership of a control plane of the older version, which must not write to the new tables."""
    connection.execute(update(leader).values(epoch=leader.c.epoch + 1, holder=None))
