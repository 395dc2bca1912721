"""Jobs take turns on machines that the user owns: each has its part of the time, and loses no step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.engine.jobs.machine_time import machine_times
from orchestrator.errors import UsageError
from orchestrator.model import Job, JobSpec, Run
from orchestrator.policy.time_sharing import History
from orchestrator.services.caller import Caller
from orchestrator.services.jobs.commands import resume
from providers.money import usd
from tests.rig.wanted import train_spec
from tests.sim.grouped import grouped
from tests.sim.harness import BRISK, CHEAP, EXPENSIVE, FINE_STRIDE_S, SimulatedInstallation, check_truth

TURN_S = 60.0  # several times of what a change of machines takes
CHANGE_S = 15.0  # to save, end a machine and start the next one takes less here
FAST = replace(CHEAP, instance_type="h100.1", gpu="H100")
Install = Callable[..., SimulatedInstallation]


def owned(install: Install, machines: int, **overrides: Any) -> SimulatedInstallation:
    settings = {"policy.time_sharing": "max-min-fairness", "policy.turn_s": TURN_S, **overrides}
    behaviour = replace(BRISK, max_instances=machines, owned=True)
    return install(catalog=((CHEAP, usd("0.01")),), behaviour=behaviour, overrides=settings)


def trained_s(home: SimulatedInstallation, job: Job) -> float:
    return sum(
        ((run.training_to_ms or home.clock.now_ms()) - run.training_from_ms) / 1000
        for run in home.runs(job)
        if run.training_from_ms is not None
    )


def states(home: SimulatedInstallation, *jobs: Job) -> list[str]:
    return [home.job(job).state for job in jobs]


def past_of(home: SimulatedInstallation, job: Job) -> History:
    with home.installation.store.read() as tx:
        return machine_times(home.plane._ctx, tx, {job.id: home.job(job)}, 1e6)[job.id]


@pytest.mark.parametrize("fairness", ["max-min-fairness", "finish-time-fairness"])
def test_more_jobs_than_machines_take_turns_and_all_finish(install: Install, fairness: str) -> None:
    home = owned(install, 2, **{"policy.time_sharing": fairness})
    home.stride_s = FINE_STRIDE_S
    jobs = [home.submit(f"job-{number}", steps=130) for number in range(4)]
    home.run_for(4 * TURN_S)
    had = [trained_s(home, job) for job in jobs]
    assert max(had) - min(had) <= TURN_S, had
    (gave_way, *_) = [event for job in jobs for event in home.events(job, "job.gave_way")]
    assert "4 jobs share 2 of your machines" in gave_way.message
    assert "% of a machine's time" in gave_way.message
    assert any("waits for its turn" in event.message for job in jobs for event in home.events(job, "job.waits"))
    home.settle(limit_s=3600.0)
    assert set(states(home, *jobs)) == {"finished"}
    check_truth(home)


def test_without_time_sharing_a_job_keeps_its_machine(install: Install) -> None:
    home = owned(install, 1, **{"policy.time_sharing": "none"})
    first, second = home.submit("first", steps=130), home.submit("second", steps=20)
    home.settle(limit_s=3600.0)
    assert [len(home.runs(job)) for job in (first, second)] == [1, 1]
    check_truth(home)


@pytest.mark.parametrize(("stride_s", "limit"), [(0.1, "machines"), (0.3, "limits.max_instances"), (1.0, "machines")])
def test_a_job_that_has_just_given_way_does_not_ask_for_its_machine_back(
    install: Install, stride_s: float, limit: str
) -> None:
    """It is queued again before the next look at the turns: it must not compete with the job for which it made room."""
    home = owned(install, 2) if limit == "machines" else owned(install, 16, **{limit: 2})
    jobs = [home.submit(f"job-{number}", steps=500) for number in range(3)]
    home.until(lambda: any(home.events(job, "job.gave_way") for job in jobs))  # what follows depends on the stride
    gave_way_s = home.clock.monotonic_s()
    home.until(lambda: all(trained_s(home, job) for job in jobs), stride_s=stride_s)
    assert home.clock.monotonic_s() - gave_way_s < CHANGE_S
    (left,) = [job for job in jobs if home.events(job, "job.gave_way")]
    waits = [event for event in home.events(left, "job.waits") if event.at_ms > 1000 * gave_way_s]
    assert all("waits for its turn" in event.message for event in waits), waits


@pytest.mark.parametrize("ticks", range(4, 8))
def test_a_job_that_arrives_between_two_looks_at_the_turns_does_not_take_the_machine_of_another(
    install: Install, ticks: int
) -> None:
    """The machine is free for a moment: its last job has given way, and the one whose turn it is has not started."""
    home = owned(install, 1)
    home.cloud.behaviour = replace(home.cloud.behaviour, stop_s=0.3)  # less than the second between two looks
    first, second = (home.submit(f"job-{number}", steps=500) for number in range(2))
    home.until(lambda: bool(home.events(first, "job.pausing")))
    for _ in range(ticks):
        home.tick(0.2)
    late = home.submit("late", steps=100)
    home.until(lambda: "running" in states(home, first, second, late), stride_s=0.2)
    assert states(home, first, second, late) == ["queued", "running", "queued"]
    assert not home.runs(late)


def test_a_turn_lasts_several_times_the_start_of_a_machine(install: Install) -> None:
    """Saving and restoring take a second here; what a change of machines costs is mostly the start of one."""
    home = owned(install, 1, **{"policy.turn_s": 30.0})
    home.stride_s = FINE_STRIDE_S
    home.cloud.behaviour = replace(home.cloud.behaviour, boot_s=15.0)
    jobs = [home.submit(f"job-{number}", steps=500) for number in range(2)]

    def over() -> list[Run]:
        return [run for job in jobs for run in home.runs(job) if run.end == "paused"]

    home.until(lambda: len(over()) == 2)
    runs = over()
    starts_s = [((run.training_from_ms or 0) - run.created_at_ms) / 1000 for run in runs]
    turns_s = [((run.training_to_ms or 0) - (run.training_from_ms or 0)) / 1000 for run in runs]
    assert min(starts_s) > 15.0
    assert min(turns_s) > 8 * min(starts_s), (starts_s, turns_s)


def test_where_there_is_a_machine_for_each_nobody_gives_way(install: Install) -> None:
    home = owned(install, 2)
    jobs = [home.submit(f"job-{number}", steps=100) for number in range(2)]
    home.settle(limit_s=3600.0)
    assert [len(home.runs(job)) for job in jobs] == [1, 1]


def test_rented_machines_are_not_shared(install: Install) -> None:
    home = owned(install, 1)
    home.cloud.behaviour = replace(home.cloud.behaviour, owned=False)
    first, second = home.submit("first", steps=130), home.submit("second", steps=20)
    home.settle(limit_s=3600.0)
    assert [len(home.runs(job)) for job in (first, second)] == [1, 1]


def test_jobs_that_may_use_several_kinds_of_machines_take_turns_on_all_of_them(install: Install) -> None:
    """A job that has its turn starts on the machine that is best for it, and its start is not given up for another."""
    settings = {"policy.time_sharing": "max-min-fairness", "policy.turn_s": TURN_S}
    behaviour = replace(BRISK, max_instances=1, owned=True)
    catalog = ((CHEAP, usd("0.01")), (EXPENSIVE, usd("0.02")), (FAST, usd("0.015")))
    home = install(catalog=catalog, behaviour=behaviour, overrides=settings)
    home.stride_s = FINE_STRIDE_S
    jobs = [home.submit(f"job-{number}", steps=100) for number in range(3)]
    home.settle(limit_s=1800.0, stride_s=FINE_STRIDE_S)
    assert set(states(home, *jobs)) == {"finished"}
    assert not [event for job in jobs for event in home.events(job, "migration.aborted")]
    assert any("3 jobs share 1 of your machines" in each.message for each in home.events(jobs[0]))
    check_truth(home)


@pytest.mark.parametrize("kind", ["pause", "cancel"])
def test_a_user_who_stops_a_job_while_it_gives_way_is_obeyed(install: Install, kind: str) -> None:
    home = owned(install, 1)
    first, second = home.submit("first", steps=300), home.submit("second", steps=60)
    home.until(lambda: "pausing" in states(home, first, second))
    (giving,) = [job for job in (first, second) if home.job(job).state == "pausing"]
    with pytest.raises(UsageError, match="not paused"):
        resume(home.installation, giving.id, caller=Caller("me"))
    answer = home.ask(kind, giving)
    home.until(lambda: home.job(giving).state in ("paused", "cancelled"))
    assert "refused" not in str(home.answer(answer))
    home.run_for(3 * TURN_S)
    assert home.job(giving).state == ("paused" if kind == "pause" else "cancelled")
    if kind == "pause":
        home.ask("resume", giving)
        home.until(lambda: home.job(giving).state != "paused")
        assert past_of(home, giving).waited_s < TURN_S, "it wanted no machine while it was paused"
    home.settle(limit_s=3600.0)
    check_truth(home)


def test_a_control_plane_that_starts_within_a_round_takes_nothing_away(install: Install) -> None:
    home = owned(install, 1, **{"policy.turn_s": 600.0})
    first, second = home.submit("first", steps=100), home.submit("second", steps=20)
    home.until(lambda: "running" in states(home, first, second))
    for _ in range(3):
        home.run_for(5)
        home.start()
    assert not [event for job in (first, second) for event in home.events(job, "job.gave_way")]
    home.settle(limit_s=3600.0)
    check_truth(home)


@pytest.mark.parametrize("seed", range(2))
def test_deaths_at_any_step_lose_no_turn_and_no_step(install: Install, seed: int) -> None:
    home = owned(install, 1)
    jobs = [home.submit(f"job-{number}", steps=200) for number in range(3)]
    while not any(home.events(job, "job.gave_way") for job in jobs) or home.injector.deaths.total() < 8:
        home.injector.at = home.injector.count + 50 + 7 * seed
        number = home.injector.deaths.total()
        home.until(lambda number=number: home.injector.deaths.total() > number)  # type: ignore[misc]
    home.settle(limit_s=3600.0)
    assert set(states(home, *jobs)) == {"finished"}
    check_truth(home)


def test_a_job_that_waits_for_another_has_no_turn(install: Install) -> None:
    home = owned(install, 1)
    first, second = grouped(home, "ab", steps=75)
    home.until_state(second, "running")
    assert past_of(home, second).age_s < TURN_S, "it wanted no machine before the first had finished"
    home.settle(limit_s=3600.0)
    assert states(home, first, second) == ["finished", "finished"]
    assert [len(home.runs(job)) for job in (first, second)] == [1, 1]


@pytest.mark.parametrize("lacks", ["a secret", "time", "secrets, and runs"])
def test_nobody_gives_way_to_a_job_that_could_not_start_or_if_it_could_not_go_on(install: Install, lacks: str) -> None:
    home = owned(install, 1)
    needy = JobSpec("needy", train_spec(150, secrets=("TOKEN",) if "secret" in lacks else ()))
    runs = home.submit_job(needy if "runs" in lacks else JobSpec("runs", train_spec(150)))
    if "runs" in lacks:
        home.give_secrets(runs)
    home.until_state(runs, "running")
    waits = home.submit("waits") if "runs" in lacks else home.submit_job(needy)
    if "runs" in lacks:
        home.start()  # forgets them
    if lacks == "time":
        with home.installation.store.write() as tx:
            tx.set_job_facts(waits.id, next_decision_ms=home.clock.now_ms() + 400_000)
    home.run_for(2.2 * TURN_S)
    assert states(home, runs, waits) == ["running", "queued"]


def test_a_standby_makes_way_for_a_job_that_has_no_machine(install: Install) -> None:
    home = owned(install, 2)
    first = home.submit("first", steps=400, standby="warm")
    home.until(lambda: len(home.runs(first)) == 2)
    second = home.submit("second")
    home.until(lambda: home.job(second).state == "running")
