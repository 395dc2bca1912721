"""A store of checkpoints that does not answer for a while is nobody's failure: what has to read it or to write a fence
waits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from orchestrator.engine.jobs import checkpoints
from orchestrator.engine.jobs.background_catalog import PLACE
from orchestrator.engine.jobs.checkpoints import OUT_OF_REACH_S, FileCatalog
from orchestrator.model import Step
from tests.rig.wires import Delay, never
from tests.sim.harness import RESERVE, SimulatedInstallation, check_truth
from trainers.errors import StoreUnavailable

OUTAGE_S = 90.0


@contextmanager
def silent(method: str) -> Iterator[None]:
    """The store does not answer this call."""

    def unanswered(*_: Any) -> None:
        raise checkpoints._unusable(StoreUnavailable("s3://bucket: no answer", hint="try later"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileCatalog, method, unanswered)
        yield


@pytest.mark.parametrize("method", ["newest", "fenced", "fence", "find"])
def test_a_job_that_lost_its_machine_waits_for_the_store(home: SimulatedInstallation, method: str) -> None:
    job = home.submit(steps=60, retries=0)
    run = home.until_step(job, 13)
    home.until(lambda: home.runs(job)[0].kept_bytes is not None)
    with silent(method):
        home.cloud.crash(home.machine(run).id)
        home.run_for(OUTAGE_S)
    home.settle()
    assert home.job(job).state == "finished"
    assert home.read(lambda tx: tx.job_facts(job.id).failures) == 0
    assert len(home.runs(job)) == 2, "the machine that was ready was given up"
    assert home.migrations(job)[-1].step is Step.DONE
    check_truth(home)


def test_a_job_that_has_finished_waits_for_the_store(home: SimulatedInstallation) -> None:
    job = home.submit(steps=40, retries=0)
    home.until_step(job, 33)
    with silent("find"):
        home.run_for(OUTAGE_S)
        assert home.job(job).state == "running"
    home.settle()
    assert home.job(job).state == "finished"
    assert len(home.runs(job)) == 1
    check_truth(home)


def test_a_store_that_never_answers_again_costs_no_money_without_end(home: SimulatedInstallation) -> None:
    job = home.submit(steps=60, retries=0)
    run = home.until_step(job, 13)
    with silent("newest"):
        home.cloud.crash(home.machine(run).id)
        home.until(lambda: home.job(job).state == "paused", limit_s=20 * OUT_OF_REACH_S, stride_s=5.0)
    assert "no answer" in home.events(job, "job.paused")[-1].message
    assert home.read(lambda tx: tx.job_facts(job.id).failures) == 0


def test_a_move_is_given_up_and_the_job_trains_on_where_it_is(home: SimulatedInstallation) -> None:
    job = home.submit(steps=60, retries=0)
    run = home.until_step(job, 13)
    with silent("find"):
        home.ask("migrate", job, offer_id=RESERVE.id)
        home.until(lambda: len(home.migrations(job)) > 1 and home.migrations(job)[1].step is Step.ABORTED)
        home.run_for(10.0)
    home.settle()
    assert home.job(job).state == "finished"
    assert home.runs(job)[0].id == run.id
    assert home.runs(job)[0].end == "finished"
    assert home.read(lambda tx: tx.job_facts(job.id).failures) == 0
    check_truth(home)


def test_no_tick_waits_for_a_store_that_never_answers(home: SimulatedInstallation) -> None:
    """Its calls are begun and left alone: they occupy no part of the tick, and other jobs go on."""
    job, other = home.submit("job", steps=60, retries=0), home.submit("other", steps=60)
    run = home.until_step(job, 13)
    home.wires.silent = lambda place, _key: place[0] == PLACE
    home.cloud.crash(home.machine(run).id)
    before = home.runs(other)[-1].last_step
    home.run_for(30.0)
    assert home.runs(other)[-1].last_step > before + 20
    home.wires.silent = never
    home.settle()
    assert {home.job(each).state for each in (job, other)} == {"finished"}
    assert home.read(lambda tx: tx.job_facts(job.id).failures) == 0
    check_truth(home)


@pytest.mark.parametrize("delay", [Delay(0.0, 4.0), Delay(4.0, 0.0), Delay(2.0, 7.0)])
@pytest.mark.parametrize("how", ["move", "crash", "both"])
def test_answers_and_effects_that_come_ticks_later_change_nothing(
    home: SimulatedInstallation, delay: Delay, how: str
) -> None:
    """A fence may count, and the target train, before the tick reads that it was written."""
    home.wires.slow, home.wires.rate, home.wires.about = (delay,), 1.0, f"{PLACE}:"
    job = home.submit(steps=90, retries=0)
    run = home.until_step(job, 13)
    if how != "crash":
        home.ask("migrate", job, offer_id=RESERVE.id)
        home.until(lambda: len(home.migrations(job)) > 1 and home.migrations(job)[1].step is Step.CUTOVER)
    if how != "move":
        home.cloud.crash(home.machine(run).id)
    home.settle()
    assert home.wires.counted > 5
    assert home.job(job).state == "finished"
    assert home.read(lambda tx: tx.job_facts(job.id).failures) == 0
    check_truth(home)


def test_the_first_of_many_jobs_does_not_wait_until_the_store_was_asked_about_all(home: SimulatedInstallation) -> None:
    """One question about each is enough: second ones would queue behind the first ones of all jobs."""
    home.wires.slow, home.wires.rate, home.wires.about = (Delay(1.0, 1.0),), 1.0, f"{PLACE}:"
    jobs = [home.submit(f"job-{number}", steps=40) for number in range(20)]
    home.run_for(4.0)
    assert [each for each in jobs if home.migrations(each)], "no job is on its way"
    assert not all(home.migrations(each) for each in jobs), "no job had to wait: nothing was tested"
