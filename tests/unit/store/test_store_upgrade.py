"""Schema revisions: the shipped ones lead to the tables in use, and an upgrade keeps every row."""

from __future__ import annotations

import random
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, event, insert, text

from orchestrator.errors import NotLeaderError, StoreError, StoreVersionError
from orchestrator.model import Step
from orchestrator.store import CostFilter, Store, Tx, schema
from orchestrator.store.backends.backend import Backend, backend_of, transaction
from orchestrator.store.recovery.backups import restore
from orchestrator.store.recovery.examine import examine
from orchestrator.store.revise import HEAD, SHIPPED, Revisions, apply, current_revision
from orchestrator.store.schema_base import metadata
from orchestrator.store.transaction import columns
from orchestrator.store.upgrade import prepare
from providers.clock import VirtualClock
from tests.postgres import only_postgres, only_sqlite

FIRST = "20261121_1015_6c4e9a"
BEFORE_PRICES = "20261121_1350_5e1b7d"
NEXT = "20270101_0000_aaaaaa"
SCRIPT = f"""
import sqlalchemy as sa
from alembic import op

revision = "{NEXT}"
down_revision = "{HEAD}"


def upgrade():
    op.add_column("periodic_task", sa.Column("note", sa.Text(), nullable=False, server_default="none"))
"""


@pytest.fixture
def newer(tmp_path: Path) -> Revisions:
    """The revisions of a version to come."""
    folder = tmp_path / "revisions"
    shutil.copytree(SHIPPED.folder, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "r20270101_next.py").write_text(SCRIPT)
    return Revisions(folder, NEXT)


@contextmanager
def opened(url: str, tmp_path: Path) -> Iterator[Backend]:
    backend = backend_of(url, create=True, backups=tmp_path)
    yield backend
    backend.close()


def upgrade(url: str, revisions: Revisions, tmp_path: Path) -> None:
    with opened(url, tmp_path) as backend:
        prepare(backend, create=True, install_id="tw-0000000000000001", revisions=revisions)


def asked(url: str, tmp_path: Path, query: str) -> list[tuple[Any, ...]]:
    with opened(url, tmp_path) as backend, transaction(backend, writes=False) as connection:
        return [tuple(row) for row in connection.execute(text(query))]


def backups(tmp_path: Path) -> list[Path]:
    return sorted(tmp_path.glob("*.before-upgrade-from-*"))


def test_the_constant_names_the_newest_script() -> None:
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(str(SHIPPED.folder), version_locations=[str(SHIPPED.folder)])
    assert scripts.get_heads() == [HEAD]


def test_the_scripts_make_the_tables_that_queries_use(store: Store, url: str) -> None:
    with store.read() as tx:
        context = MigrationContext.configure(tx._connection, opts={"version_table": "schema_revision"})
        assert compare_metadata(context, metadata) == []
    with examine(url) as found:
        assert [found.differences(), found.lost_protection(), found.dangling(), found.damage()] == [[], [], [], []]


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (lambda tx: tx.unsettled_runs(), "run_unsettled"),
        (lambda tx: tx.runs(live=True), "run_unsettled"),
        (lambda tx: tx.migrations(open=True), "migration_open"),
        (lambda tx: tx.open_commands(), "command_open"),
        (lambda tx: tx.jobs(states=("running",)), "job_state"),
        (lambda tx: tx.entries(run_id="run_A"), "SEARCH ledger_entry USING INDEX"),
        (lambda tx: tx.booked_until_ms("run_A"), "SEARCH ledger_entry USING INDEX"),
        (lambda tx: tx.measured_last(9), "SEARCH perf_point USING INTEGER PRIMARY KEY"),
        (lambda tx: tx.runs_started("fake", 9), "SEARCH run USING INDEX sqlite_autoindex_run_1 (id>?)"),
        (lambda tx: tx.saves(9), "SEARCH run USING INDEX sqlite_autoindex_run_1 (id>?)"),
        (lambda tx: tx.events(job_id="job_A"), "event_job"),
        (lambda tx: tx.cutovers(9), "event_cutover"),
        (lambda tx: list(tx._divided(CostFilter(9, 99), None)), "ledger_entry_period"),
        (lambda tx: list(tx._divided(CostFilter(9, 99), None)), "ledger_entry_long"),
    ],
)
@only_sqlite
def test_what_a_tick_asks_is_answered_by_an_index(store: Store, query: Callable[[Tx], object], index: str) -> None:
    asked: list[tuple[str, Any]] = []

    def listen(_connection: Any, _cursor: Any, statement: str, values: Any, *_rest: Any) -> None:
        asked.append((statement, values))

    event.listen(store._backend.reading, "before_cursor_execute", listen)
    with store.read() as tx:
        query(tx)
        event.remove(store._backend.reading, "before_cursor_execute", listen)
        ((statement, values),) = asked
        plan = tx._connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values).all()
    assert index in str(plan)


