"""Schema revisions: the shipped ones lead to the tables in use, and an upgrade keeps every row."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from orchestrator.errors import NotLeaderError, StoreError, StoreVersionError
from orchestrator.store import Store
from orchestrator.store.backend import backend_of, transaction
from orchestrator.store.revise import HEAD, SHIPPED, Revisions
from orchestrator.store.schema import APPEND_ONLY, metadata
from orchestrator.store.upgrade import prepare
from providers.clock import VirtualClock

NEXT = "20270101_0000_aaaaaa"
SCRIPT = f"""
import sqlalchemy as sa
from alembic import op

revision = "{NEXT}"
down_revision = "{HEAD}"


def upgrade():
    op.add_column("duty", sa.Column("note", sa.Text(), nullable=False, server_default="none"))
"""


@pytest.fixture
def newer(tmp_path: Path) -> Revisions:
    """The revisions of a version to come."""
    folder = tmp_path / "revisions"
    shutil.copytree(SHIPPED.folder, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "r20270101_next.py").write_text(SCRIPT)
    return Revisions(folder, NEXT)


def upgrade(url: str, revisions: Revisions) -> None:
    backend = backend_of(url, create=False)
    try:
        prepare(backend, create=False, install_id="unused", revisions=revisions)
    finally:
        backend.close()


def test_the_constant_names_the_newest_script() -> None:
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(str(SHIPPED.folder), version_locations=[str(SHIPPED.folder)])
    assert scripts.get_heads() == [HEAD]


def test_the_scripts_make_the_tables_that_queries_use(store: Store) -> None:
    with store.read() as tx:
        context = MigrationContext.configure(tx._connection, opts={"version_table": "schema_revision"})
        assert compare_metadata(context, metadata) == []
        triggers = tx._connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'trigger'").scalars()
        assert set(triggers) == {f"{table}_refuses_{verb}" for table in APPEND_ONLY for verb in ("update", "delete")}


def test_an_upgrade_keeps_rows_and_makes_a_backup_before(
    url: str, clock: VirtualClock, newer: Revisions, job: Callable[..., Any]
) -> None:
    store = Store.open(url, clock)
    with store.write() as tx:
        tx.add_job(job())
        tx.set_duty("collect", 5)
    store.close()
    upgrade(url, newer)
    path = Path(url.removeprefix("sqlite:///"))
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT version_num FROM schema_revision").fetchall() == [(NEXT,)]
        assert connection.execute("SELECT name, last_ok_ms, note FROM duty").fetchall() == [("collect", 5, "none")]
        assert connection.execute("SELECT id FROM job").fetchall() == [("job_A",)]
    backup = Store.open(f"{url}.before-upgrade-from-{HEAD}", clock)
    assert backup.install_id == store.install_id
    with backup.read() as tx:
        assert tx.duty("collect") == 5
    backup.close()


def test_an_upgrade_that_fails_changes_nothing(url: str, clock: VirtualClock, newer: Revisions) -> None:
    Store.open(url, clock).close()
    (newer.folder / "r20270101_next.py").write_text(SCRIPT + '    op.execute("SELECT * FROM missing")\n')
    with pytest.raises(StoreError, match="missing"):
        upgrade(url, newer)
    store = Store.open(url, clock)
    with store.read() as tx:
        assert tx.duty("collect") is None
    store.close()


def test_an_upgrade_under_a_running_control_plane_deposes_it(url: str, clock: VirtualClock, newer: Revisions) -> None:
    store = Store.open(url, clock)
    lead = store.campaign("old version")
    assert lead is not None
    upgrade(url, newer)
    with pytest.raises(NotLeaderError), store.write(lead):
        pass
    with pytest.raises(StoreVersionError, match="while it was in use"):
        store.campaign("old version")
    store.close()


def test_an_upgrade_of_an_upgraded_store_does_nothing(url: str, clock: VirtualClock, newer: Revisions) -> None:
    Store.open(url, clock).close()
    upgrade(url, newer)
    backend = backend_of(url, create=False)
    with transaction(backend, writes=False) as connection:
        before = connection.exec_driver_sql("SELECT epoch FROM leader").scalar()
    upgrade(url, newer)
    with transaction(backend, writes=False) as connection:
        assert connection.exec_driver_sql("SELECT epoch FROM leader").scalar() == before
    backend.close()
