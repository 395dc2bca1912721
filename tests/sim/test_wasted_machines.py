"""Machines that are rented but released before the job trains: they are few and reported, then the job pauses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from orchestrator.engine.inputs import snapshot
from orchestrator.engine.migration import timeouts, wasted
from orchestrator.engine.migration.move import load
from orchestrator.model import Job, Step
from orchestrator.policy import decide
from providers.fake import Fault
from providers.money import usd
from providers.offer import CapacityType
from tests.rig import findings
from tests.sim.harness import CHEAP, EXPENSIVE, RESERVE, SimulatedInstallation, check_truth

NEVER_S = 1e9
DAY_S = 86_400.0


def machines(home: SimulatedInstallation, job: Job) -> int:
    return sum(bill.tags["tradewind-job"] == job.id for bill in home.cloud.bills())


def take_each(home: SimulatedInstallation, job: Job, step: Step) -> None:
    """Take back every machine that a move of this job has brought to `step`."""
    for migration in home.migrations(job):
        if migration.step is step:
            (run,) = (run for run in home.runs(job) if run.id == migration.target_run_id)
            if home.machine(run).alive:
                home.cloud.preempt(home.machine(run).id)


def sound(home: SimulatedInstallation) -> None:
    found = findings(home, paused=True)
    assert not found, "\n".join(found)
    ledger, billed = home.books()
    assert ledger == billed


def test_a_restore_that_takes_longer_than_the_limit_is_given_more_time_on_the_next_machine(
    home: SimulatedInstallation,
) -> None:
    job = home.submit(steps=40)
    home.site.restore_takes(job.id, 320.0)
    home.until(lambda: home.job(job).state == "finished", limit_s=3000.0, stride_s=5.0)
    assert machines(home, job) == 2
    home.settle()
    check_truth(home)


def test_what_was_measured_once_is_allowed_for_from_then_on(home: SimulatedInstallation) -> None:
    job = home.submit(steps=4000)
    home.site.restore_takes(job.id, 320.0)
    home.until(lambda: home.current(job) is not None, limit_s=3000.0, stride_s=5.0)
    first = home.current(job)
    assert first is not None
    before = machines(home, job)
    home.cloud.crash(home.machine(first).id)
    home.until(lambda: (run := home.current(job)) is not None and run.id != first.id, limit_s=3000.0, stride_s=5.0)
    assert machines(home, job) == before + 1


def test_a_job_whose_placements_are_all_wasted_pauses_and_says_what_to_change_and_what_it_cost(
    home: SimulatedInstallation,
) -> None:
    job, innocent = home.submit("slow", steps=40), home.submit("innocent", steps=900)
    home.site.restore_takes(job.id, NEVER_S)
    home.until(lambda: home.job(job).state == "paused", limit_s=4 * 3600.0, stride_s=30.0)
    home.until(lambda: home.job(innocent).state == "finished", limit_s=DAY_S, stride_s=20.0)
    spent = sum(bill.amount_nano_usd for bill in home.cloud.bills() if bill.tags["tradewind-job"] == job.id)
    assert machines(home, job) == wasted.MOST_IN_A_ROW
    assert machines(home, innocent) == 1
    (reported,) = home.events(job, "job.paused")
    assert "5 machines in a row" in reported.message
    assert "within 1200 s" in reported.message
    assert "smaller checkpoint" in reported.message
    assert "tradewind resume slow" in reported.message
    said = reported.data["spent_nano_usd"]
    assert isinstance(said, int)
    assert 0.95 * spent < said <= spent
    home.until(lambda: home.clock.now_ms() > reported.at_ms + 7_200_000, limit_s=DAY_S, stride_s=300.0)
    assert machines(home, job) == wasted.MOST_IN_A_ROW
    sound(home)


def test_a_resumed_job_begins_again_with_every_offer(home: SimulatedInstallation) -> None:
    job = home.submit(steps=40)
    home.site.restore_takes(job.id, NEVER_S)
    home.until(lambda: home.job(job).state == "paused", limit_s=4 * 3600.0, stride_s=30.0)
    home.site.restore_takes(job.id, 1.0)
    home.ask("resume", job)
    home.until_state(job, "finished")
    assert machines(home, job) == wasted.MOST_IN_A_ROW + 1
    home.settle()
    check_truth(home)


def test_an_offer_that_failed_a_job_is_left_out_for_it_alone_and_the_plan_says_why(home: SimulatedInstallation) -> None:
    job = home.submit("slow", steps=40)
    home.site.restore_takes(job.id, NEVER_S)
    home.until(lambda: bool(home.events(job, "placement.wasted")), limit_s=1000.0, stride_s=5.0)
    other = home.submit("other", steps=40)
    inputs = home.read(lambda tx: snapshot.inputs(tx, home.clock.now_ms(), home.config))
    plan = decide(inputs.demands, inputs.market, inputs.perf, inputs.running)
    (failed,) = (each for each in plan.placement(job.id).alternatives if each.offer_id == CHEAP.id)
    assert not failed.feasible
    assert "0 min ago" in failed.reason
    assert plan.placement(job.id).offer_id != CHEAP.id
    assert plan.placement(other.id).offer_id == CHEAP.id
    later_ms = home.clock.now_ms() + int(wasted.EXCLUDED_S * 1000)
    assert home.read(lambda tx: wasted.excluded(tx.events_of([job.id], wasted.EXCLUDING)[job.id], later_ms)) == ()


def test_an_offer_whose_machine_fails_before_it_trains_is_not_asked_for_again(
    install: Callable[..., SimulatedInstallation],
) -> None:
    """A host of one's own on which every machine ends at once is the cheapest offer for ever."""
    desks = [replace(CHEAP, region=desk, zone=desk, capacity_type=CapacityType.ON_DEMAND) for desk in ("one", "two")]
    home = install(catalog=[(desk, usd(dollars)) for desk, dollars in zip(desks, ("0.10", "1.00"), strict=True)])
    job = home.submit(steps=40)
    failed = set[str]()

    def trains() -> bool:
        for migration in home.migrations(job):
            if migration.step is Step.READY and migration.offer_id == desks[0].id:
                (run,) = (run for run in home.runs(job) if run.id == migration.target_run_id)
                if home.machine(run).alive:
                    home.cloud.crash(home.machine(run).id)
                    failed.add(run.id)
        return home.current(job) is not None

    home.until(trains, limit_s=1000.0)
    assert len(failed) == 1
    current = home.current(job)
    assert current is not None
    assert current.offer_id == desks[1].id
    (event,) = home.events(job, "placement.wasted")
    assert "the new machine ended (failed)" in event.message
    home.settle()
    sound(home)


