"""The machines of a run on several: stored with it, read back as they were, reported and repaired when damaged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import update

from orchestrator.errors import UnreadableRowError
from orchestrator.model import Member, Run, billed_together
from orchestrator.store import Store, schema

Make = Callable[..., Any]
THREE = (Member("i-1", 1000, 5000), Member("i-2", 1500, 4000), Member("i-3", 1200, 6000))


def added(store: Store, job: Make, run: Make, **fields: Any) -> None:
    with store.write() as tx:
        tx.add_job(job("job_A"))
        tx.add_run(run(**fields))


def read(store: Store) -> Run:
    with store.read() as tx:
        return tx.run("run_A")


def test_a_run_on_one_machine_stores_none(store: Store, job: Make, run: Make) -> None:
    added(store, job, run)
    with store.write() as tx:
        tx.set_machines("run_A", [Member("i-1", 1000)])
    assert (read(store).members, read(store).instance_id, read(store).billed_from_ms) == ((), "i-1", 1000)
    assert read(store).machines == (Member("i-1", 1000),)


def test_the_machines_of_a_gang_come_back_with_their_interval(store: Store, job: Make, run: Make) -> None:
    added(store, job, run, members=(Member(),) * 3, end="moved")
    assert (read(store).nodes, read(store).instance_ids) == (3, ())
    with store.write() as tx:
        tx.set_machines("run_A", THREE)
    found = read(store)
    assert found.members == found.machines == THREE
    assert (found.instance_id, found.billed_from_ms, found.billed_to_ms) == ("i-1", 1000, 6000)


@pytest.mark.parametrize(
    ("machines", "interval"),
    [
        (THREE, (1000, 6000)),
        ((THREE[0], Member("i-2", 900)), (900, None)),
        ((Member("i-1"), Member("i-2")), (None, None)),
        ((THREE[0], Member()), (1000, 5000)),  # one that was never rented has no bill
    ],
)
def test_the_interval_reaches_from_the_first_begin_to_the_last_end(
    machines: tuple[Member, ...], interval: tuple[int | None, int | None]
) -> None:
    assert billed_together(machines) == interval


@pytest.mark.parametrize("text", ["{", "[1]", '[{"instance_id": 5}]', '[{"billed_from_ms": 1e99}]', '["i-1"]'])
def test_damaged_machines_are_an_unreadable_run(store: Store, job: Make, run: Make, text: str) -> None:
    added(store, job, run)
    with store.write() as tx:
        tx._connection.execute(update(schema.run).values(members=text))
    with pytest.raises(UnreadableRowError, match="members"):
        read(store)


def test_damaged_machines_are_repaired_from_what_was_rented(
    store: Store, job: Make, run: Make, migration: Make, event: Make
) -> None:
    added(store, job, run, instance_id="i-1", billed_from_ms=1000, state="training")
    rented = {"instance_id": "i-1", "instance_ids": "i-1 i-2"}
    with store.write() as tx:
        tx.add_migration(migration())
        tx.add_event(event("ev_1", kind="migration.provision", job_id="job_A", run_id="run_A", data=rented))
        tx._connection.execute(update(schema.run).values(members="?"))
    with store.write() as tx:
        (mended,) = tx.repair_runs("job_A", ["fake"])
    assert mended.run.members == read(store).members == (Member("i-1", 1000), Member("i-2", 1000))


def test_mending_leaves_sound_machines_alone(store: Store, job: Make, run: Make) -> None:
    added(store, job, run, members=THREE, instance_id="i-1", end="moved")
    with store.write() as tx:
        assert tx.repair_runs("job_A", ["fake"]) == []
