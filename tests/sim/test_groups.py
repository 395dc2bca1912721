"""Jobs of a group start after those that must have finished before, and fail if one of these never will."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from string import ascii_lowercase

import pytest

from orchestrator.model import Group, Job, JobSpec
from orchestrator.services.caller import Caller
from orchestrator.services.jobs.commands import pause, resume
from orchestrator.services.jobs.explain import explain
from tests.sim.grouped import FAST, SLOW, SLOW_AND_FAST, grouped, pair, reasons
from tests.sim.harness import SimulatedInstallation, check_truth, train_spec


@pytest.mark.parametrize(("names", "said"), [("abc", "a, b, c finished"), ("abcde", "a, b, c and 2 more finished")])
def test_a_job_that_waits_for_many_names_the_first_ones_and_counts_the_others(
    home: SimulatedInstallation, names: str, said: str
) -> None:
    first = [home.submit(name) for name in names]
    now = home.clock.now_ms()
    last = Job("job_z", JobSpec("z", train_spec(5)), "me", now, "queued", "group_A", after=tuple(j.id for j in first))
    with home.installation.store.write() as tx:
        tx.add_group(Group("group_A", "wide", "cheapest", "default", "me", now, None))
        tx.add_job(last)
    home.until(lambda: bool(reasons(home, last)))
    assert reasons(home, last) == [f"waits until {said}"]


@pytest.mark.parametrize(
    ("deadline_s", "kind"), [(3000.0, "A100-40GB"), (20_000.0, "V100"), (500.0, "V100"), (None, "V100")]
)
def test_a_job_hurries_for_the_deadline_of_one_that_comes_after_it_if_that_can_be_met(
    install: Callable[..., SimulatedInstallation], deadline_s: float | None, kind: str
) -> None:
    """Each takes 2000 s where it is cheapest, and half of that or less on a machine that costs more."""
    home = install(catalog=SLOW_AND_FAST)
    first = pair(home, deadline_s)
    home.until_step(first, 1)
    assert home.runs(first)[0].offer_id == (FAST if kind != "V100" else SLOW).id
    said = home.events(first, "plan.decided")[0].message
    assert said.endswith("; jobs after it have deadlines, so it must finish in time for them") == (
        deadline_s in (3000.0, 20_000.0)
    )


def test_each_job_starts_after_the_one_before_it_has_finished(home: SimulatedInstallation) -> None:
    a, b, c = grouped(home)
    home.until_state(a, "running")
    assert [home.job(each).state for each in (b, c)] == ["queued", "queued"]
    assert any("waits until a finished" in each for each in reasons(home, b))
    assert len(reasons(home, b)) == 1
    assert explain(home.installation, b.id).headline == "b is queued: waits until a finished"
    home.until_state(c, "finished")
    home.settle()
    ends = [max(run.training_to_ms or 0 for run in home.runs(each)) for each in (a, b)]
    starts = [min(run.created_at_ms for run in home.runs(each)) for each in (b, c)]
    assert all(end <= start for end, start in zip(ends, starts, strict=True))
    check_truth(home)


def test_a_long_chain_fails_at_once_with_its_first_job_each_naming_the_one_before_it(
    home: SimulatedInstallation,
) -> None:
    first, *others = grouped(home, ascii_lowercase)
    home.until_state(first, "running")
    home.ask("pause", others[9])
    home.until_state(others[9], "paused")
    home.ask("cancel", first)
    home.until_state(others[0], "failed")
    assert {home.job(each).state for each in others} == {"failed"}
    for before, job in pairwise(others):
        (failed,) = home.events(job, "job.failed")
        assert f"{before.spec.name} ({before.id}), which must finish before it, failed" in failed.message
    home.settle()
    check_truth(home)


def test_jobs_after_one_that_was_cancelled_fail_in_turn_and_say_why(home: SimulatedInstallation) -> None:
    a, b, c = grouped(home)
    home.until_state(a, "running")
    home.ask("cancel", a)
    home.until_state(c, "failed")
    home.settle()
    errors = home.read(lambda tx: [tx.job_facts(job.id).error for job in (b, c)])
    assert "not started: a (job_a), which must finish before it, was cancelled" in (errors[0] or "")
    assert "b (job_b)" in (errors[1] or "")
    assert home.runs(b) == home.runs(c) == []
    check_truth(home)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_paused_job_fails_as_soon_as_the_one_before_it_is_cancelled(
    home: SimulatedInstallation, restarts: bool
) -> None:
    """It need not be resumed, and a restarted control plane fails it as well."""
    a, b, c = grouped(home)
    home.until_state(a, "running")
    home.ask("pause", b)
    home.until_state(b, "paused")
    home.ask("cancel", a)
    home.until_state(a, "cancelled")
    if restarts:
        home.tick(down_s=1.0)
    home.until_state(c, "failed")
    errors = home.read(lambda tx: [tx.job_facts(job.id).error for job in (b, c)])
    assert "not started: a (job_a), which must finish before it, was cancelled" in (errors[0] or "")
    assert home.events(b, "job.failed")[0].message == f"failed: {errors[0]}"
    home.settle()
    check_truth(home)


def test_a_paused_job_that_has_trained_stays_paused_whatever_becomes_of_others(home: SimulatedInstallation) -> None:
    a, b = grouped(home, "ab", steps=30)
    home.until_step(b, 5)
    home.ask("pause", b)
    home.until_state(b, "paused")
    home.settle()
    home.run_for(20.0)
    assert home.job(a).state == "finished"
    assert home.job(b).state == "paused"


def test_a_job_that_is_resumed_says_for_which_jobs_it_still_waits(home: SimulatedInstallation) -> None:
    _, b = grouped(home, "ab", steps=60)
    home.tick()
    pause(home.installation, "b", caller=Caller("me"))
    home.until_state(b, "paused")
    said = resume(home.installation, "b", caller=Caller("me")).message
    assert said == "b waits until a finished; then it starts on the best offer"


def test_a_control_plane_that_is_restarted_keeps_the_order(home: SimulatedInstallation) -> None:
    a, b = grouped(home, "ab")
    home.until_state(a, "running")
    home.tick(down_s=1.0)
    assert home.job(b).state == "queued"
    home.until_state(b, "finished")
    home.settle()
    check_truth(home)


@pytest.mark.parametrize("field", ["failures", "total_steps"])
def test_damage_to_a_job_that_waits_for_another_does_not_pause_that(
    install: Callable[..., SimulatedInstallation], field: str
) -> None:
    home = install(catalog=SLOW_AND_FAST)
    first = pair(home, 20_000.0)
    with home.installation.store.write() as tx:
        tx._connection.exec_driver_sql(f"update job set {field} = 'x' where id = 'job_b'")
    home.until_step(first, 10)
    assert [each.job_id for each in home.read(lambda tx: tx.quarantined())] == ["job_b"]