def test_an_upgrade_keeps_rows_and_makes_a_backup_before(
    store: Store, url: str, clock: VirtualClock, newer: Revisions, job: Callable[..., Any], tmp_path: Path
) -> None:
    with store.write() as tx:
        tx.add_job(job())
        tx.set_task_done("collect", 5)
    store.close()
    upgrade(url, newer, tmp_path)
    assert asked(url, tmp_path, "SELECT version_num FROM schema_revision") == [(NEXT,)]
    assert asked(url, tmp_path, "SELECT name, last_ok_ms, note FROM periodic_task") == [("collect", 5, "none")]
    assert asked(url, tmp_path, "SELECT id FROM job") == [("job_A",)]
    (path,) = backups(tmp_path)
    assert path.name.endswith(f"before-upgrade-from-{HEAD}")
    assert path.stat().st_mode & 0o077 == 0
    backup = Store.open(f"sqlite:///{path}", clock)
    assert backup.install_id == store.install_id
    with backup.read() as tx:
        assert tx.task_done_ms("collect") == 5
    backup.close()


def test_an_upgrade_from_the_first_revision_with_work_under_way_and_back(
    url: str,
    clock: VirtualClock,
    tmp_path: Path,
    job: Callable[..., Any],
    run: Callable[..., Any],
    migration: Callable[..., Any],
) -> None:
    with opened(url, tmp_path) as backend:
        first = Revisions(SHIPPED.folder, FIRST)
        prepare(backend, create=True, install_id="tw-0000000000000001", revisions=first)
        old = Store(backend, clock, random.Random(0))
        with old.write() as tx:
            tx.add_job(job())
            tx.set_job_state("job_A", "starting")
            for table, row in ((schema.run, run()), (schema.migration, migration())):
                known = {name: value for name, value in columns(row).items() if value not in (None, [], ())}
                tx._connection.execute(insert(table), known)  # a later version's columns are not there
            tx.add_command("pause", "job_A", {}, "user:ann")
        with transaction(backend, writes=False) as connection:
            assert current_revision(connection) == FIRST
    store = Store.open(url, clock, backups=tmp_path)
    assert store.install_id == "tw-0000000000000001"
    lead = store.campaign("new version")
    assert lead is not None
    with store.write(lead) as tx:
        assert tx.unsettled_runs() == [run()]
        assert tx.migrations(open=True) == [migration()]
        assert [each.kind for each in tx.open_commands()] == ["pause"]
        assert tx.advance("mig_A", Step.PROVISION, Step.READY)
    store.resign(lead)
    store.close()
    (path,) = backups(tmp_path)
    restored = restore(url, path, clock.now_ms())
    assert restored.backup.revision == FIRST
    assert asked(url, tmp_path, "SELECT step FROM migration") == [("provision",)]
    assert asked(url, tmp_path, "SELECT version_num FROM schema_revision") == [(FIRST,)]
    again = Store.open(url, clock, backups=tmp_path)
    with again.read() as tx:
        assert tx.migrations(open=True) == [migration()]
    again.close()
    assert len(backups(tmp_path)) == 2  # another upgrade, another backup


