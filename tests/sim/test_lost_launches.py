"""Launches that nobody heard the answer of: whether they made a machine is looked up, and nothing is rented for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from orchestrator.engine.migration import bring_up
from orchestrator.model import JobSpec, Step
from providers import traits
from providers.base import LaunchSpec
from providers.fake import FakeProvider, Fault
from providers.instance import InstanceState
from tests.sim.harness import BRISK, SimulatedInstallation, check_truth, train_spec


def given_up(home: SimulatedInstallation, fault: Fault) -> str:
    """A job cancelled after its launch was called without an answer; the token of that launch."""
    home.faults.inject("launch", *[fault] * 6)
    job = home.submit()
    home.until(lambda: any(migration.attempt > 1 for migration in home.migrations(job)))
    home.ask("cancel", job)
    home.until(lambda: home.migrations(job)[-1].step is Step.ABORTED)
    return home.migrations(job)[-1].token


def calls(home: SimulatedInstallation) -> list[str]:
    """The edges that are passed from now on."""
    passed: list[str] = []
    home.injector.when = lambda name: passed.append(name) or False  # type: ignore[func-returns-value]
    return passed


def test_nothing_is_rented_to_find_out_whether_something_was_rented(home: SimulatedInstallation) -> None:
    given_up(home, Fault.NO_ANSWER)
    passed = calls(home)
    home.settle()
    assert "before launch" not in passed
    assert not home.cloud.bills()
    check_truth(home)


def test_a_launch_counts_as_one_that_made_nothing_only_after_the_listing_lag(home: SimulatedInstallation) -> None:
    given_up(home, Fault.NO_ANSWER)
    aborted_ms = home.clock.now_ms()
    (run,) = home.read(lambda tx: tx.unsettled_runs())
    home.start()  # it is counted from what the store says, not from when somebody began to wait
    home.settle()
    lag_ms = (BRISK.late_s + BRISK.listing_lag_s) * 1000
    assert home.clock.now_ms() > aborted_ms + lag_ms
    assert home.read(lambda tx: tx.run(run.id)).state == "ended"


def test_a_look_up_that_leaves_something_out_does_not_lose_it(home: SimulatedInstallation) -> None:
    given_up(home, Fault.LATE)
    home.until(lambda: any(each.state is InstanceState.RUNNING for each in home.cloud.instances()))
    home.clock.advance(0.2)
    home.cloud.crash(home.cloud.instances()[0].id)  # no list of the living will ever mention it
    home.faults.inject("find", Fault.PARTIAL, Fault.PARTIAL)
    home.settle()
    (bill,) = home.cloud.bills()
    (run,) = home.read(lambda tx: tx.runs())
    assert run.instance_id == bill.instance_id
    assert bill.amount_nano_usd > 0
    check_truth(home)


def test_a_machine_that_comes_after_the_listing_lag_is_ended_and_booked_by_its_tag(home: SimulatedInstallation) -> None:
    token = given_up(home, Fault.NO_ANSWER)
    home.settle()
    (run,) = home.read(lambda tx: tx.runs())
    tags = {"tradewind-install": home.store.install_id, "tradewind-job": run.job_id, "tradewind-run": run.id}
    home.cloud.launch(LaunchSpec(token, run.offer_id, "", tags), home.clock.now_ms())  # a caller that slept so long
    home.run_for(5)
    home.settle()
    (bill,) = home.cloud.bills()
    assert home.read(lambda tx: tx.run(run.id)).instance_id == bill.instance_id
    check_truth(home)


def test_a_token_that_the_provider_knows_for_another_request_may_have_made_a_machine(
    home: SimulatedInstallation,
) -> None:
    """As after an upgrade that changed the user data between two calls."""
    job = home.submit()
    home.faults.inject("launch", Fault.LOST_REPLY)
    home.until(lambda: bool(home.cloud.bills()))
    home.site.bootstrap = lambda *, token, nodes=1, remote=None: f"join anew {token} of {nodes}"  # type: ignore[method-assign]
    home.settle()
    assert home.job(job).state == "finished"
    assert home.runs(job)[0].instance_id is not None
    check_truth(home)


@pytest.mark.parametrize("dies", [False, True])
def test_a_refusal_says_nothing_of_an_earlier_launch_that_was_not_answered(
    install: Callable[..., SimulatedInstallation], dies: bool
) -> None:
    """A control plane slept before its call: another one asked as well and was refused, and then the first one woke."""
    home = install(behaviour=replace(BRISK, listing_lag_s=30.0))
    home.faults.inject("launch", Fault.NO_ANSWER, Fault.CAPACITY)
    job = home.submit(steps=200)
    home.until(lambda: len(home.migrations(job)) > 1)
    given_up = home.migrations(job)[0]
    spec = bring_up.launch_spec(home.plane._ctx, given_up, job, home.site.bootstrap(token=given_up.token))
    (late,) = FakeProvider(home.clock, cloud=home.cloud).launch(spec)
    home.run_for(10)
    if dies:
        home.cloud.crash(late)  # before any list shows it
    home.settle()
    assert home.read(lambda tx: tx.run(given_up.target_run_id)).instance_id == late
    check_truth(home)


@pytest.mark.parametrize("dies", [False, True])
def test_the_size_of_a_disk_is_the_same_at_each_try_of_a_launch(
    home: SimulatedInstallation, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    """Checkpoints are measured between two tries: with another size, the token would be refused, and the machine of the
    first try ended."""
    monkeypatch.setitem(traits._OF, "fake", replace(traits.traits_of("fake"), shares_host=False))
    home.faults.inject("launch", Fault.LOST_REPLY)
    job = home.submit_job(JobSpec("job", replace(train_spec(), code="0" * 64)))
    home.until(lambda: bool(home.cloud.bills()))
    with home.store.write() as tx:
        tx.set_job_facts(job.id, checkpoint_bytes=40 << 30)
    if dies:
        home.start()
    home.settle()
    assert [each.step for each in home.migrations(job)] == [Step.DONE]
    assert len(home.cloud.bills()) == 1
    check_truth(home)
