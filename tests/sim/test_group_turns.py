"""The control plane carries out the joint plan of a group where a quota of rented machines is too small for it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.errors import LimitError
from orchestrator.model import Expected, GpuRequest, Group, GroupPolicy, Job, JobSpec
from orchestrator.policy import group_turns
from orchestrator.services.jobs import current
from providers.money import usd
from tests.sim.harness import BRISK, CHEAP, FINE_STRIDE_S, SimulatedInstallation, check_truth, train_spec
from tests.sim.test_time_sharing import trained_s

ROUND_S = 90.0
Install = Callable[..., SimulatedInstallation]


def rented(install: Install, machines: int, **overrides: Any) -> SimulatedInstallation:
    return install(
        catalog=((CHEAP, usd("1.00")),),
        behaviour=replace(BRISK, max_instances=machines),
        overrides={"policy.decide_every_s": ROUND_S, **overrides},
        stride_s=FINE_STRIDE_S,  # with longer ticks, some jobs end before it is another one's turn
    )


def grouped(home: SimulatedInstallation, policy: GroupPolicy, count: int, steps: int) -> list[Job]:
    """Jobs that do not wait for each other."""
    return submitted(home, policy, [JobSpec(f"job-{number}", train_spec(steps)) for number in range(count)], {})


def in_order(
    home: SimulatedInstallation, policy: GroupPolicy, steps: list[int], after: dict[int, tuple[str, ...]]
) -> list[Job]:
    """Jobs of known speed with these numbers of steps. `after`: by number of the job, the ids of the jobs before it."""
    known = Expected(GpuRequest("V100"), 1.0)
    specs = [JobSpec(f"job-{number}", train_spec(each), expected=known) for number, each in enumerate(steps)]
    return submitted(home, policy, specs, after)


def submitted(
    home: SimulatedInstallation, policy: GroupPolicy, specs: list[JobSpec], after: dict[int, tuple[str, ...]]
) -> list[Job]:
    now = home.clock.now_ms()
    group = Group("group_A", "sweep", policy, "default", "me", now, None)
    jobs = [
        Job(f"job_{number}", spec, "me", now, "queued", group.id, after=after.get(number, ()))
        for number, spec in enumerate(specs)
    ]
    with home.installation.store.write() as tx:
        tx.add_group(group)
        for job in jobs:
            tx.add_job(job)
    return jobs


def gave_way(home: SimulatedInstallation, jobs: list[Job]) -> list[str]:
    return [each.message for job in jobs for each in home.events(job, "job.gave_way")]


@pytest.mark.parametrize("policy", ["max-min-fairness", "finish-time-fairness"])
def test_under_a_policy_of_fairness_jobs_take_turns_on_rented_machines(install: Install, policy: GroupPolicy) -> None:
    home = rented(install, 2)
    jobs = grouped(home, policy, 4, 120)
    home.run_for(2 * ROUND_S)
    had = [trained_s(home, job) for job in jobs]
    assert max(had) - min(had) <= ROUND_S, had
    home.settle(limit_s=3600.0)
    assert {home.job(job).state for job in jobs} == {"finished"}
    assert any(f"group sweep ({policy}); 2 of its 4 jobs had a machine then" in each for each in gave_way(home, jobs))
    assert any("waits for its turn" in each.message for job in jobs for each in home.events(job, "job.waits"))
    check_truth(home)


@pytest.mark.parametrize("policy", ["cheapest", "makespan"])
def test_under_other_policies_a_job_keeps_its_machine_until_it_is_done(install: Install, policy: GroupPolicy) -> None:
    home = rented(install, 2)
    jobs = grouped(home, policy, 4, 40)
    home.settle(limit_s=3600.0)
    assert {home.job(job).state for job in jobs} == {"finished"}
    assert [len(home.runs(job)) for job in jobs] == [1] * 4
    assert gave_way(home, jobs) == []
    check_truth(home)


def test_what_a_waiting_job_says_of_its_group_stays_true_when_other_jobs_end(install: Install) -> None:
    home = rented(install, 1)
    jobs = in_order(home, "cheapest", [30, 40, 50], {})
    home.until_state(jobs[1], "running")
    note = current.job(home.installation, jobs[2].id).note
    assert note is not None
    assert re.search(
        r"waits for its turn: .*; 1 of its 3 jobs had a machine then, and the planned share of this job", note
    )
    home.settle(limit_s=3600.0)
    check_truth(home)


def test_under_makespan_a_short_job_that_much_work_waits_for_is_first(install: Install) -> None:
    home = rented(install, 2)
    jobs = in_order(home, "makespan", [80, 80, 40, 120], {3: ("job_2",)})
    home.settle(limit_s=3600.0)
    assert {home.job(job).state for job in jobs} == {"finished"}
    began_ms = [min(run.created_at_ms for run in home.runs(job)) for job in jobs]
    assert began_ms[2] == min(began_ms), began_ms
    check_truth(home)


@pytest.mark.parametrize("policy", ["cheapest", "max-min-fairness"])
def test_a_job_that_would_be_late_has_the_machine_in_time(install: Install, policy: GroupPolicy) -> None:
    home = rented(install, 1, **{"policy.decide_every_s": 86_400.0})
    (first,) = grouped(home, policy, 1, 300)
    home.until_state(first, "running")
    now = home.clock.now_ms()
    late = Job("job_late", JobSpec("late", train_spec(40), deadline_s=240.0), "me", now, "queued", first.group_id)
    with home.installation.store.write() as tx:
        tx.add_job(late)
    home.settle(limit_s=3600.0)
    assert {home.job(job).state for job in (first, late)} == {"finished"}
    assert max(run.training_to_ms or 0 for run in home.runs(late)) <= (home.job(late).deadline_at_ms or 0)
    assert len(gave_way(home, [first])) == 1
    check_truth(home)


def test_nobody_gives_way_to_a_job_that_pauses_before_its_next_try(install: Install) -> None:
    home = rented(install, 1)
    first, second = grouped(home, "max-min-fairness", 2, 300)
    home.until_state(first, "running")
    with home.installation.store.write() as tx:
        tx.set_job_facts(second.id, next_decision_ms=home.clock.now_ms() + 400_000)
    home.run_for(1.5 * ROUND_S)
    assert home.job(first).state == "running"


def test_a_control_plane_that_is_restarted_goes_on_with_the_turns(install: Install) -> None:
    home = rented(install, 1)
    jobs = grouped(home, "max-min-fairness", 2, 120)
    for _ in range(6):
        home.run_for(ROUND_S / 3)
        home.tick(down_s=1.0)
    home.settle(limit_s=3600.0)
    assert {home.job(job).state for job in jobs} == {"finished"}
    check_truth(home)


def test_where_the_solver_is_not_in_time_the_last_plan_counts_and_it_is_said(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = rented(install, 1)
    jobs = grouped(home, "cheapest", 3, 40)

    def reported() -> list[str]:
        return [each.message for job in jobs for each in home.events(job, "job.waits")]

    home.until(lambda: any("by the joint plan" in each for each in reported()))

    def too_late(*_args: object, **_kwargs: object) -> None:
        raise LimitError("the solver found no certified answer within 2 s")

    monkeypatch.setattr(group_turns, "joint", too_late)
    home.until(lambda: any("the solver exceeded its time limit" in each for each in reported()))
    home.settle(limit_s=3600.0)
    assert {home.job(job).state for job in jobs} == {"finished"}
    check_truth(home)


def test_jobs_outside_the_group_share_the_quota_with_it(install: Install) -> None:
    home = rented(install, 2)
    alone = home.submit("alone", steps=100)
    jobs = grouped(home, "cheapest", 3, 60)
    home.settle(limit_s=3600.0)
    assert {home.job(job).state for job in (alone, *jobs)} == {"finished"}
    check_truth(home)
