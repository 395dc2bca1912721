"""Planned moves: for a better price or requested by a user, and everything that can interrupt them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orchestrator.model import Step
from providers.fake import Fault
from providers.money import usd
from providers.offer import CapacityType
from tests.rig.trainer import BUG
from tests.sim.harness import (
    CATALOG,
    CHEAP,
    EXPENSIVE,
    FINE_STRIDE_S,
    PACE,
    RESERVE,
    SimulatedInstallation,
    check_truth,
)

Install = Callable[..., SimulatedInstallation]
STEPS = [step for step in Step if step not in (Step.PROVISION, Step.DONE, Step.ABORTED)]


def make_cheaper(home: SimulatedInstallation, offer: str = EXPENSIVE.id) -> None:
    home.cloud.set_price(offer, usd("0.31"))


def test_a_cheaper_offer_moves_the_job_once_and_repeats_no_step(home: SimulatedInstallation) -> None:
    job = home.submit(steps=120)
    home.until_step(job, 12)
    make_cheaper(home)
    home.settle()
    first, second = home.runs(job)
    assert (first.offer_id, first.end) == (CHEAP.id, "moved")
    assert (second.offer_id, second.end) == (EXPENSIVE.id, "finished")
    assert second.repeated_steps == 0
    assert second.start_step == first.last_step
    assert [each.reason for each in home.migrations(job)] == ["first placement", "cheaper offer"]
    check_truth(home)


def test_a_job_whose_limit_has_no_room_for_two_machines_takes_a_cheaper_one_if_it_is_paused_and_resumed(
    install: Install,
) -> None:
    home = install(overrides={"limits.max_instances": 1})
    job = home.submit(steps=300)
    home.until_step(job, 12)
    make_cheaper(home)
    home.run_for(60)
    assert len(home.runs(job)) == 1
    home.ask("pause", job)
    home.until_state(job, "paused")
    home.ask("resume", job)
    home.settle()
    first, second = home.runs(job)
    assert (first.offer_id, second.offer_id, second.end) == (CHEAP.id, EXPENSIVE.id, "finished")
    assert second.repeated_steps == 0
    check_truth(home)


def test_prices_that_swing_do_not_make_a_job_swing_with_them(install: Install) -> None:
    home = install(overrides={"policy.min_dwell_s": 3600.0})
    job = home.submit(steps=90)
    home.until_step(job, 5)
    for turn in range(4):
        home.cloud.set_price(EXPENSIVE.id, usd("0.20" if turn % 2 else "1.60"))
        home.run_for(20)
    home.settle()
    assert len(home.runs(job)) == 1
    check_truth(home)


def test_a_manual_move_goes_to_the_named_offer(home: SimulatedInstallation) -> None:
    job = home.submit(steps=40)
    home.until_step(job, 5)
    asked = home.ask("migrate", job, offer_id=RESERVE.id)
    home.settle()
    assert home.answer(asked) == f"moving to {RESERVE.id}"
    assert [(run.offer_id, run.repeated_steps) for run in home.runs(job)] == [(CHEAP.id, 0), (RESERVE.id, 0)]
    check_truth(home)


def test_a_manual_move_without_a_name_goes_to_the_best_other_offer(home: SimulatedInstallation) -> None:
    job = home.submit(steps=40)
    home.until_step(job, 5)
    home.ask("migrate", job)
    home.settle()
    assert [run.offer_id for run in home.runs(job)] == [CHEAP.id, EXPENSIVE.id]


@pytest.mark.parametrize(
    ("offer", "word", "why"),
    [
        ("fake/nowhere", "not found", "does not exist"),
        (CHEAP.id, "refused", "already runs on"),
        (RESERVE.id, "infeasible", "on_demand"),
    ],
)
def test_a_manual_move_to_an_unsuitable_offer_is_refused(
    home: SimulatedInstallation, offer: str, word: str, why: str
) -> None:
    job = home.submit(steps=20, capacity=(CapacityType.SPOT,))
    home.until_step(job, 3)
    asked = home.ask("migrate", job, offer_id=offer)
    home.tick()
    answer = home.answer(asked) or ""
    assert answer.startswith(f"{word}: ")
    assert (offer in answer, why in answer) == (True, True)
    assert home.events(job, "command.refused")[0].message == f"migrate refused: {answer.partition(': ')[2]}"
    assert len(home.runs(job)) == 1


def test_a_second_manual_move_during_a_move_is_refused_with_an_event(home: SimulatedInstallation) -> None:
    job = home.submit(steps=40)
    home.until_step(job, 3)
    home.ask("migrate", job, offer_id=RESERVE.id)
    home.tick()
    asked = home.ask("migrate", job, offer_id=EXPENSIVE.id)
    home.tick()
    assert "already being moved" in (home.answer(asked) or "")
    assert home.events(job, "command.refused")[0].actor == "user:me"
    home.settle()
    check_truth(home)


def test_a_move_whose_target_is_refused_leaves_the_source_training_and_tries_another(
    home: SimulatedInstallation,
) -> None:
    home.stride_s = FINE_STRIDE_S
    job = home.submit(steps=150)
    home.until_step(job, 15)
    home.cloud.set_capacity(EXPENSIVE.id, 0)
    make_cheaper(home)
    home.until(lambda: len(home.migrations(job)) == 2 and home.migrations(job)[1].step is Step.ABORTED)
    assert home.job(job).state == "running"
    home.cloud.set_price(RESERVE.id, usd("0.32"))
    home.settle()
    assert [run.offer_id for run in home.runs(job) if run.end != "aborted"] == [CHEAP.id, RESERVE.id]
    check_truth(home)


@pytest.mark.parametrize(("step", "notice_s"), [*((step, None) for step in STEPS[:-1]), (Step.RESTORE, 30.0)])
def test_a_target_lost_before_cutover_leaves_the_source_training(
    home: SimulatedInstallation, step: Step, notice_s: float | None
) -> None:
    job = home.submit(steps=40)
    home.until_step(job, 5)
    home.ask("migrate", job, offer_id=RESERVE.id)
    home.until(lambda: home.migrations(job)[-1].step is step)
    target = home.runs(job)[-1]
    home.cloud.preempt(home.machine(target).id, notice_s=notice_s)
    home.until(lambda: home.migrations(job)[-1].step in (Step.ABORTED, Step.DONE))
    assert home.migrations(job)[1].step is Step.ABORTED
    assert home.job(job).state == "running"
    home.settle()
    assert home.runs(job)[0].end == "finished"
    check_truth(home)


@pytest.mark.parametrize(
    ("step", "notice_s"),
    [
        *((step, None) for step in (Step.PROVISION, *STEPS)),
        *((step, 10.0) for step in (Step.READY, Step.RESTORE, Step.CUTOVER)),
    ],
)
def test_a_source_lost_during_a_move_makes_it_a_recovery(
    home: SimulatedInstallation, step: Step, notice_s: float | None
) -> None:
    job = home.submit(steps=40)
    source = home.until_step(job, 5)
    home.faults.inject("launch", Fault.NO_ANSWER, Fault.NO_ANSWER)
    home.ask("migrate", job, offer_id=RESERVE.id)
    home.until(lambda: home.migrations(job)[-1].step is step)
    home.cloud.preempt(home.machine(source).id, notice_s=notice_s)
    home.settle()
    assert home.job(job).state == "finished"
    assert home.runs(job)[-1].end == "finished"
    if notice_s is not None:
        assert all(run.repeated_steps <= 1 for run in home.runs(job))
    check_truth(home)


@pytest.mark.parametrize(
    ("step", "how"),
    [
        (Step.CHECKPOINT, "silence"),
        (Step.TRANSFER, "silence"),
        (Step.CUTOVER, "silence"),
        (Step.CUTOVER, "notice"),
        (Step.CUTOVER, "a dead trainer"),
        (Step.CUTOVER, "a lease that ran out"),
    ],
)
def test_a_ready_target_takes_over_from_a_source_that_is_lost_before_the_cutover(
    home: SimulatedInstallation, step: Step, how: str
) -> None:
    job = home.submit(steps=200 if step is Step.CHECKPOINT else 20)
    source = home.until_step(job, 5)
    home.ask("migrate", job, offer_id=RESERVE.id)
    home.until_second_move(job, step)
    trainer = home.site._trainers[source.id]
    if how == "silence":
        trainer.silent_since_s = home.clock.monotonic_s()
    elif how == "a dead trainer":
        del home.site._trainers[source.id]
    elif how == "a lease that ran out":
        trainer.state = "fenced"
    else:
        home.cloud.preempt(home.machine(source).id, notice_s=60.0)
    home.settle()
    assert [migration.step for migration in home.migrations(job)] == [Step.DONE, Step.DONE]
    first, second = home.runs(job)
    assert first.end in ("preempted", "lost", "moved")
    assert second.end == "finished"
    assert second.repeated_steps <= (PACE.checkpoint_every_s if step is Step.CHECKPOINT else 0)
    check_truth(home)


def test_a_source_that_trains_on_unheard_voids_the_handover(home: SimulatedInstallation) -> None:
    job = home.submit(steps=80)
    source = home.until_step(job, 5)
    home.ask("migrate", job, offer_id=RESERVE.id)
    home.until_second_move(job, Step.CUTOVER)
    home.site._trainers[source.id].silent_since_s = home.clock.monotonic_s()
    home.clock.advance(40)  # the control plane is asleep for longer than a source waits
    home.site.look()
    home.until(lambda: home.migrations(job)[1].step in (Step.ABORTED, Step.DONE))
    assert home.migrations(job)[1].step is Step.ABORTED
    home.settle()
    check_truth(home)


@pytest.mark.parametrize("step", STEPS[:-1])
def test_a_job_that_finishes_during_its_move_stays_finished(home: SimulatedInstallation, step: Step) -> None:
    home.stride_s = FINE_STRIDE_S
    job = home.submit(steps=12)
    source = home.until_step(job, 5)
    home.ask("migrate", job, offer_id=RESERVE.id)
    home.until(lambda: home.migrations(job)[-1].step is step)
    home.site.resume(source.id)
    home.clock.advance(10)
    home.settle()
    assert home.job(job).state == "finished"
    assert len(home.events(job, "job.finished")) == 1
    check_truth(home)


def test_a_hold_that_expires_lets_the_source_train_on(install: Install) -> None:
    home = install()
    job = home.submit(steps=100)
    source = home.until_step(job, 5)
    home.ask("migrate", job, offer_id=RESERVE.id)
    home.until(lambda: home.migrations(job)[-1].step is Step.RESTORE)
    home.clock.advance(40)  # the control plane is asleep for longer than a hold lasts
    home.settle()
    assert home.job(job).state == "finished"
    assert home.runs(job)[0].last_step > 20
    assert all(run.repeated_steps == 0 for run in home.runs(job))
    assert source.id == home.runs(job)[0].id
    check_truth(home)


def test_code_that_fails_on_the_target_only_costs_the_target(home: SimulatedInstallation) -> None:
    job = home.submit(steps=60, retries=0)
    home.until_step(job, 5)
    home.ask("migrate", job, offer_id=RESERVE.id)
    home.until(lambda: home.migrations(job)[-1].step is Step.VERIFY)
    trainer = home.site._trainers[home.runs(job)[-1].id]
    trainer.state, trainer.error = "failed", f"Traceback ...\n{BUG} 5, on this machine alone"
    home.until(lambda: home.migrations(job)[-1].step is Step.ABORTED)
    assert home.job(job).state == "running"
    home.settle()
    assert home.job(job).state == "finished"
    check_truth(home)


def test_the_daily_decision_is_made_on_the_market_clock(install: Install) -> None:
    home = install(overrides={"policy.decide_every_s": 100.0})
    home.submit(steps=30)
    home.run_for(40)
    first = home.read(lambda tx: tx.task_done_ms("decide"))
    assert first is not None
    home.submit(steps=90)
    home.run_for(70)
    again = home.read(lambda tx: tx.task_done_ms("decide"))
    assert again is not None
    assert 100_000 <= again - first < 105_000


def test_a_job_with_a_deadline_leaves_spot_when_the_slack_is_used_up(install: Install) -> None:
    home = install()
    job = home.submit(steps=60, deadline_s=900.0)
    home.settle()
    assert home.job(job).state == "finished"
    finished = home.events(job, "job.finished")[0]
    assert "after its deadline" not in finished.message
    check_truth(home)


def test_the_catalog_is_what_these_tests_think(home: SimulatedInstallation) -> None:
    assert [offer.id for offer in home.cloud.offers()] == [offer.id for offer, _ in CATALOG]


def test_a_job_on_an_offer_that_is_sold_no_more_is_still_compared_and_leaves_for_a_better_one(
    home: SimulatedInstallation,
) -> None:
    job = home.submit(steps=120)
    home.until_step(job, 12)
    home.cloud.withdraw(CHEAP.id)
    make_cheaper(home)
    home.settle()
    assert [run.offer_id for run in home.runs(job)] == [CHEAP.id, EXPENSIVE.id]
    check_truth(home)
