"""A failure of the job's own code is tried again on the machine that it has, once, before another one is rented."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import pytest

from orchestrator.engine.billing.accrue import settle
from orchestrator.engine.billing.machine_cost import machine_cost_nano_usd
from orchestrator.engine.inputs import latencies
from orchestrator.model import Job, Member, Step
from orchestrator.perf import kind_of
from orchestrator.services.jobs import current
from orchestrator.services.store.check import check
from providers.fake import Behaviour
from tests.sim.harness import CHEAP, SimulatedInstallation, check_truth

Install = Callable[..., SimulatedInstallation]
QUICK = Behaviour(boot_s=1.0, listing_lag_s=3.0, stop_s=1.0)


def machines(home: SimulatedInstallation, job: Job) -> list[str | None]:
    return [run.instance_id for run in home.runs(job)]


def second_attempt(home: SimulatedInstallation, job: Job, step: int) -> None:
    """Until the second attempt has reported `step`."""
    home.until(lambda: len(home.runs(job)) == 2)
    home.until_step(job, step)


def test_a_failed_job_continues_on_its_machine_from_its_last_checkpoint(home: SimulatedInstallation) -> None:
    job = home.submit(steps=40)
    home.site.raise_at(job.id, 12)
    home.settle()
    first, second = home.runs(job)
    assert [first.end, second.end] == ["failed", "finished"]
    assert first.instance_id == second.instance_id
    assert len(home.cloud.instances()) == 1
    assert (second.start_step, second.repeated_steps) == (10, 2)
    assert second.generation > first.generation
    reported = [event.message for event in home.events(job, "migration.provision")]
    assert reported == [f"rented {CHEAP.id}", f"retrying on the same machine, {CHEAP.id}"]
    check_truth(home)


def test_a_second_failure_on_the_same_machine_is_tried_elsewhere(home: SimulatedInstallation) -> None:
    job = home.submit(steps=40, retries=5)
    home.site.raise_at(job.id, 4, 4, 4)
    home.settle()
    first, second, third, fourth = machines(home, job)
    assert first == second != third == fourth
    assert len(home.cloud.instances()) == 2
    assert [run.end for run in home.runs(job)] == ["failed", "failed", "failed", "finished"]
    assert len(home.events(job, "run.failed")) == 3
    check_truth(home)


def test_each_attempt_counts_as_a_retry_wherever_it_is_made(home: SimulatedInstallation) -> None:
    job = home.submit(steps=40, retries=2)
    home.site.raise_at(job.id, *[4] * 20)
    home.settle()
    assert home.job(job).state == "failed"
    assert [run.end for run in home.runs(job)] == ["failed"] * 3
    assert home.events(job, "job.failed")[0].message.startswith("failed after 3 attempts; ")
    check_truth(home)


def test_a_job_that_is_tried_again_where_it_was_says_how_often_it_failed_and_why(home: SimulatedInstallation) -> None:
    job = home.submit(steps=40, retries=4)
    home.site.raise_at(job.id, 4)
    home.until(lambda: len(home.runs(job)) == 2)
    seen = current.job(home.plane._ctx.installation, job.id)
    assert (seen.state, seen.warnings) == ("starting", ("attempt 1 of 5 failed: ValueError: a bug at step 4",))
    assert seen.note.endswith(f"retrying on the same machine, {CHEAP.id}")


def test_only_an_attempt_on_another_machine_is_a_move(home: SimulatedInstallation) -> None:
    job = home.submit(steps=40, retries=5)
    home.site.raise_at(job.id, 4, 4, 4)
    home.settle()
    seen = current.job(home.plane._ctx.installation, job.id)
    assert (seen.runs, seen.migrations) == (4, 1)


def test_every_surface_counts_attempts_alike(home: SimulatedInstallation) -> None:
    job = home.submit(steps=40, retries=2)
    home.site.raise_at(job.id, *[4] * 20)
    home.settle()
    reported = [event.message for event in home.events(job, "run.failed")]
    assert reported == [f"attempt {number} of 3 failed: ValueError: a bug at step 4" for number in (1, 2)]
    assert home.events(job, "job.failed")[0].message.startswith("failed after 3 attempts; ")


def test_the_runs_that_share_a_machine_share_its_bill_to_the_nano_dollar(home: SimulatedInstallation) -> None:
    job = home.submit(steps=90)
    home.site.raise_at(job.id, 12)
    second_attempt(home, job, 20)
    home.reprice(CHEAP.id, "1.37")
    home.settle(stride_s=0.777)
    first, second = home.runs(job)
    (bill,) = home.cloud.bills()
    assert (first.billed_from_ms, first.billed_to_ms) == (bill.from_ms, second.billed_from_ms)
    assert (second.machine_from_ms, second.billed_to_ms) == (bill.from_ms, bill.to_ms)
    booked, billed = home.books()
    assert booked == billed == bill.amount_nano_usd
    charged = [(each.run_id, each.kind) for each in home.read(lambda tx: tx.entries(job_id=job.id))]
    assert [run_id for run_id, kind in charged if kind == "disk"] == [second.id]  # a machine is charged for once
    check_truth(home)


def test_a_job_whose_code_fails_before_it_trains_is_tried_again_there_too(home: SimulatedInstallation) -> None:
    job = home.submit(steps=30)
    home.until(lambda: bool(home.migrations(job)) and home.migrations(job)[-1].step is Step.VERIFY)
    (run,) = home.runs(job)
    home.site._trainers[run.id].state = "failed"
    home.site._trainers[run.id].error = "OSError: no space left"
    home.settle()
    assert len(home.cloud.instances()) == 1
    assert [each.end for each in home.runs(job)] == ["failed", "finished"]
    assert home.events(job, "placement.wasted") == []


def test_a_machine_that_is_about_to_be_taken_gets_no_second_attempt(install: Install) -> None:
    home = install(behaviour=QUICK)
    job = home.submit(steps=60)
    run = home.until_step(job, 8)
    home.site.raise_at(job.id, 9)
    home.cloud.preempt(home.machine(run).id, notice_s=30.0)
    home.settle()
    assert home.runs(job)[0].end == "failed"
    assert len({run.instance_id for run in home.runs(job)}) == len(home.runs(job))
    check_truth(home)


def test_a_trainer_that_stood_still_has_not_ended_and_leaves_its_machine(install: Install) -> None:
    home = install(overrides={"stalls.after_s": 60.0, "stalls.fail_after_s": 300.0})
    job = home.submit(steps=60)
    home.site.raise_at(job.id, 12)
    home.site.misbehave(job.id, lambda report, since_s: replace(report, state="training", error=None, still_s=since_s))
    home.settle(limit_s=2000.0)
    assert len(home.cloud.instances()) == 2
    check_truth(home)


def test_a_machine_that_dies_under_the_second_attempt_is_replaced_and_booked_to_its_end(
    home: SimulatedInstallation,
) -> None:
    job = home.submit(steps=60)
    home.site.raise_at(job.id, 12)
    home.until(lambda: len(home.runs(job)) == 2)
    home.cloud.crash(home.machine(home.runs(job)[-1]).id)
    home.settle()
    assert [run.end for run in home.runs(job)] == ["failed", "aborted", "finished"]
    assert home.events(job, "placement.wasted") == []  # it was rented for a run that did train
    check_truth(home)


def test_a_job_that_is_paused_before_its_second_attempt_trains_gives_its_machine_back(
    home: SimulatedInstallation,
) -> None:
    job = home.submit(steps=60)
    home.site.raise_at(job.id, 12)
    home.until(lambda: len(home.runs(job)) == 2)
    home.ask("pause", job)
    home.settle()
    assert home.job(job).state == "paused"
    home.ask("resume", job)
    home.until_state(job, "finished")
    home.settle()
    check_truth(home)


def test_a_machine_that_ended_before_the_second_attempt_is_booked_to_its_end_only(
    home: SimulatedInstallation,
) -> None:
    job = home.submit(steps=60)
    home.site.raise_at(job.id, 12)
    home.until(lambda: len(home.runs(job)) == 2)
    first, second = home.runs(job)
    assert first.billed_to_ms is not None
    ended_ms = first.billed_to_ms - 2000  # so its provider says, late
    with home.store.write(home.plane._ctx.leadership) as tx:
        tx.update_run(second.id, state="ended", end="lost")
    machine = Member(second.instance_id, first.billed_from_ms, ended_ms)
    assert settle(home.plane._ctx.installation, home.plane._ctx.leadership, second, [machine])
    first, second = home.runs(job)
    assert first.billed_to_ms == second.billed_from_ms == second.billed_to_ms == ended_ms
    time = [each for each in home.read(lambda tx: tx.entries(job_id=job.id)) if each.kind in ("compute", "correction")]
    assert first.billed_from_ms is not None
    assert sum(each.amount_nano_usd for each in time) == 1_000_000_000 * (ended_ms - first.billed_from_ms) // 3_600_000


def test_the_start_of_a_second_attempt_is_not_a_measurement_of_machines(home: SimulatedInstallation) -> None:
    job = home.submit(steps=40)
    home.site.raise_at(job.id, 12)
    home.settle()
    started = home.read(lambda tx: tx.runs_started("fake", 10))
    assert len(started) == 2
    kinds = {CHEAP.id: kind_of(CHEAP.gpu, CHEAP.gpu_count)}
    assert len([*latencies._starts(started, kinds.get, 1.0)]) == 1


@pytest.mark.parametrize("column", ["machine_from_ms", "billed_from_ms", "generation"])
def test_a_damaged_row_of_a_second_attempt_is_mended_and_booked_rightly(
    home: SimulatedInstallation, column: str
) -> None:
    job = home.submit(steps=90)
    home.site.raise_at(job.id, 12)
    second_attempt(home, job, 20)
    with closing(sqlite3.connect(home.database.url.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute(f"UPDATE run SET {column} = 'text' WHERE id = ?", (home.runs(job)[-1].id,))
    home.until(lambda: home.read(lambda tx: tx.outline(job.id)).state == "paused", limit_s=60.0)
    home.settle()
    home.ask("resume", job)
    home.until_state(job, "finished")
    home.settle()
    check_truth(home)


@pytest.mark.parametrize("value", [None, "text"])
def test_a_machine_is_charged_once_though_an_earlier_run_of_it_is_not_known_to_have_left_it(
    home: SimulatedInstallation, value: str | None
) -> None:
    job = home.submit(steps=90)
    home.site.raise_at(job.id, 12)
    second_attempt(home, job, 20)
    with closing(sqlite3.connect(home.database.url.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute("UPDATE run SET billed_to_ms = ? WHERE id = ?", (value, home.runs(job)[0].id))
    home.settle()
    if home.job(job).state == "paused":
        home.ask("resume", job)
        home.until_state(job, "finished")
        home.settle()
    check_truth(home)
    now_ms = home.clock.now_ms()
    entries = home.read(lambda tx: tx.entries(job_id=job.id))
    counted = home.read(lambda tx: sum(machine_cost_nano_usd(tx, run, now_ms) for run in tx.runs(job_id=job.id)))
    assert counted == sum(each.amount_nano_usd for each in entries), "a budget counts what is booked"
    disks = {each.instance_id: 0 for each in home.runs(job)}
    of_run = {run.id: run.instance_id for run in home.runs(job)}
    kinds: dict[str | None, str] = {}
    for entry in entries:
        kinds[entry.id] = kinds.get(entry.reverses, entry.kind)
        disks[of_run[entry.run_id]] += entry.amount_nano_usd if kinds[entry.id] == "disk" else 0
    assert disks == {bill.instance_id: bill.charges["disk"] for bill in home.cloud.bills()}


def test_the_check_of_a_store_tells_of_a_machine_that_is_charged_twice(home: SimulatedInstallation) -> None:
    job = home.submit(steps=40)
    home.site.raise_at(job.id, 12)
    home.settle()

    def ledger() -> str:
        return next(f"{each.state}: {each.found}" for each in check(home.config).checks if each.name == "ledger")

    assert ledger().startswith("ok")
    first, second = home.runs(job)
    with home.store.write() as tx:
        disk = next(each for each in tx.entries(run_id=second.id) if each.kind == "disk")
        tx.add_entries([replace(disk, id="ent_twice", run_id=first.id)])
    assert ledger() == f"fail: disk of the machine {first.instance_id} is charged to {first.id} and {second.id}"


@pytest.mark.parametrize("strike", range(60, 190, 11))
def test_a_death_of_the_control_plane_around_a_second_attempt_loses_leaks_and_doubles_nothing(
    install: Install, strike: int
) -> None:
    home = install(behaviour=QUICK)
    home.injector.count, home.injector.at = 0, strike
    job = home.submit(steps=14)
    home.site.raise_at(job.id, 7)
    home.settle()
    assert home.job(job).state == "finished"
    check_truth(home)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_death_around_the_intent_of_a_second_attempt_makes_exactly_one(install: Install, moment: str) -> None:
    home = install(behaviour=QUICK)
    job = home.submit(steps=14)
    home.site.raise_at(job.id, 7)
    home.until_step(job, 4)
    home.injector.when = f"{moment} intent".__eq__
    home.settle()
    assert home.injector.when is None, "it was never reached"
    assert len(home.cloud.instances()) == 1
    assert [run.end for run in home.runs(job)] == ["failed", "finished"]
    check_truth(home)
