"""The offers that a launch may take as well as its own, and the one that it has taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import update

from orchestrator.errors import UnreadableRowError
from orchestrator.model import Step
from orchestrator.store import Store, schema

Make = Callable[..., Any]
THERE = ("fake/alpha/alpha-2/v100.1/spot", "fake/alpha/alpha-3/v100.1/spot")


def added(store: Store, job: Make, run: Make, migration: Make, **fields: Any) -> None:
    with store.write() as tx:
        tx.add_job(job("job_A"))
        tx.add_run(run("run_A"))
        tx.add_migration(migration("mig_A", **fields))


def test_the_offers_of_a_launch_are_kept_with_its_intent(store: Store, job: Make, run: Make, migration: Make) -> None:
    added(store, job, run, migration, also=THERE)
    with store.read() as tx:
        assert tx.migration("mig_A").also == THERE


def test_most_launches_have_none(store: Store, job: Make, run: Make, migration: Make) -> None:
    added(store, job, run, migration)
    with store.read() as tx:
        assert tx.migration("mig_A").also == ()
        assert tx._connection.execute(schema.migration.select()).one().also is None


def test_where_a_launch_has_landed_is_kept_for_its_run_too(store: Store, job: Make, run: Make, migration: Make) -> None:
    added(store, job, run, migration, also=THERE)
    with store.write() as tx:
        before = tx.migration("mig_A")
        tx.land(before, THERE[1])
    with store.read() as tx:
        landed = tx.migration("mig_A")
        assert landed.offer_id == tx.run("run_A").offer_id == THERE[1]
        assert (landed.step, landed.step_at_ms, landed.also) == (Step.PROVISION, before.step_at_ms, THERE)


@pytest.mark.parametrize("text", ["?", "[1]", '["fake"]', '"fake/alpha/alpha-2/v100.1/spot"', "{}"])
def test_offers_that_are_none_are_damage(store: Store, job: Make, run: Make, migration: Make, text: str) -> None:
    added(store, job, run, migration)
    with store.write() as tx:
        tx._connection.execute(update(schema.migration).values(also=text))
    with store.read() as tx, pytest.raises(UnreadableRowError, match="also"):
        tx.migration("mig_A")