def test_an_upgrade_gives_old_polls_and_offers_their_source_and_knows_the_last_good_poll(
    url: str, clock: VirtualClock, tmp_path: Path, offer: Callable[..., Any]
) -> None:
    """Rows are written as the revision before wrote them: with the columns that it had."""
    with opened(url, tmp_path) as backend:
        prepare(backend, create=True, install_id="tw-1", revisions=Revisions(SHIPPED.folder, BEFORE_PRICES))
        with transaction(backend, writes=True) as connection:
            connection.execute(
                text(
                    "INSERT INTO offer (id, provider, region, zone, instance_type, gpu, gpu_count, vcpu, memory_bytes, "
                    "capacity_type, simulated, listed) VALUES "
                    "('fake/r/z1/t/spot', 'fake', 'r', 'z1', 't', 'V100', 1, 8, 64, 'spot', :no, :yes)"
                ),
                {"no": False, "yes": True},
            )
            connection.execute(text("INSERT INTO price_source (name) VALUES ('test')"))
            connection.execute(text("INSERT INTO price_point VALUES (1, 10, 10, 5, 1)"))
            row = "INSERT INTO poll (provider, started_ms, finished_ms, offers_seen, changed, error) VALUES "
            connection.execute(text(row + "('fake', 10, 11, 1, 1, NULL), ('fake', 20, 21, 1, 0, 'throttled')"))
    store = Store.open(url, clock, backups=tmp_path)
    with store.write() as tx:
        (state,) = tx.poll_states()
        assert (state.source, state.region, state.error, state.failures) == ("fake", "", "throttled", 1)
        assert (state.started_ms, state.good_started_ms, state.good_finished_ms) == (20, 10, 11)
        assert [each.source for each in tx.polls()] == ["fake", "fake"]
        assert tx.priced_to_ms("fake/r/z1/t/spot") == tx.last_good_poll_ms("fake") == 10
        assert tx.price_changes("fake/r/z1/t/spot", 0, 99) == [(10, 5)]
        tx.put_offers("fake", [])
        assert tx.offers() == []
    with pytest.raises(StoreError, match="append-only"), store.write() as tx:
        tx._connection.execute(text("DELETE FROM price_point"))
    with pytest.raises(StoreError, match="append-only"), store.write() as tx:
        tx._connection.execute(text("UPDATE poll SET error = NULL"))
    store.close()


def test_an_upgrade_that_fails_changes_nothing(store: Store, url: str, newer: Revisions, tmp_path: Path) -> None:
    (newer.folder / "r20270101_next.py").write_text(SCRIPT + '    op.execute("SELECT * FROM missing")\n')
    with pytest.raises(StoreError, match="missing"):
        upgrade(url, newer, tmp_path)
    with store.read() as tx:
        assert tx.task_done_ms("collect") is None
    assert asked(url, tmp_path, "SELECT version_num FROM schema_revision") == [(HEAD,)]


@only_postgres
def test_a_server_does_not_end_an_upgrade_whose_backup_takes_long(
    store: Store, url: str, newer: Revisions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[str] = []

    def watched(connection: Connection, *asked: Any) -> None:
        limits.append(connection.execute(text("SHOW idle_in_transaction_session_timeout")).scalar_one())
        apply(connection, *asked)

    monkeypatch.setattr("orchestrator.store.upgrade.apply", watched)
    backend = backend_of(url, create=False, backups=tmp_path)
    prepare(backend, create=False, install_id="tw-unused", revisions=newer)
    backend.close()
    assert limits == ["10min"]


def test_an_upgrade_without_room_for_its_backup_changes_nothing(
    store: Store, url: str, newer: Revisions, database: str, tmp_path: Path
) -> None:
    wrong, message = (None, "no folder for the backup") if database == "postgres" else (tmp_path, "cannot be")
    backend = backend_of(url, create=False, backups=wrong)
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, unlimited[1]))
    try:
        with pytest.raises(StoreError, match=message) as caught:
            prepare(backend, create=False, install_id="unused", revisions=newer)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert caught.value.hint
    backend.close()
    assert asked(url, tmp_path, "SELECT version_num FROM schema_revision") == [(HEAD,)]


def test_an_upgrade_under_a_running_control_plane_deposes_it_and_a_second_one_does_nothing(
    store: Store, url: str, newer: Revisions, tmp_path: Path
) -> None:
    lead = store.campaign("old version")
    assert lead is not None
    upgrade(url, newer, tmp_path)
    with pytest.raises(NotLeaderError), store.write(lead):
        pass
    with pytest.raises(StoreVersionError, match="while it was in use"):
        store.campaign("old version")
    before = asked(url, tmp_path, "SELECT epoch FROM leader")
    upgrade(url, newer, tmp_path)
    assert asked(url, tmp_path, "SELECT epoch FROM leader") == before
    assert len(backups(tmp_path)) == 1
