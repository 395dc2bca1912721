"""Runs and migrations: written as intents, changed under guard."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from orchestrator.errors import NotFoundError, StoreError
from orchestrator.model import STEP_ORDER, Member, Step
from orchestrator.store import Store, Tx
from orchestrator.store.market.quotas import read_quotas
from providers.base import Quota
from providers.clock import VirtualClock

Make = Callable[..., Any]


@pytest.fixture
def tx(store: Store, job: Make) -> Iterator[Tx]:
    with store.write() as opened:
        opened.add_job(job("job_A"))
        opened.add_job(job("job_B"))
        yield opened


def test_a_run_comes_back_as_it_was_and_as_it_was_changed(tx: Tx, run: Make) -> None:
    tx.add_run(run())
    assert tx.run("run_A") == run()
    changes: dict[str, Any] = {
        "instance_id": "i-1",
        "state": "training",
        "last_loss": 0.1 + 0.2,
        "last_step": 7,
        "useful_s": 1.5,
    }
    tx.update_run("run_A", **changes)
    assert tx.run("run_A") == replace(run(), **changes)


def test_a_loss_that_is_not_a_number_is_unknown(tx: Tx, run: Make) -> None:
    tx.add_run(run(last_loss=math.nan))
    assert tx.run("run_A").last_loss is None
    tx.update_run("run_A", last_loss=math.inf)
    assert tx.run("run_A").last_loss == math.inf


def test_runs_are_listed_by_job_and_by_life(tx: Tx, run: Make) -> None:
    tx.add_run(run("run_A", generation=1, state="ended", end="preempted"))
    tx.add_run(run("run_B", generation=2, created_at_ms=1_800_000_000_000))
    tx.add_run(run("run_C", job_id="job_B"))

    def ids(**filters: Any) -> list[str]:
        return [each.id for each in tx.runs(**filters)]

    assert ids() == ["run_A", "run_C", "run_B"]
    assert ids(job_id="job_A") == ["run_A", "run_B"]
    assert ids(live=True) == ["run_C", "run_B"]
    assert ids(job_id="job_A", live=False) == ["run_A"]


def test_machines_that_were_asked_for_since_an_instant_are_counted_until_they_have_ended(
    tx: Tx, run: Make, migration: Make
) -> None:
    at = 1_700_000_000_000
    tx.add_run(run("run_1", generation=1, created_at_ms=at - 1))
    tx.add_run(run("run_2", generation=2, created_at_ms=at, members=(Member(), Member())))
    tx.add_run(run("run_3", generation=3, created_at_ms=at, state="ended", end="aborted"))
    tx.add_run(run("run_4", generation=4, created_at_ms=at, billed_from_ms=at - 1))  # a standby that was promoted
    tx.add_run(run("run_5", generation=5, created_at_ms=at, machine_from_ms=at - 9))  # on the machine of an earlier run
    tx.add_run(run("run_6", generation=6, created_at_ms=at + 5, billed_from_ms=at + 7))
    offer_id = run().offer_id
    tx.add_run(run("run_7", generation=7, created_at_ms=at))
    other = offer_id.replace("spot", "on_demand")
    tx.add_migration(migration(run_id="run_7", also=(other,)))
    assert sorted(tx.requested_since(at)) == [
        ("run_2", offer_id, 2, at, ()),
        ("run_6", offer_id, 1, at + 5, ()),
        ("run_7", offer_id, 1, at, (other,)),
    ]
    assert tx.requested_since(at + 6) == []


def test_quotas_are_news_only_if_they_changed_and_are_as_old_as_the_last_question(tx: Tx) -> None:
    quotas = [Quota("vCPUs", "eu-1", 8, 4)]
    assert tx.set_quotas("cloud", quotas, 1000)
    assert not tx.set_quotas("cloud", quotas, 2000)
    assert tx.quotas_asked_ms() == {"cloud": 2000}
    assert {name: read_quotas(text) for name, text in tx.quotas_stored().items()} == {"cloud": quotas}
    assert not tx.set_quotas("cloud", [replace(quotas[0], used=8)], 1500), "an earlier question, answered late"
    assert tx.quotas_asked_ms() == {"cloud": 2000}
    assert {name: read_quotas(text) for name, text in tx.quotas_stored().items()} == {"cloud": quotas}


def test_two_runs_of_a_job_cannot_share_a_generation(store: Store, job: Make, run: Make) -> None:
    with store.write() as tx:
        tx.add_job(job())
        tx.add_run(run("run_A", generation=1))
    with pytest.raises(StoreError), store.write() as tx:
        tx.add_run(run("run_B", generation=1))


def test_a_migration_goes_through_every_step_under_guard(
    tx: Tx, clock: VirtualClock, run: Make, migration: Make
) -> None:
    tx.add_run(run())
    tx.add_migration(migration())
    assert tx.migration("mig_A") == migration()
    for step, following in pairwise(STEP_ORDER):
        clock.advance(1)
        assert tx.advance("mig_A", step, following)
        assert not tx.advance("mig_A", step, following)
        assert tx.migration("mig_A") == replace(migration(), step=following, step_at_ms=clock.now_ms())


def test_advancing_writes_its_fields_only_when_the_step_was_the_expected_one(
    tx: Tx, run: Make, migration: Make
) -> None:
    tx.add_run(run())
    tx.add_migration(migration())
    assert not tx.advance("mig_A", Step.READY, Step.CHECKPOINT, manifest="wrong")
    assert tx.migration("mig_A").manifest is None
    assert tx.advance("mig_A", Step.PROVISION, Step.PROVISION, attempt=2, token="token-2", error="no capacity")
    again = tx.migration("mig_A")
    assert (again.step, again.attempt, again.token, again.error) == (Step.PROVISION, 2, "token-2", "no capacity")


def test_migrations_are_listed_by_job_and_by_being_under_way(tx: Tx, run: Make, migration: Make) -> None:
    tx.add_run(run("run_A"))
    tx.add_run(run("run_B", generation=2))
    tx.add_run(run("run_C", job_id="job_B"))
    tx.add_migration(migration("mig_A", "run_A", step=Step.DONE))
    tx.add_migration(migration("mig_B", "run_B", generation=2, source_run_id="run_A"))
    tx.add_migration(migration("mig_C", "run_C", "job_B", step=Step.ABORTED))

    def ids(**filters: Any) -> list[str]:
        return [each.id for each in tx.migrations(**filters)]

    assert ids() == ["mig_A", "mig_C", "mig_B"]
    assert ids(open=True) == ["mig_B"]
    assert ids(open=False) == ["mig_A", "mig_C"]
    assert ids(job_id="job_B") == ["mig_C"]


def test_a_token_belongs_to_one_migration(store: Store, job: Make, run: Make, migration: Make) -> None:
    with store.write() as tx:
        tx.add_job(job())
        tx.add_run(run())
        tx.add_migration(migration("mig_A"))
    with pytest.raises(StoreError), store.write() as tx:
        tx.add_migration(migration("mig_B", token="token-mig_A"))


def test_what_is_not_there_is_not_found(tx: Tx) -> None:
    for call in (
        lambda: tx.run("run_X"),
        lambda: tx.update_run("run_X", last_step=1),
        lambda: tx.migration("mig_X"),
        lambda: tx.advance("mig_X", Step.READY, Step.CHECKPOINT),
    ):
        with pytest.raises(NotFoundError, match="_X"):
            call()
