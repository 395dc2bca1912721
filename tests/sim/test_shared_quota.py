"""Jobs that share an account's quota: none finds out by being refused that another has the last machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

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