@pytest.mark.parametrize("step", [Step.READY, Step.RESTORE, Step.VERIFY])
def test_machines_that_are_taken_one_after_another_are_asked_for_later_and_later_and_then_no_more(
    home: SimulatedInstallation, step: Step
) -> None:
    job = home.submit(steps=40)

    def paused() -> bool:
        take_each(home, job, step)
        return home.job(job).state == "paused"

    home.until(paused, limit_s=3600.0)
    assert machines(home, job) == wasted.MOST_IN_A_ROW
    asked = [migration.created_at_ms for migration in home.migrations(job) if migration.attempt]
    gaps = [after - before for before, after in pairwise(asked)]
    assert gaps[-1] >= 40_000 > gaps[0]
    assert "allow on_demand" in home.events(job, "job.paused")[0].message
    home.settle()
    sound(home)


def test_launches_that_rented_nothing_never_pause_a_job(home: SimulatedInstallation) -> None:
    home.faults.inject("launch", *[Fault.CAPACITY] * 8)
    job = home.submit(steps=20)
    home.until(lambda: home.job(job).state == "finished", limit_s=DAY_S, stride_s=30.0)
    assert len([each for each in home.migrations(job) if each.step is Step.ABORTED]) > wasted.MOST_IN_A_ROW
    assert not home.events(job, "placement.wasted", "job.paused")
    home.settle()
    check_truth(home)


