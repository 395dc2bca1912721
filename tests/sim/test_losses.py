"""Machines that go: with notice, without, broken, silent; and clouds that refuse, mumble or forget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from orchestrator.engine.inputs import snapshot
from orchestrator.market.availability import BACKOFF_MS, CapacityHistory, hazard_per_hour
from orchestrator.model import Expected, GpuRequest, Step
from providers.fake import Fault
from tests.sim.harness import (
    BRISK,
    CHEAP,
    EXPENSIVE,
    FINE_STRIDE_S,
    RESERVE,
    SimulatedInstallation,
    check_truth,
    lost_at_most,
)
from trainers.checkpoint.manifest import ManifestName

Install = Callable[..., SimulatedInstallation]


def test_a_preemption_with_notice_repeats_at_most_one_step(home: SimulatedInstallation) -> None:
    job = home.submit(steps=40)
    run = home.until_step(job, 12)
    home.cloud.preempt(home.machine(run).id, notice_s=30.0)
    home.settle()
    first, second = home.runs(job)
    assert first.end in ("moved", "preempted")
    assert second.repeated_steps <= 1
    assert home.migrations(job)[1].reason == "notice"
    check_truth(home)


def test_a_notice_that_only_the_machine_was_given_moves_the_job(home: SimulatedInstallation) -> None:
    """Some clouds tell the machine and nobody else: its agent reports it, once at least."""
    job = home.submit(steps=40)
    run = home.until_step(job, 12)
    home.site.lie(job.id, 0, lambda said: {**said, "notice_s": 30.0})
    home.until(lambda: bool(home.events(job, "instance.notice")))
    home.site.lie(job.id, 0, None)
    home.settle()
    first, second = home.runs(job)
    assert first.end in ("moved", "preempted")
    assert second.repeated_steps <= 1
    assert home.migrations(job)[1].reason == "notice"
    assert [event.run_id for event in home.events(job, "instance.notice")] == [run.id]
    check_truth(home)


@pytest.mark.parametrize("how", ["preempt", "crash"])
def test_a_machine_lost_without_notice_repeats_at_most_one_checkpoint_interval(
    home: SimulatedInstallation, how: str
) -> None:
    home.stride_s = FINE_STRIDE_S
    job = home.submit(steps=40)
    run = home.until_step(job, 13)
    getattr(home.cloud, how)(home.machine(run).id)
    home.settle()
    first, second = home.runs(job)
    assert first.end == ("preempted" if how == "preempt" else "lost")
    assert 0 < second.repeated_steps <= lost_at_most(home)
    assert home.migrations(job)[1].reason == "lost"
    check_truth(home)


def test_a_notice_without_another_offer_ends_in_waiting_until_there_is_one(
    home: SimulatedInstallation,
) -> None:
    job = home.submit(steps=40)
    run = home.until_step(job, 12)
    for offer in (CHEAP, EXPENSIVE, RESERVE):
        home.cloud.set_capacity(offer.id, 0)
    home.cloud.preempt(home.machine(run).id, notice_s=15.0)
    home.until_state(job, "queued")
    home.run_for(60)
    assert home.job(job).state == "queued"
    waits = [event.message for event in home.events(job, "job.waits")]
    assert len(waits) == len({message.partition(";")[0] for message in waits}) <= 2
    home.cloud.set_capacity(RESERVE.id, None)
    home.clock.advance(4 * 3600)  # longer than any back-off
    home.settle()
    assert home.job(job).state == "finished"
    assert all(run.repeated_steps <= 1 for run in home.runs(job))
    check_truth(home)


def test_a_refused_launch_goes_to_another_offer_and_is_remembered(home: SimulatedInstallation) -> None:
    home.cloud.set_capacity(CHEAP.id, 0)
    job = home.submit()
    home.settle()
    assert [(run.offer_id, run.end) for run in home.runs(job)] == [(CHEAP.id, "aborted"), (EXPENSIVE.id, "finished")]
    points = home.read(lambda tx: tx.availability(0, home.clock.now_ms()))
    assert (CHEAP.id, "refused") in [(point.offer_id, point.kind) for point in points]
    check_truth(home)


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.NO_ANSWER, Fault.LATE, Fault.THROTTLED])
def test_a_launch_without_a_clear_answer_still_makes_exactly_one_machine(
    home: SimulatedInstallation, fault: Fault
) -> None:
    home.faults.inject("launch", fault, fault)
    job = home.submit()
    home.settle()
    assert home.job(job).state == "finished"
    assert len(home.cloud.bills()) == 1
    check_truth(home)


def test_a_launch_whose_reply_is_lost_for_ever_is_found_and_ended(home: SimulatedInstallation) -> None:
    home.faults.inject("launch", *[Fault.LOST_REPLY] * 3)
    job = home.submit()
    home.until(lambda: bool(home.cloud.bills()))
    home.ask("cancel", job)
    home.until(lambda: bool(home.events(job, "instance.adopted")))
    home.settle()
    assert home.job(job).state == "cancelled"
    check_truth(home)


@pytest.mark.parametrize("dies", [True, False])
def test_a_machine_of_an_unanswered_launch_is_booked_even_if_no_list_ever_mentioned_it(
    install: Install, dies: bool
) -> None:
    home = install(behaviour=replace(BRISK, listing_lag_s=60.0))
    home.faults.inject("launch", *[Fault.LOST_REPLY] * 6)
    job = home.submit()
    home.until(lambda: bool(home.cloud.bills()))
    home.ask("cancel", job)
    home.run_for(4)
    (machine,) = home.cloud.instances()
    if dies:
        home.cloud.crash(machine.id)
    home.settle()
    assert home.job(job).state == "cancelled"
    assert home.books()[0] > 0
    assert [(run.end, run.state, run.instance_id) for run in home.runs(job)] == [("aborted", "ended", machine.id)]
    check_truth(home)


def test_a_launch_that_is_aborted_and_then_refused_leaves_nothing_to_look_up(home: SimulatedInstallation) -> None:
    home.faults.inject("launch", *[Fault.NO_ANSWER] * 2)
    job = home.submit()
    home.until(lambda: bool(home.migrations(job)))
    home.ask("cancel", job)
    for offer in (CHEAP, EXPENSIVE, RESERVE):
        home.cloud.set_capacity(offer.id, 0)
    home.settle()
    assert [(run.end, run.state, run.instance_id) for run in home.runs(job)] == [("aborted", "ended", None)]
    assert not home.cloud.bills()
    check_truth(home)


def test_a_step_that_is_lost_twice_is_counted_twice_and_not_three_times(home: SimulatedInstallation) -> None:
    home.stride_s = FINE_STRIDE_S
    job = home.submit(steps=60)
    run = home.until_step(job, 13)
    home.cloud.crash(home.machine(run).id)
    home.until(lambda: (now := home.current(job)) is not None and now.id != run.id)
    second = home.current(job)
    assert second is not None
    home.cloud.crash(home.machine(second).id)
    home.settle()
    made = home.site.book()
    wasted = sum(max(0, one.step - next_.start_step) for one, next_ in pairwise(made))
    assert sum(run.repeated_steps for run in home.runs(job)) <= wasted
    assert home.runs(job)[1].repeated_steps > 0
    check_truth(home)


def test_a_provider_that_never_answers_a_launch_is_left_for_another_offer(home: SimulatedInstallation) -> None:
    home.faults.inject("launch", *[Fault.NO_ANSWER] * 31)
    job = home.submit()
    home.settle()
    assert [run.offer_id for run in home.runs(job)] == [CHEAP.id, EXPENSIVE.id]
    check_truth(home)


def test_a_provider_that_does_not_answer_after_a_restart_costs_no_running_job(home: SimulatedInstallation) -> None:
    job = home.submit(steps=30)
    home.until_step(job, 5)
    home.faults.inject("describe", *[Fault.NO_ANSWER] * 10)
    home.start()
    home.settle()
    assert len(home.runs(job)) == 1
    check_truth(home)


def test_a_silent_trainer_is_suspected_and_replaced_only_when_its_lease_is_over(install: Install) -> None:
    home = install(overrides={"lease_s": 20.0, "suspect_after_s": 5.0})
    home.stride_s = FINE_STRIDE_S
    job = home.submit(steps=60)
    run = home.until_step(job, 7)
    home.site.drop_reports(run.id)
    home.until(lambda: bool(home.events(job, "run.suspected")))
    home.run_for(10)
    assert home.current(job) is not None
    home.until(lambda: len(home.runs(job)) == 2)
    home.settle()
    assert home.runs(job)[0].end == "lost"
    assert home.job(job).state == "finished"
    silent = home.site.book()[0]
    assert silent.state == "fenced"
    assert silent.step < 7 + 20 + 3  # it stopped by itself when its lease was over
    check_truth(home)


def test_an_expired_lease_is_enough_to_recover_where_terminate_never_answers(install: Install) -> None:
    home = install(overrides={"lease_s": 20.0, "suspect_after_s": 5.0})
    job = home.submit(steps=60)
    run = home.until_step(job, 7)
    home.site.drop_reports(run.id)
    home.faults.inject("terminate", *[Fault.NO_ANSWER] * 600)  # twenty minutes, asked every two seconds
    home.until(lambda: len(home.runs(job)) == 2)
    home.until(lambda: (now := home.current(job)) is not None and now.id != run.id, limit_s=30.0)
    home.until_state(job, "finished")
    assert home.machine(run).alive  # its region is down still
    assert home.site.book()[0].state == "fenced"
    home.settle(limit_s=1400.0)
    check_truth(home)


def test_the_lease_of_a_run_whose_end_is_not_confirmed_runs_out_while_its_successor_starts(install: Install) -> None:
    """As when one host of several has crashed: its provider cannot say what became of it."""
    home = install(overrides={"lease_s": 20.0, "suspect_after_s": 5.0})
    home.stride_s = FINE_STRIDE_S
    job = home.submit(steps=60)
    run = home.until_step(job, 7)
    home.site.prepare_takes(lambda _: 15.0)
    home.faults.inject("terminate", *[Fault.NO_ANSWER] * 600)
    home.site.lie(job.id, 0, lambda said: {**said, "state": "absent"} if said["run_id"] == run.id else said)
    home.until(lambda: len(home.runs(job)) == 2)
    at_s = home.clock.monotonic_s()
    home.until(lambda: (now := home.current(job)) is not None and now.id != run.id, limit_s=60.0)
    assert 20.0 <= home.clock.monotonic_s() - at_s < 30.0
    home.settle(limit_s=1400.0)
    check_truth(home)


def test_a_control_plane_that_is_new_waits_a_lease_of_its_own_for_a_machine_that_cannot_be_ended(
    install: Install,
) -> None:
    home = install(overrides={"lease_s": 20.0, "suspect_after_s": 5.0})
    job = home.submit(steps=60)
    run = home.until_step(job, 7)
    home.site.drop_reports(run.id)
    home.faults.inject("terminate", *[Fault.NO_ANSWER] * 600)
    home.until(lambda: len(home.runs(job)) == 2)
    home.start()  # with nothing in its memory
    at_s = home.clock.monotonic_s()
    home.until(lambda: (now := home.current(job)) is not None and now.id != run.id, limit_s=60.0)
    assert home.clock.monotonic_s() - at_s > 20.0
    home.settle(limit_s=1400.0)
    check_truth(home)


def test_a_run_that_was_ended_without_its_word_trains_no_more_though_its_machine_cannot_be_ended(
    home: SimulatedInstallation,
) -> None:
    """While `terminate` fails, the trainer itself is ended: it neither trains nor commits beside its successor."""
    job = home.submit(steps=400)
    run = home.until_step(job, 7)
    home.site.ignore_control(job.id)
    home.faults.inject("terminate", *[Fault.NO_ANSWER] * 100)
    home.ask("pause", job)
    home.until_state(job, "paused")
    home.run_for(10)
    reached = home.site.book()[0].step
    home.run_for(10)
    assert home.site.book()[0].step == reached
    assert home.machine(run).alive
    home.ask("cancel", job)
    home.settle()
    check_truth(home)


def test_a_forgotten_machine_is_gone(install: Install) -> None:
    home = install(behaviour=replace(BRISK, forget_s=0.0))
    job = home.submit(steps=30)
    run = home.until_step(job, 7)
    home.cloud.crash(home.machine(run).id)
    home.settle()
    assert home.job(job).state == "finished"
    assert not any(instance.alive for instance in home.cloud.instances())


def test_a_recovery_does_not_wait_for_the_price_feed(home: SimulatedInstallation) -> None:
    job = home.submit(steps=60)
    run = home.until_step(job, 7)
    home.faults.inject("offers", *[Fault.NO_ANSWER] * 200)
    home.cloud.crash(home.machine(run).id)
    home.until(lambda: len(home.runs(job)) == 2 and home.current(job) is not None, limit_s=60)
    assert home.migrations(job)[-1].step in (Step.RELEASE, Step.DONE)


def test_a_second_loss_during_a_price_outage_is_recovered_from_too(home: SimulatedInstallation) -> None:
    job = home.submit(steps=60)
    run = home.until_step(job, 7)
    home.faults.inject("offers", *[Fault.NO_ANSWER] * 120)
    home.cloud.crash(home.machine(run).id)
    home.until(lambda: (now := home.current(job)) is not None and now.id != run.id, limit_s=60)
    second = home.current(job)
    assert second is not None
    home.cloud.crash(home.machine(second).id)
    home.until(lambda: (now := home.current(job)) is not None and now.id != second.id, limit_s=60)
    home.faults._script.clear()
    home.settle()
    assert home.job(job).state == "finished"
    check_truth(home)


def test_fences_that_are_newer_than_the_store_are_followed(home: SimulatedInstallation) -> None:
    """As after `tradewind store restore`: what was trained since counts, its generation is not used again."""
    job = home.submit(steps=40)
    run = home.until_step(job, 12)
    name = f"1-{home.until_step(job, 15).last_step // 5 * 5}-1"
    home.fence(job, 4, name)  # made after the backup
    home.settle()
    assert home.job(job).state == "finished"
    assert home.runs(job)[0].id == run.id
    assert home.runs(job)[0].end == "lost"
    assert home.runs(job)[1].generation == 5
    assert home.runs(job)[1].start_step == ManifestName.parse(name).step
    check_truth(home)


def test_damage_that_only_the_target_finds_costs_steps_but_neither_the_job_nor_its_retries(
    home: SimulatedInstallation,
) -> None:
    job = home.submit(steps=40)
    run = home.until_step(job, 13)
    home.cloud.crash(home.machine(run).id)
    home.until(lambda: home.migrations(job)[-1].step is Step.TRANSFER)
    fixed = home.migrations(job)[-1].manifest
    assert fixed is not None
    home.checkpoints.rot(job.id, fixed)
    home.settle()
    moved = home.migrations(job)[1]
    assert home.job(job).state == "finished"
    assert (len(home.migrations(job)), moved.step) == (2, Step.DONE)
    assert moved.manifest is not None
    assert home.runs(job)[1].start_step == ManifestName.parse(moved.manifest).step < ManifestName.parse(fixed).step
    assert home.checkpoints.fences(job.id)[2] == moved.manifest
    reported = home.events(job, "migration.verify")[-1].message
    assert f"skipped: {fixed}" in reported
    assert home.read(lambda tx: tx.job_facts(job.id).failures) == 0


@pytest.mark.parametrize("lie", [{"manifest": "1-5-1"}, {"manifest": "1-5-1", "manifest_step": 5}, {"start_step": 7}])
def test_a_machine_that_names_another_checkpoint_than_it_begins_with_costs_no_steps(
    home: SimulatedInstallation, lie: dict[str, object]
) -> None:
    """It would look like damage of the newer ones (seed 24585 of the crash fuzz)."""
    job = home.submit(steps=60)
    run = home.until_step(job, 23)
    home.cloud.crash(home.machine(run).id)
    home.until(lambda: home.migrations(job)[-1].step is Step.RESTORE)
    home.site.lie(job.id, 0, lambda said: {**said, **lie})
    home.run_for(30)
    home.site.lie(job.id, 0, None)
    home.settle()
    assert home.runs(job)[-1].repeated_steps <= lost_at_most(home)
    check_truth(home)


def test_a_control_plane_that_dies_before_the_cutover_still_knows_what_was_passed_over(
    home: SimulatedInstallation,
) -> None:
    job = home.submit(steps=40)
    run = home.until_step(job, 13)
    home.cloud.crash(home.machine(run).id)
    home.until(lambda: home.migrations(job)[-1].step is Step.TRANSFER)
    home.checkpoints.rot(job.id, home.migrations(job)[-1].manifest or "")
    home.until(lambda: home.migrations(job)[-1].step is Step.CUTOVER)
    home.start()
    home.settle()
    assert (len(home.migrations(job)), home.migrations(job)[1].step) == (2, Step.DONE)


def test_a_source_that_lives_trains_on_when_its_last_word_is_damaged(home: SimulatedInstallation) -> None:
    job = home.submit(steps=60)
    home.until_step(job, 13)
    home.ask("migrate", job, offer_id=RESERVE.id)
    home.until(lambda: home.migrations(job)[-1].step is Step.TRANSFER)
    home.checkpoints.rot(job.id, home.migrations(job)[-1].manifest or "")
    home.settle()
    assert "not" in (home.migrations(job)[1].error or "")
    assert home.job(job).state == "finished"
    assert home.runs(job)[0].end != "failed"
    check_truth(home)


def test_a_job_that_was_moved_by_an_outage_is_weighed_again_when_the_back_off_ends(
    home: SimulatedInstallation,
) -> None:
    """Nothing else happens then: no price changes, and the daily decision is far away. The job is shorter than an
    outage is expected to last, so it does not wait."""
    job = home.submit(steps=10_000, expected=Expected(GpuRequest("V100"), 1.0))
    run = home.until_step(job, 12)
    home.cloud.preempt(home.machine(run).id)
    home.until(lambda: (now := home.current(job)) is not None and now.offer_id == EXPENSIVE.id)
    home.run_for(60)
    assert len(home.migrations(job)) == 2
    home.clock.advance(BACKOFF_MS / 1000)
    home.until(lambda: len(home.migrations(job)) == 3, limit_s=30.0)
    assert home.migrations(job)[2].offer_id == CHEAP.id


def test_a_job_that_waits_for_capacity_is_looked_at_again_no_later_than_when_the_first_back_off_ends(
    home: SimulatedInstallation,
) -> None:
    home.clock.factor = 900.0  # two seconds, after which a waiting job is looked at anyway, are half an hour
    for offer in (CHEAP, EXPENSIVE, RESERVE):
        home.cloud.set_capacity(offer.id, 0)
    job = home.submit(steps=40)
    home.until(lambda: bool(home.events(job, "job.waits")), stride_s=0.01)
    (reported,) = home.events(job, "job.waits")
    market = home.read(lambda tx: snapshot.market(tx, reported.at_ms, home.installation.config))
    assert market.backed_off.all()
    assert home.read(lambda tx: tx.job_facts(job.id)).next_decision_ms == market.backed_off_until.min()


def test_a_job_that_waits_for_its_machine_says_so_once(home: SimulatedInstallation) -> None:
    job = home.submit(steps=20_000, expected=Expected(GpuRequest("V100"), 1.0))
    run = home.until_step(job, 12)
    home.cloud.preempt(home.machine(run).id)
    home.until(lambda: bool(home.events(job, "job.waits")))
    home.run_for(600)
    (reported,) = home.events(job, "job.waits")
    assert reported.message.startswith(f"waiting for {CHEAP.id}; it should be available again in about ")


def test_three_machines_that_one_outage_takes_shut_their_offer_as_long_as_one(home: SimulatedInstallation) -> None:
    jobs = [home.submit(f"job-{n}", steps=2000) for n in range(3)]
    runs = [home.until_step(job, 5) for job in jobs]
    assert {run.offer_id for run in runs} == {CHEAP.id}
    for run in runs:
        home.cloud.preempt(home.machine(run).id)
    home.until(lambda: all(len(home.migrations(job)) == 2 for job in jobs))
    market = home.read(lambda tx: snapshot.market(tx, home.clock.now_ms(), home.installation.config))
    row = market.row(CHEAP.id)
    assert market.losses[row] == 3
    assert market.backed_off_until[row] - market.backed_off_at[row] == BACKOFF_MS


def test_a_run_learns_the_hazard_of_its_offer_and_again_when_that_has_changed(home: SimulatedInstallation) -> None:
    home.clock.factor = 600.0
    job = home.submit(steps=20_000, expected=Expected(GpuRequest("V100"), 1.0))
    run = home.until_step(job, 2)
    home.run_for(60)
    chances = [risk.losses_per_h / home.clock.factor for risk in home.site.risks[run.id]]
    prior = hazard_per_hour(CapacityHistory(), spot=True)
    assert prior / 1.5 < chances[0] < prior
    assert chances == sorted(chances, reverse=True), "its machine lives on"
    assert prior / 4 < chances[-1] < chances[0] / 1.25
    assert len(chances) < 6, "each time is a write to the store"
    assert {risk.charge_s for risk in home.site.risks[run.id]} == {0.0}, "a folder charges nothing"
