"""Jobs that share an account's quota: none finds out by being refused that another has the last machine."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from providers.fake import Fault
from tests.sim.harness import BRISK, SimulatedInstallation, check_truth


@pytest.mark.parametrize("together", [True, False])
def test_of_two_jobs_for_one_machine_the_second_waits_for_the_first_and_is_never_refused(
    install: Callable[..., SimulatedInstallation], together: bool
) -> None:
    """Decided together, or one while the other's machine starts, before the cloud is asked for its quotas again."""
    home = install(behaviour=replace(BRISK, max_instances=1))
    first = home.submit("first")
    if not together:
        home.until(lambda: bool(home.runs(first)))
    second = home.submit("second")
    home.settle(limit_s=3600.0)
    assert [home.job(job).state for job in (first, second)] == ["finished", "finished"]
    assert [len(home.runs(job)) for job in (first, second)] == [1, 1], "a launch was refused"
    check_truth(home)


def test_the_unit_of_a_machine_that_ended_is_free_at_once(install: Callable[..., SimulatedInstallation]) -> None:
    """The cloud is asked for its quotas as soon as the machine is gone, and not only together with the next prices."""
    home = install(behaviour=replace(BRISK, max_instances=1))
    first, second = home.submit("first"), home.submit("second")
    home.until(lambda: bool(home.runs(first)) or bool(home.runs(second)))
    home.plane._ctx.pacing["collect:fake"] = math.inf  # prices are asked for no more
    early, late = (first, second) if home.runs(first) else (second, first)
    gone_ms = []

    def began() -> bool:
        (run,) = home.runs(early)
        if not gone_ms and home.plane._ctx.gone(run):
            gone_ms.append(home.clock.now_ms())
        return bool(home.runs(late))

    home.until(began)
    assert home.runs(late)[0].created_at_ms - gone_ms[0] <= 5_000
    del home.plane._ctx.pacing["collect:fake"]
    home.settle(limit_s=3600.0)
    assert [len(home.runs(job)) for job in (first, second)] == [1, 1], "a launch was refused"
    check_truth(home)


def test_a_cloud_that_does_not_tell_what_is_left_is_not_asked_again_and_again(
    install: Callable[..., SimulatedInstallation],
) -> None:
    home = install(behaviour=replace(BRISK, max_instances=1))
    job = home.submit("job")
    home.until(lambda: bool(home.runs(job)))
    home.plane._ctx.pacing["collect:fake"] = math.inf  # prices are asked for no more
    home.until(lambda: home.plane._ctx.gone(home.runs(job)[0]))
    faults = home.faults
    faults.inject("quotas", *[Fault.NO_ANSWER] * 9)
    home.run_for(20.0)
    assert [faults.next("quotas") for _ in range(9)].count(Fault.NO_ANSWER) == 8
    del home.plane._ctx.pacing["collect:fake"]
    home.settle()
    check_truth(home)
