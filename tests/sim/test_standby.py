"""`standby: warm`: a standby that waits, takes over, is replaced, and is ended with its job; and deaths around it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orchestrator.engine.inputs.snapshot import inputs
from orchestrator.ledger import time_breakdown
from orchestrator.model import Job, Migration, Run, Step
from providers.money import usd
from tests.sim.harness import EXPENSIVE, FINE_STRIDE_S, RESERVE, SimulatedInstallation, check_truth

Install = Callable[..., SimulatedInstallation]


def standbys(home: SimulatedInstallation, job: Job) -> list[Migration]:
    return [migration for migration in home.migrations(job) if migration.reason == "standby"]


def spent_on(home: SimulatedInstallation, steps: int) -> int:
    """nano-USD that a job of so many steps takes without a standby; from then on the speed is known."""
    before = home.submit("before", steps=steps)
    home.settle()
    return home.read(lambda tx: tx.total_nano_usd(job_id=before.id))


def waiting(home: SimulatedInstallation, job: Job, after: Run | None = None) -> Run:
    """The standby of a running job (and not the one `after` which it is), once it waits with its libraries loaded."""

    def found() -> list[Migration]:
        return [
            standby
            for standby in standbys(home, job)
            if standby.step is Step.CHECKPOINT and (after is None or standby.target_run_id != after.id)
        ]

    home.until(lambda: bool(found()))
    return next(run for run in home.runs(job) if run.id == found()[0].target_run_id)


def test_a_standby_waits_in_another_zone_and_is_ended_with_its_job(home: SimulatedInstallation) -> None:
    job = home.submit(steps=40, standby="warm")
    standby = waiting(home, job)
    assert (standby.offer_id, standby.state) == (EXPENSIVE.id, "starting")
    assert home.site.training() == [home.runs(job)[0].id]
    home.settle()
    assert [(run.end, run.last_step) for run in home.runs(job)] == [("finished", 40), ("aborted", 0)]
    assert home.read(lambda tx: sum(entry.amount_nano_usd for entry in tx.entries(run_id=standby.id))) > 0
    check_truth(home)


def test_without_standby_in_the_job_file_there_is_no_standby(home: SimulatedInstallation) -> None:
    job = home.submit(steps=20)
    home.settle()
    assert standbys(home, job) == []


@pytest.mark.parametrize("how", ["preempt", "crash"])
def test_a_lost_machine_is_followed_by_the_standby_at_once_and_there_is_another_standby(
    home: SimulatedInstallation, how: str
) -> None:
    job = home.submit(steps=60, standby="warm")
    standby = waiting(home, job)
    first = home.until_step(job, 13)
    launched = len(home.cloud.bills())
    getattr(home.cloud, how)(home.machine(first).id)
    home.until(lambda: (run := home.current(job)) is not None and run.id == standby.id, limit_s=12)
    taken = home.current(job)
    assert taken is not None
    assert taken.generation > max(first.generation, standby.generation)
    recovery = next(each for each in home.migrations(job) if each.reason == "lost")
    assert (recovery.source_run_id, recovery.target_run_id) == (first.id, standby.id)
    assert len(home.cloud.bills()) == launched
    waiting(home, job, after=standby)
    home.settle()
    assert home.job(job).state == "finished"
    check_truth(home)


def test_a_notice_moves_the_job_to_the_standby_without_a_repeated_step(home: SimulatedInstallation) -> None:
    job = home.submit(steps=60, standby="warm")
    standby = waiting(home, job)
    first = home.until_step(job, 12)
    home.cloud.preempt(home.machine(first).id, notice_s=30.0)
    home.until(lambda: (run := home.current(job)) is not None and run.id == standby.id, limit_s=15)
    home.settle()
    run = next(run for run in home.runs(job) if run.id == standby.id)
    assert run.repeated_steps == 0
    assert "notice" in [migration.reason for migration in home.migrations(job)]
    check_truth(home)


def test_a_planned_move_bypasses_the_standby_which_then_serves_the_new_run(home: SimulatedInstallation) -> None:
    job = home.submit(steps=80, standby="warm")
    standby = waiting(home, job)
    first = home.until_step(job, 10)
    asked = home.ask("migrate", job, offer_id=RESERVE.id)
    home.until(lambda: (run := home.current(job)) is not None and run.id != first.id)
    assert home.answer(asked) == f"moving to {RESERVE.id}"
    moved = home.until_step(job, 25)
    assert (moved.offer_id, waiting(home, job).id) == (RESERVE.id, standby.id)
    home.cloud.crash(home.machine(moved).id)
    home.until(lambda: (run := home.current(job)) is not None and run.id == standby.id, limit_s=12)
    home.settle()
    assert home.job(job).state == "finished"
    check_truth(home)


def test_a_lost_standby_is_replaced_and_costs_the_run_nothing(home: SimulatedInstallation) -> None:
    job = home.submit(steps=60, standby="warm")
    standby = waiting(home, job)
    home.cloud.crash(home.machine(standby).id)
    waiting(home, job, after=standby)
    home.settle()
    assert home.job(job).state == "finished"
    assert [run.end for run in home.runs(job)].count("aborted") == len(home.runs(job)) - 1
    check_truth(home)


def test_run_and_spare_lost_together_are_followed_by_a_cold_start(home: SimulatedInstallation) -> None:
    job = home.submit(steps=60, standby="warm")
    standby, first = waiting(home, job), home.until_step(job, 12)
    for lost in (first, standby):
        home.cloud.crash(home.machine(lost).id)
    home.settle()
    assert home.job(job).state == "finished"
    assert next(run for run in home.runs(job) if run.id == standby.id).training_from_ms is None
    check_truth(home)


def test_a_failure_of_the_jobs_own_code_is_tried_again_on_the_standby(home: SimulatedInstallation) -> None:
    job = home.submit(steps=60, standby="warm")
    standby = waiting(home, job)
    home.site.raise_at(job.id, 20)
    home.until(lambda: (run := home.current(job)) is not None and run.id == standby.id)
    assert "retry" in [migration.reason for migration in home.migrations(job)]
    home.settle()
    assert home.job(job).state == "finished"
    check_truth(home)


def test_a_paused_job_keeps_no_spare_and_gets_one_again(home: SimulatedInstallation) -> None:
    job = home.submit(steps=60, standby="warm")
    standby = waiting(home, job)
    home.ask("pause", job)
    home.until_state(job, "paused")
    home.settle()
    assert not home.machine(standby).alive
    home.ask("resume", job)
    waiting(home, job, after=standby)
    home.settle()
    assert home.job(job).state == "finished"
    check_truth(home)


def test_a_cancelled_job_leaves_no_standby(home: SimulatedInstallation) -> None:
    job = home.submit(steps=60, standby="warm")
    waiting(home, job)
    home.ask("cancel", job)
    home.settle()
    assert home.job(job).state == "cancelled"
    check_truth(home)


def test_no_room_for_a_spare_is_reported_once_and_the_job_trains_on(install: Install) -> None:
    home = install(overrides={"limits.max_instances": 1})
    job = home.submit(steps=40, standby="warm")
    home.settle()
    assert home.job(job).state == "finished"
    (reported,) = home.events(job, "standby.waits")
    assert "limits.max_instances" in reported.message
    check_truth(home)


def test_a_budget_that_would_not_last_for_both_leaves_out_the_standby(home: SimulatedInstallation) -> None:
    spent = spent_on(home, steps=200)
    tight = home.submit("tight", steps=200, standby="warm", budget_nano_usd=2 * spent)
    home.settle()
    assert home.job(tight).state == "finished"
    assert standbys(home, tight) == []
    assert "budget does not cover two machines" in home.events(tight, "standby.waits")[0].message
    roomy = home.submit("roomy", steps=200, standby="warm", budget_nano_usd=20 * spent)
    waiting(home, roomy)
    home.settle()
    check_truth(home)


def test_a_spare_whose_price_rises_is_ended_before_it_makes_the_job_pause(home: SimulatedInstallation) -> None:
    spent = spent_on(home, steps=120)
    job = home.submit("job", steps=120, standby="warm", budget_nano_usd=8 * spent)
    standby = waiting(home, job)
    home.until_step(job, 20)
    home.cloud.set_price(EXPENSIVE.id, usd("9.00"))
    home.settle()
    assert home.job(job).state == "finished"
    (gone, *_) = [run for run in home.runs(job) if run.id == standby.id]
    assert (gone.end, gone.training_from_ms) == ("aborted", None)
    assert any("does not cover two machines" in event.message for event in home.events(job, "migration.aborted"))
    check_truth(home)


def test_a_job_that_is_paused_in_the_tick_in_which_it_would_get_a_spare_gets_none(install: Install) -> None:
    home = install(overrides={"limits.max_instances": 1})  # so that it is tried at every tick
    job = home.submit(steps=60, standby="warm")
    home.until_step(job, 5)
    home.ask("pause", job)
    home.until_state(job, "paused")
    home.ask("resume", job)
    home.settle()
    assert standbys(home, job) == []
    check_truth(home)


def test_a_refused_spare_is_tried_elsewhere_and_ever_more_rarely(home: SimulatedInstallation) -> None:
    for offer in (EXPENSIVE, RESERVE):
        home.cloud.set_capacity(offer.id, 0)
    job = home.submit(steps=200, standby="warm")
    home.settle()
    assert home.job(job).state == "finished"
    assert {standby.offer_id for standby in standbys(home, job)} >= {EXPENSIVE.id, RESERVE.id}
    assert len(standbys(home, job)) < 15
    check_truth(home)


def test_the_time_that_a_spare_waited_is_idle_and_no_start_up(home: SimulatedInstallation) -> None:
    home.stride_s = FINE_STRIDE_S
    job = home.submit(steps=90, standby="warm")
    standby, first = waiting(home, job), home.until_step(job, 50)
    home.cloud.crash(home.machine(first).id)
    home.settle()
    run = next(run for run in home.runs(job) if run.id == standby.id)
    split = time_breakdown(run, home.clock.now_ms())
    assert run.billed_from_ms is not None
    assert run.billed_to_ms is not None
    assert split.total_ms == run.billed_to_ms - run.billed_from_ms
    assert split.idle_ms > 30_000 > split.provisioning_ms
    market = home.read(lambda tx: inputs(tx, home.clock.now_ms(), home.config).market)
    row = market.row(first.offer_id)
    assert row is not None
    assert market.startup_s[row] < 15
    assert max(market.startup_s) < 30  # the start of a standby is not observed: there the prior counts, too


@pytest.mark.parametrize("edge", range(0, 60, 6))
def test_a_control_plane_that_dies_around_a_spare_leaks_and_loses_nothing(
    home: SimulatedInstallation, edge: int
) -> None:
    job = home.submit(steps=40, standby="warm")
    first = home.until_step(job, 3)  # the standby is on its way
    home.injector.at = home.injector.count + 1 + edge // 2
    standby = waiting(home, job)
    home.until_step(job, 12)
    home.cloud.crash(home.machine(first).id)
    home.injector.at = home.injector.count + 1 + edge
    home.settle()
    assert home.job(job).state == "finished"
    assert next(run for run in home.runs(job) if run.id == standby.id).end in ("finished", "aborted", "lost")
    check_truth(home)
