"""The budget that is named as enough: a job that gets it after a pause finishes, wherever it was paused."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from providers.money import usd
from tests.sim.harness import CHEAP, SimulatedInstallation
from tests.sim.test_spending_limits import named_budget, paid, why_paused

Install = Callable[..., SimulatedInstallation]


@pytest.mark.parametrize("seed", [1, 8, 10, 14, 18, 20, 33, 39])
def test_a_budget_that_is_named_as_enough_is_enough_wherever_the_job_was_paused(install: Install, seed: int) -> None:
    """Also if only a few seconds of it are left: a price may have risen since the last poll."""
    draw = random.Random(seed)
    home = install(catalog=((CHEAP, usd("1.00")),), stride_s=draw.choice([0.5, 2.0]))
    steps = draw.randint(100, 700)
    budget = usd(f"{draw.uniform(0.3, 1.0) * steps / 3600:.4f}")
    job = home.submit(steps=steps, budget_nano_usd=budget)
    enough = named_budget(why_paused(home, job))
    home.settle()
    home.ask("budget", job, nano_usd=usd(enough))
    home.run_for(draw.uniform(0, 40))
    home.ask("resume", job)
    home.until_state(job, "running")
    home.settle(limit_s=2000.0)
    assert home.job(job).state == "finished", home.events(job, "job.paused")[-1].message
    assert paid(home) <= usd(enough)
