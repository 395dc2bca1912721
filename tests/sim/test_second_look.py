"""A move is weighed again before its machine is rented, before its source holds and before it hands the job over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from orchestrator.model import Expected, GpuRequest, Job, Step
from providers.fake import Fault
from tests.sim.harness import BRISK, CHEAP, EXPENSIVE, FINE_STRIDE_S, RESERVE, SimulatedInstallation, check_truth

Install = Callable[..., SimulatedInstallation]


def cheaper(home: SimulatedInstallation, dollars: str = "0.40") -> Job:
    """A job that is on its way to a cheaper offer."""
    job = home.submit(steps=120)
    home.until_step(job, 12)
    home.reprice(EXPENSIVE.id, dollars)
    return job


def rented(home: SimulatedInstallation, job: Job) -> int:
    return sum(run.instance_id is not None for run in home.runs(job))


def test_a_move_that_no_longer_pays_before_its_machine_is_rented_rents_none(home: SimulatedInstallation) -> None:
    home.stride_s = FINE_STRIDE_S
    job = cheaper(home)
    home.faults.inject("launch", Fault.THROTTLED, Fault.THROTTLED)
    home.until(lambda: len(home.migrations(job)) == 2)
    home.reprice(EXPENSIVE.id, "1.60")
    home.settle()
    assert home.migrations(job)[1].step is Step.ABORTED
    assert [run.end for run in home.runs(job)] == ["finished", "aborted"]
    assert rented(home, job) == 1
    reported = home.events(job, "migration.aborted")[0]
    assert reported.message.startswith("move cancelled: ")
    assert reported.plan_id is not None
    assert not home.events(job, "move.wasted")
    check_truth(home)


@pytest.mark.parametrize("step", [Step.READY, Step.RESTORE])
def test_a_move_that_no_longer_pays_is_aborted_and_its_cost_is_reported(
    home: SimulatedInstallation, step: Step
) -> None:
    home.stride_s = FINE_STRIDE_S
    job = cheaper(home)
    home.until(lambda: home.migrations(job)[-1].step is step)
    home.reprice(EXPENSIVE.id, "2.00")
    home.settle()
    assert home.migrations(job)[1].step is Step.ABORTED
    assert home.runs(job)[0].end == "finished"
    (reported,) = home.events(job, "move.wasted")
    assert "spent so far: finishing there would cost $" in reported.message
    check_truth(home)


def test_a_job_that_is_nearly_done_when_its_new_machine_is_up_ends_where_it_is(home: SimulatedInstallation) -> None:
    """As in the demo, where one was moved for its last 14 steps."""
    home.stride_s = FINE_STRIDE_S
    job = cheaper(home)
    home.cloud.behaviour = replace(BRISK, boot_s=104.0)  # the machines that it has seen were up in a moment
    home.settle(stride_s=FINE_STRIDE_S)
    assert [run.end for run in home.runs(job)] == ["finished", "aborted"]
    assert "more than staying" in home.events(job, "migration.aborted")[0].message
    check_truth(home)


KNOWN = Expected(GpuRequest("V100"), 1.0)


def on_its_way(home: SimulatedInstallation, to: str) -> Job:
    """A job that is to begin at that offer, and whose launch gets no clear answer for a while."""
    home.faults.inject("launch", *[Fault.THROTTLED] * 4)
    job = home.submit(steps=600, expected=KNOWN)
    home.until(lambda: len(home.migrations(job)) == 1)
    assert home.migrations(job)[0].offer_id == to
    return job


def test_a_first_place_that_another_is_better_than_by_now_is_not_rented(home: SimulatedInstallation) -> None:
    job = on_its_way(home, CHEAP.id)
    home.reprice(EXPENSIVE.id, "0.40")
    home.settle(limit_s=2000.0)
    assert [(run.offer_id, run.end) for run in home.runs(job)] == [(CHEAP.id, "aborted"), (EXPENSIVE.id, "finished")]
    assert rented(home, job) == len(home.cloud.instances()) == 1
    (reported,) = home.events(job, "migration.aborted")
    assert reported.message.startswith(f"not started on {CHEAP.id}: ")
    assert EXPENSIVE.id in reported.message
    assert reported.plan_id is not None
    assert not home.events(job, "placement.wasted")
    check_truth(home)


def test_a_small_swing_of_the_market_gives_no_first_place_up(home: SimulatedInstallation) -> None:
    job = on_its_way(home, CHEAP.id)
    home.reprice(EXPENSIVE.id, "0.97")
    home.until_state(job, "running")
    assert [run.offer_id for run in home.runs(job)] == [CHEAP.id]


def test_a_first_placement_that_is_no_longer_sold_is_aborted_also_for_an_unmeasured_job(
    home: SimulatedInstallation,
) -> None:
    home.faults.inject("launch", *[Fault.THROTTLED] * 4)
    job = home.submit(steps=30)
    home.until(lambda: len(home.migrations(job)) == 1)
    home.cloud.withdraw(home.migrations(job)[0].offer_id)
    home.plane._ctx.pacing.pop("collect:fake", None)
    home.settle()
    assert [run.end for run in home.runs(job)] == ["aborted", "finished"]
    assert len(home.cloud.instances()) == 1
    check_truth(home)


def test_a_recovery_is_weighed_again_before_its_machine_is_rented(home: SimulatedInstallation) -> None:
    job = home.submit(steps=600, expected=KNOWN)
    run = home.until_step(job, 12)
    home.cloud.preempt(home.machine(run).id)
    home.faults.inject("launch", *[Fault.THROTTLED] * 4)
    home.until(lambda: len(home.migrations(job)) == 2)
    assert home.migrations(job)[1].offer_id == EXPENSIVE.id
    home.reprice(RESERVE.id, "0.80")
    home.until(lambda: len(home.migrations(job)) == 3)
    second, third = home.migrations(job)[1:]
    assert (second.step, second.reason) == (Step.ABORTED, "lost")
    assert third.offer_id == RESERVE.id
    assert RESERVE.id in home.events(job, "migration.aborted")[0].message
    home.settle(limit_s=2000.0)
    assert home.job(job).state == "finished"
    check_truth(home)


def test_a_place_that_a_user_has_ordered_is_rented_whatever_the_market_says(home: SimulatedInstallation) -> None:
    job = home.submit(steps=600, expected=KNOWN)
    home.until_step(job, 4)
    home.faults.inject("launch", *[Fault.THROTTLED] * 4)
    home.ask("migrate", job, offer_id=RESERVE.id)
    home.until(lambda: len(home.migrations(job)) == 2)
    home.reprice(EXPENSIVE.id, "0.40")
    home.until(lambda: (run := home.current(job)) is not None and run.offer_id == RESERVE.id)


def test_an_aborted_move_is_not_started_again_at_once(install: Install) -> None:
    home = install(overrides={"policy.min_dwell_s": 3600.0})
    job = home.submit(steps=4000)
    home.until_step(job, 12)
    home.clock.advance(3600)
    home.reprice(EXPENSIVE.id, "0.30")
    for turn in range(12):
        home.until(lambda: len(home.migrations(job)) == 2)
        home.run_for(3)
        home.reprice(EXPENSIVE.id, "1.60" if turn % 2 == 0 else "0.30")
        home.run_for(10)
    assert len(home.migrations(job)) == 2
    assert home.migrations(job)[1].step is Step.ABORTED


def test_a_manual_move_continues_whatever_it_costs(home: SimulatedInstallation) -> None:
    job = home.submit(steps=60)
    home.until_step(job, 5)
    home.ask("migrate", job, offer_id=RESERVE.id)
    home.until(lambda: home.migrations(job)[-1].step is Step.READY)
    home.reprice(RESERVE.id, "30.00")
    home.settle()
    assert [(run.offer_id, run.end) for run in home.runs(job)] == [(CHEAP.id, "moved"), (RESERVE.id, "finished")]


@pytest.mark.parametrize("step", [Step.READY, Step.RESTORE])
def test_a_move_continues_whatever_it_costs_once_its_source_is_being_preempted(
    home: SimulatedInstallation, step: Step
) -> None:
    home.stride_s = FINE_STRIDE_S
    job = cheaper(home)
    home.until(lambda: home.migrations(job)[-1].step is step)
    home.reprice(EXPENSIVE.id, "2.00")
    home.cloud.preempt(home.machine(home.runs(job)[0]).id, notice_s=60.0)
    home.settle()
    assert [migration.step for migration in home.migrations(job)] == [Step.DONE, Step.DONE]
    assert home.runs(job)[1].end == "finished"
    check_truth(home)
