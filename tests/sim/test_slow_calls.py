"""Calls that are answered late or never: they hold up nothing but what they are about."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest

from orchestrator.engine.calls import Place
from orchestrator.engine.machines.sweep import SWEEP_EVERY_S
from orchestrator.errors import NotLeaderError
from orchestrator.model import Job, Step, Where
from providers.fake import Fault
from providers.instance import InstanceState
from tests.rig.wires import Delay
from tests.sim.harness import CHEAP, EXPENSIVE, RESERVE, SimulatedInstallation, check_truth

Install = Callable[..., SimulatedInstallation]
ALPHA, BETA = CHEAP.region, EXPENSIVE.region


def slow(home: SimulatedInstallation, *delays: Delay, only: str = "") -> None:
    """From now on, every call whose key contains `only` takes one of these times."""
    home.wires.rate, home.wires.slow, home.wires.about = 1.0, delays, only


def hush(home: SimulatedInstallation, region: str) -> None:
    """From now on, the region answers no call."""
    home.wires.silent = lambda place, _key: place[1] == region


def reported(home: SimulatedInstallation, job: Job) -> list[tuple[int, str, str]]:
    return [(event.at_ms, event.kind, event.message) for event in home.events(job)]


def story_of_a_job_in_beta(home: SimulatedInstallation, silent_from_s: float | None) -> list[tuple[int, str, str]]:
    """Another job is in alpha, which is silent from so many seconds on, if at all."""
    home.submit("there", steps=100, where=Where(regions=(ALPHA,)))
    here = home.submit("here", steps=100, where=Where(regions=(BETA,)))
    for number in range(200):
        if number == silent_from_s:
            hush(home, ALPHA)
        if number == 40:
            home.ask("migrate", here, offer_id=RESERVE.id)
        home.tick()
    assert home.job(here).state == "finished"
    return reported(home, here)


@pytest.mark.parametrize("silent_from_s", [0.0, 15.0])
def test_a_region_that_never_answers_changes_nothing_for_a_job_in_another_one(
    install: Install, silent_from_s: float
) -> None:
    undisturbed = story_of_a_job_in_beta(install(), None)
    assert story_of_a_job_in_beta(install(), silent_from_s) == undisturbed


def test_a_store_that_never_answers_while_a_job_is_placed_only_delays_it(home: SimulatedInstallation) -> None:
    job = home.submit(steps=20)
    slow(home, Delay(inf), only="user-data")
    home.until(lambda: bool(home.events(job, "site.unavailable")))
    (unavailable,) = home.events(job, "site.unavailable")
    assert "no answer from store for 30 s" in unavailable.message  # there is nothing to upload for this host
    assert home.job(job).state == "starting"
    slow(home, Delay(0.0), only="user-data")
    home.settle(1200.0)
    assert home.job(job).state == "finished"
    assert not home.events(job, "job.quarantined")
    check_truth(home)


def test_a_launch_that_is_repeated_does_not_ask_the_store_again(home: SimulatedInstallation) -> None:
    asked: list[str] = []

    def heard(_place: Place, key: str) -> bool:
        asked.append(key.partition("/")[0])
        return False

    home.wires.silent = heard
    home.faults.inject("launch", *[Fault.NO_ANSWER] * 5)
    job = home.submit(steps=20)
    home.until_state(job, "running")
    assert (asked.count("launch"), asked.count("user-data")) == (6, 1)


def test_a_job_is_placed_elsewhere_when_its_region_never_answers(home: SimulatedInstallation) -> None:
    hush(home, ALPHA)
    job = home.submit(steps=20)
    home.until_state(job, "running")
    assert home.runs(job)[-1].offer_id in (EXPENSIVE.id, RESERVE.id)
    home.wires.silent = lambda *_: False
    home.settle()
    assert home.job(job).state == "finished"
    check_truth(home)


@pytest.mark.parametrize("delay", [Delay(0.0, 2.0), Delay(2.0), Delay(1.0, 1.0)])
def test_a_job_finishes_where_every_call_takes_two_seconds(home: SimulatedInstallation, delay: Delay) -> None:
    slow(home, delay)
    job = home.submit(steps=30)
    home.until_step(job, 5)
    home.ask("migrate", job, offer_id=RESERVE.id)
    home.settle(stride_s=2.0)
    assert [run.end for run in home.runs(job)] == ["moved", "finished"]
    check_truth(home)


@pytest.mark.parametrize("delay", [Delay(0.0, 10.0), Delay(10.0)], ids=["early", "late"])
def test_a_machine_whose_launch_is_answered_after_its_job_was_cancelled_is_ended_and_booked(
    home: SimulatedInstallation, delay: Delay
) -> None:
    slow(home, delay, only="launch")
    job = home.submit()
    home.until(lambda: bool(home.migrations(job)) and home.migrations(job)[-1].attempt == 1)
    home.ask("cancel", job)
    home.settle()
    assert [each.state for each in home.cloud.instances()] == [InstanceState.TERMINATED]
    (run,) = home.runs(job)
    assert run.instance_id is not None
    check_truth(home)


@pytest.mark.parametrize("delay", [Delay(0.0, inf), Delay(2.0, inf), Delay(inf)], ids=["at once", "late", "no effect"])
def test_a_launch_that_is_never_answered_is_given_up_and_repeated_with_the_same_token(
    home: SimulatedInstallation, delay: Delay
) -> None:
    slow(home, delay, only="launch")
    job = home.submit(steps=10)
    home.until(lambda: bool(home.migrations(job)) and home.migrations(job)[-1].attempt == 1)
    home.wires.rate = 0.0
    home.settle()
    assert home.job(job).state == "finished"
    assert [each.attempt for each in home.migrations(job)] == [2]
    assert len(home.cloud.bills()) == 1
    check_truth(home)


def test_the_answer_to_a_launch_changes_nothing_once_leadership_is_lost(home: SimulatedInstallation) -> None:
    slow(home, Delay(0.0, 5.0), only="launch")
    job = home.submit(steps=20)
    home.until(lambda: bool(home.migrations(job)) and home.migrations(job)[-1].attempt == 1)
    deposed, before = home.plane, reported(home, job)
    home.take_over()
    with pytest.raises(NotLeaderError):
        deposed.tick()
    assert reported(home, job) == before
    assert home.migrations(job)[-1].step is Step.PROVISION
    home.settle()
    assert home.job(job).state == "finished"
    assert len(home.cloud.bills()) == 1
    check_truth(home)


def test_a_look_that_was_asked_before_a_machine_was_known_does_not_count_as_its_absence(
    home: SimulatedInstallation,
) -> None:
    job = home.submit(steps=200)
    home.until_step(job, 3)
    slow(home, Delay(0.0, 9.0), only="describe")
    home.ask("migrate", job, offer_id=RESERVE.id)
    home.until_second_move(job, Step.DONE)
    home.wires.rate = 0.0
    home.settle()
    assert [run.end for run in home.runs(job)] == ["moved", "finished"]
    check_truth(home)


def test_a_silent_list_of_machines_is_asked_again(home: SimulatedInstallation) -> None:
    slow(home, Delay(inf), only="sweep")
    job = home.submit(steps=10)
    home.run_for(SWEEP_EVERY_S)
    home.settle()
    assert home.job(job).state == "finished"
    check_truth(home)
