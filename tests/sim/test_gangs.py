"""Jobs on several machines at once: rented, lost, moved, billed and ended as one, all or nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from orchestrator.engine.machines.launched import with_machines
from orchestrator.ledger import time_breakdown
from orchestrator.model import Job, Resources, Run
from providers.fake import Fault
from providers.money import usd
from providers.offer import CapacityType
from tests.sim.harness import CHEAP, EXPENSIVE, FINE_STRIDE_S, RESERVE, SimulatedInstallation, check_truth

Install = Callable[..., SimulatedInstallation]
TWO = Resources(nodes=2)
THREE = Resources(nodes=3)


def alive(home: SimulatedInstallation) -> list[str]:
    return [each.id for each in home.cloud.instances() if each.alive]


def booked(home: SimulatedInstallation, job: Job) -> int:
    return home.read(lambda tx: tx.total_nano_usd(job.id))


def test_a_gang_is_one_launch_of_all_its_machines_billed_as_one(home: SimulatedInstallation) -> None:
    job = home.submit(steps=40, resources=THREE)
    run = home.until_step(job, 5)
    assert len(run.members) == run.nodes == len(set(run.instance_ids)) == 3
    assert run.instance_id == run.instance_ids[0]
    assert len({each.token for each in home.cloud.instances()}) == 1
    home.settle()
    (run,) = home.runs(job)
    assert home.job(job).state == "finished"
    bills = home.cloud.bills()
    assert len(bills) == 3
    assert booked(home, job) == sum(bill.amount_nano_usd for bill in bills)
    billed_ms = sum((each.billed_to_ms or 0) - (each.billed_from_ms or 0) for each in run.members)
    assert run.billed_to_ms is not None
    assert time_breakdown(run, run.billed_to_ms).total_ms == billed_ms
    check_truth(home)


@pytest.mark.parametrize("how", ["preempt", "crash"])
@pytest.mark.parametrize("which", [0, 2])
def test_the_loss_of_one_machine_is_the_loss_of_the_run(home: SimulatedInstallation, how: str, which: int) -> None:
    job = home.submit(steps=40, resources=THREE)
    run = home.until_step(job, 13)
    getattr(home.cloud, how)(run.instance_ids[which])
    home.settle()
    first, second = home.runs(job)
    assert first.end == ("preempted" if how == "preempt" else "lost")
    assert home.migrations(job)[1].reason == "lost"
    assert not set(first.instance_ids) & set(second.instance_ids)
    assert len(second.instance_ids) == 3
    check_truth(home)


def test_its_events_name_its_machines(home: SimulatedInstallation) -> None:
    job = home.submit(steps=20, resources=TWO)
    home.until(lambda: any(run.training_from_ms is not None for run in home.runs(job)))
    first, second = home.runs(job)[0].instance_ids
    home.cloud.crash(second)
    home.settle()
    rented = home.read(lambda tx: tx.events(job_id=job.id, kinds=("migration.provision",)))[0].message
    lost = home.read(lambda tx: tx.events(job_id=job.id, kinds=("run.lost",)))[0].message
    assert f": {first}, {second}" in rented
    assert second in lost
    assert first not in lost


def test_the_hazard_of_an_offer_is_that_of_one_machine(home: SimulatedInstallation) -> None:
    job = home.submit(steps=40, resources=THREE)
    run = home.until_step(job, 13)
    home.cloud.crash(run.instance_ids[1])
    home.settle()
    seen = home.read(lambda tx: tx.availability(0, home.clock.now_ms()))
    counted = Counter((each.offer_id, each.kind) for each in seen)
    first, second = home.runs(job)
    assert counted[first.offer_id, "lost"] == 1
    for offer_id in {first.offer_id, second.offer_id}:
        ended = counted[offer_id, "lost"] + counted[offer_id, "released"]
        assert counted[offer_id, "launched"] == ended
    assert sum(count for (_, kind), count in counted.items() if kind == "launched") == 6


def test_a_notice_for_one_machine_is_the_runs(home: SimulatedInstallation) -> None:
    job = home.submit(steps=40, resources=TWO)
    run = home.until_step(job, 12)
    home.cloud.preempt(run.instance_ids[1], notice_s=30.0)
    home.settle()
    first, second = home.runs(job)
    assert first.end in ("moved", "preempted")
    assert second.repeated_steps <= 1
    assert home.migrations(job)[1].reason == "notice"
    check_truth(home)


def test_a_machine_lost_before_the_run_trains_ends_the_others(home: SimulatedInstallation) -> None:
    job = home.submit(steps=20, resources=TWO)
    home.until(lambda: bool(home.runs(job)) and len(home.runs(job)[0].instance_ids) == 2)
    home.cloud.crash(home.runs(job)[0].instance_ids[1])
    home.settle()
    assert home.runs(job)[0].end == "aborted"
    assert home.job(job).state == "finished"
    check_truth(home)


def test_capacity_for_some_of_them_is_none(home: SimulatedInstallation) -> None:
    home.cloud.set_capacity(CHEAP.id, 1)
    job = home.submit(steps=20, resources=TWO)
    home.settle()
    run = home.runs(job)[-1]
    assert run.offer_id != CHEAP.id
    assert all(bill.offer_id == run.offer_id for bill in home.cloud.bills())
    check_truth(home)


def test_limits_count_every_machine(install: Install) -> None:
    home = install(overrides={"limits.max_instances": 3})
    pair, other = home.submit("pair", steps=60, resources=TWO), home.submit("other", steps=20, resources=TWO)
    home.until_step(pair, 3)
    home.run_for(20)
    states = Counter(home.job(each).state for each in (pair, other))
    assert states["running"] == 1
    waiting = pair if home.job(pair).state == "queued" else other
    assert any("3 machines" in event.message for event in home.events(waiting, "job.waits"))
    home.settle()
    assert {home.job(each).state for each in (pair, other)} == {"finished"}
    check_truth(home)


def test_the_hourly_limit_counts_every_machine(install: Install) -> None:
    home = install(overrides={"limits.max_usd_per_hour": 2.5})
    job = home.submit(steps=20, resources=THREE)
    home.run_for(20)
    assert home.job(job).state == "queued"
    assert "$3.0" in home.events(job, "job.waits")[-1].message
    assert not home.cloud.bills()


def test_a_budget_pays_for_every_machine(install: Install) -> None:
    spent = []
    for resources in (Resources(), THREE):
        home = install(stride_s=FINE_STRIDE_S)
        budget = usd("0.12")
        job = home.submit(steps=2000, resources=resources, budget_nano_usd=budget)
        home.until_state(job, "paused")
        home.run_for(60)
        assert booked(home, job) <= budget
        spent.append(home.runs(job)[-1].last_step)
    assert spent[0] > 2 * spent[1]


def test_a_plan_prices_a_gang_as_n_machines(home: SimulatedInstallation) -> None:
    one = home.submit("one", steps=20)
    three = home.submit("three", steps=20, resources=THREE)
    home.until(lambda: home.job(three).state == "starting" and home.job(one).state == "starting")
    prices = {}
    for job in (one, three):
        plan_id = home.migrations(job)[0].plan_id
        assert plan_id is not None
        placement = home.read(lambda tx, plan_id=plan_id: tx.plan(plan_id)).placement(job.id)  # type: ignore[misc]
        prices[job.id] = {each.offer_id: each.nano_usd_per_hour for each in placement.alternatives}
    assert prices[three.id] == {offer_id: 3 * price for offer_id, price in prices[one.id].items()}


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.LATE])
def test_a_launch_without_an_answer_leaves_no_machine_of_the_gang_behind(
    home: SimulatedInstallation, fault: Fault
) -> None:
    job = home.submit(steps=30, resources=THREE)
    home.faults.inject("launch", *[fault] * 3)
    home.until(lambda: bool(home.cloud.instances()))
    home.ask("pause", job)
    home.run_for(120)
    assert not alive(home)
    home.ask("resume", job)
    home.until_state(job, "finished")
    home.settle()
    check_truth(home)


def test_a_provider_that_lists_two_of_three_does_not_hide_the_third(home: SimulatedInstallation) -> None:
    job = home.submit(steps=30, resources=THREE)
    home.faults.inject("launch", Fault.LOST_REPLY, Fault.LOST_REPLY)
    home.faults.inject("find", *[Fault.PARTIAL] * 3)
    home.until(lambda: bool(home.cloud.instances()))
    home.ask("pause", job)
    home.faults.inject("list_owned", *[Fault.PARTIAL] * 3)
    home.run_for(180)
    assert not alive(home)
    assert booked(home, job) == sum(bill.amount_nano_usd for bill in home.cloud.bills())
    home.ask("cancel", job)
    home.until_state(job, "cancelled")
    home.settle()
    check_truth(home)


def down_and_up(home: SimulatedInstallation, job: Job) -> None:
    """Shut everything down, and start again a minute later: all machines are booked, and the job can finish."""
    home.go_down()
    home.faults.forget()
    home.clock.advance(60.0)
    home.start()
    home.run_for(300)
    assert not alive(home)
    assert booked(home, job) == sum(bill.amount_nano_usd for bill in home.cloud.bills())
    home.ask("resume", job)
    home.until_state(job, "finished")
    home.settle()
    check_truth(home)


@pytest.mark.parametrize("omitted", range(4))
def test_down_books_every_machine_of_a_gang_also_those_that_the_provider_omits(
    home: SimulatedInstallation, omitted: int
) -> None:
    job = home.submit(steps=20, resources=THREE)
    home.until(lambda: len(home.cloud.instances()) == 3)
    home.tick()
    home.clock.advance(5.0)  # billed by now, which nobody has seen yet
    for instance in home.cloud.instances():
        home.cloud.crash(instance.id)
    home.faults.inject("describe", *[None] * omitted, *[Fault.PARTIAL] * 20)
    down_and_up(home, job)


def test_down_in_the_middle_of_a_launch_books_the_machine_that_ended_unseen(home: SimulatedInstallation) -> None:
    job = home.submit(steps=30, resources=THREE)
    home.faults.inject("launch", *[Fault.LOST_REPLY] * 40)
    home.until(lambda: len(home.cloud.instances()) == 3)
    home.run_for(5)  # they boot and are billed; the answer to their launch is lost again and again
    run, (first, *others) = home.runs(job)[-1], home.cloud.instances()
    home.cloud.crash(first.id)
    with home.store.write() as tx:  # as far as they were found by then
        tx.set_machines(run.id, with_machines(run, [each.id for each in others]))
    down_and_up(home, job)


def test_a_gang_moves_to_a_cheaper_offer_with_one_checkpoint(home: SimulatedInstallation) -> None:
    job = home.submit(steps=400, resources=TWO, capacity=(CapacityType.SPOT,))
    run = home.until_step(job, 12)
    assert run.offer_id == CHEAP.id
    home.reprice(CHEAP.id, "9.00")
    home.until(lambda: len(home.runs(job)) == 2 and home.runs(job)[1].state == "training")
    first, second = home.runs(job)
    assert (first.end, second.offer_id, len(second.instance_ids)) == ("moved", EXPENSIVE.id, 2)
    home.settle()
    assert home.cloud.bills()
    check_truth(home)


def test_a_standby_of_a_gang_is_a_gang(home: SimulatedInstallation) -> None:
    job = home.submit(steps=120, resources=TWO, standby="warm")
    home.until_step(job, 5)
    home.until(lambda: len(alive(home)) == 4)
    home.run_for(10)
    run = home.current(job)
    assert run is not None
    home.cloud.crash(run.instance_ids[1])
    home.until(lambda: bool(home.events(job, "standby.promoted")))
    home.settle()
    assert home.job(job).state == "finished"
    check_truth(home)


def test_a_failed_gang_is_retried_on_other_machines(home: SimulatedInstallation) -> None:
    job = home.submit(steps=40, resources=TWO)
    home.site.raise_at(job.id, 12)
    home.settle()
    first, second = home.runs(job)
    assert first.end == "failed"
    assert not set(first.instance_ids) & set(second.instance_ids)
    check_truth(home)


def test_its_machines_survive_in_the_store(home: SimulatedInstallation) -> None:
    job = home.submit(steps=40, resources=TWO)
    run: Run = home.until_step(job, 3)
    assert home.read(lambda tx: tx.run(run.id)).members == run.members
    home.restart()
    assert home.read(lambda tx: tx.run(run.id)).machines == run.machines
    assert RESERVE.id != run.offer_id
    home.settle()
    check_truth(home)
