"""Many jobs: none waits for the others longer than it must."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from orchestrator.engine.control import WAITING_PER_S
from orchestrator.errors import StoreError
from orchestrator.model import Where
from tests.sim.harness import BRISK, CHEAP, EXPENSIVE, RESERVE, SimulatedInstallation, check_truth


def test_a_job_with_notice_does_not_wait_behind_a_crowd_that_waits_for_machines(home: SimulatedInstallation) -> None:
    job = home.submit(steps=300)
    run = home.until_step(job, 5)
    crowd = [home.submit(f"waits-{number}", where=Where(regions=("nowhere",))) for number in range(60)]
    home.until(lambda: all(home.events(each, "job.waits") for each in crowd), stride_s=0.1)
    home.reprice(RESERVE.id, "3.10")  # so that the job has just had its turn
    for _ in range(5):
        home.tick(0.1)
    home.cloud.preempt(home.machine(run).id, notice_s=60.0)
    for _ in range(5):
        home.tick(0.1)
    assert [each.reason for each in home.migrations(job)] == ["first placement", "notice"]


def test_jobs_that_wait_are_looked_at_again_in_turn_however_many_and_a_machine_that_is_free_is_taken_at_once(
    install: Callable[..., SimulatedInstallation],
) -> None:
    home = install(behaviour=replace(BRISK, max_instances=1, owned=True))
    first = home.submit("first", steps=10_000)
    home.until_state(first, "running")
    crowd = [home.submit(f"waits-{number}") for number in range(80)]
    home.until(lambda: all(home.events(each, "job.waits") for each in crowd), stride_s=0.1)
    turns, home.stride_s = home.plane._turns, 0.05
    home.run_for(5.0)  # the measured speed of the first is news for all
    before = turns._number
    home.run_for(10.0)
    assert turns._number - before <= 10.0 * WAITING_PER_S + len(crowd)  # and so may be something else
    assert min(turns._had[each.id] for each in crowd) > before
    home.ask("cancel", first)
    home.until(lambda: home.job(first).state == "cancelled")
    home.until(lambda: any(home.job(each).state == "starting" for each in crowd), limit_s=10.0)


def test_a_decision_that_the_store_prevented_is_made_when_it_works_again(home: SimulatedInstallation) -> None:
    job = home.submit(steps=300)
    home.until_step(job, 15)
    execute(home, "CREATE TRIGGER fails BEFORE UPDATE ON job BEGIN SELECT json('{'); END")
    home.reprice(EXPENSIVE.id, "0.40")
    with pytest.raises(StoreError, match="malformed JSON"):
        home.run_for(10)
    execute(home, "DROP TRIGGER fails")
    home.until(lambda: len(home.migrations(job)) == 2, limit_s=10)


def test_the_market_is_not_read_again_for_each_decision_while_a_job_trains_on_what_is_no_longer_sold(
    home: SimulatedInstallation,
) -> None:
    there = home.submit("there", steps=400, where=Where(regions=(CHEAP.region,)))
    others = [home.submit(name, steps=400, where=Where(regions=(EXPENSIVE.region,))) for name in ("one", "other")]
    for job in (there, *others):
        home.until_step(job, 12)
    home.cloud.withdraw(CHEAP.id)
    home.run_for(60)
    assert CHEAP.id not in {offer.id for offer in home.read(lambda tx: tx.offers(("fake",)))}
    listings = []
    for number in range(60):  # long enough for the programs to learn their risks, too
        home.reprice(RESERVE.id, f"3.{10 + number}")
        home.tick()
        assert home.plane._ctx.markets._last is not None
        listings.append(home.plane._ctx.markets._last.listing)
    assert all(each is listings[0] for each in listings)
    home.settle(1200.0)
    check_truth(home)


def execute(home: SimulatedInstallation, statement: str) -> None:
    with home.database.backend.writing.begin() as connection:
        connection.exec_driver_sql(statement)