def test_what_the_user_gives_up_does_not_count(home: SimulatedInstallation) -> None:
    job = home.submit(steps=20)
    home.site.restore_takes(job.id, 200.0)
    for _ in range(wasted.MOST_IN_A_ROW + 1):
        home.until(lambda: bool(found := home.migrations(job)) and found[-1].step is Step.RESTORE)
        home.ask("pause", job)
        home.until_state(job, "paused")
        home.ask("resume", job)
    home.until(lambda: home.job(job).state == "finished", limit_s=3000.0, stride_s=5.0)
    assert not home.events(job, "placement.wasted")


def test_a_training_job_is_not_paused_for_wasted_moves(home: SimulatedInstallation) -> None:
    job = home.submit(steps=3000)
    run = home.until_step(job, 5)
    home.site.restore_takes(job.id, NEVER_S)
    for number in range(1, wasted.MOST_IN_A_ROW + 2):
        home.ask("migrate", job, offer_id=(EXPENSIVE, RESERVE)[number % 2].id)
        home.until(lambda n=number: len(home.events(job, "move.wasted")) >= n, limit_s=1500.0, stride_s=20.0)  # type: ignore[misc]
    assert home.job(job).state == "running"
    current = home.current(job)
    assert current is not None
    assert current.id == run.id
    home.settle(limit_s=9000.0, stride_s=30.0)
    check_truth(home)


def test_spares_that_never_come_up_are_few_and_one_that_waited_is_replaced(home: SimulatedInstallation) -> None:
    job = home.submit(steps=250, standby="warm")
    home.until_step(job, 5)
    standby = [each for each in home.migrations(job) if each.reason == "standby"]
    home.until(lambda: [each.step for each in home.migrations(job) if each.reason == "standby"] == [Step.CHECKPOINT])
    assert len(standby) == 1
    (waiting,) = (run for run in home.runs(job) if run.id == standby[0].target_run_id)
    home.cloud.crash(home.machine(waiting).id)

    def taken() -> bool:
        take_each(home, job, Step.READY)
        return home.job(job).state == "finished"

    home.until(taken, limit_s=9000.0, stride_s=1.0)
    assert len(home.events(job, "standby.wasted")) == wasted.MOST_IN_A_ROW
    home.settle()
    check_truth(home)


def test_limits_follow_the_checkpoint_and_the_steps_and_are_bounded(home: SimulatedInstallation) -> None:
    job = home.submit(steps=4000)
    home.until_step(job, 5)
    home.ask("migrate", job)
    home.until(lambda: len(home.migrations(job)) == 2)
    ctx = home.plane._ctx

    def limit(checkpoint_bytes: int, step_wall_s: float) -> tuple[float, float]:
        with home.store.write(ctx.leadership) as tx:
            tx.set_job_facts(job.id, checkpoint_bytes=checkpoint_bytes)
            tx.update_run(home.migrations(job)[-1].source_run_id or "", step_wall_s=step_wall_s)
        move = home.read(lambda tx: load(tx, tx.migrations(job_id=job.id)[-1]))
        return timeouts.quiesce_s(ctx, move), timeouts.restore_s(ctx, move)

    assert limit(0, 0.1) == (timeouts.QUIESCE_S, timeouts.RESTORE_S)
    assert limit(100 * 10**9, 0.5) == (4031.5, 4150.0)
    assert limit(0, 100.0) == (330.0, timeouts.RESTORE_S)
    assert limit(10**18, 1e12) == (timeouts.LONGEST_S, timeouts.LONGEST_S)


def test_what_one_job_takes_gives_no_other_job_more_time(home: SimulatedInstallation) -> None:
    slow = home.submit("slow", steps=2000)
    home.site.restore_takes(slow.id, 290.0)
    home.until(lambda: home.current(slow) is not None, limit_s=2000.0, stride_s=5.0)
    other = home.submit("other", steps=2000)
    home.until(lambda: bool(home.migrations(other)))
    ctx = home.plane._ctx
    again, first = home.read(lambda tx: [load(tx, tx.migrations(job_id=job.id)[-1]) for job in (slow, other)])
    assert timeouts.restore_s(ctx, again) >= 3 * 290.0
    assert timeouts.restore_s(ctx, first) == timeouts.RESTORE_S
    assert timeouts.ready_s(ctx, first) == timeouts.READY_MARKET_S
