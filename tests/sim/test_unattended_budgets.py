"""Budgets hold although no control plane runs: machines end by themselves before the money is used up."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.config.projects import Project, Projects
from orchestrator.engine.migration.place import UNBOOKED
from orchestrator.model import STEP_ORDER, Job, Step
from providers.instance import EndReason
from providers.money import usd
from tests.rig.wires import Delay
from tests.sim.harness import CHEAP, EXPENSIVE, RESERVE, SimulatedInstallation, check_truth
from tests.sim.test_slow_calls import slow
from tests.sim.test_spending_limits import named_budget, paid

Install = Callable[..., SimulatedInstallation]
LONG_S = 7200.0


def cost(home: SimulatedInstallation, *jobs: Job) -> int:
    """The bill of these jobs' machines now, by the cloud's own books."""
    owned = {each.id for each in home.cloud.instances() if each.tags["tradewind-job"] in {job.id for job in jobs}}
    return sum(bill.amount_nano_usd for bill in home.cloud.bills() if bill.instance_id in owned)


@pytest.mark.parametrize("offer", [CHEAP, RESERVE], ids=["spot", "on demand"])
@pytest.mark.parametrize("at_step", [20, 120, 200])
def test_a_control_plane_that_stops_does_not_break_the_budget(install: Install, offer: Any, at_step: int) -> None:
    home = install(catalog=((offer, usd("1.00")),))
    budget = usd("0.12")  # 432 s
    job = home.submit(steps=2000, budget_nano_usd=budget)
    home.until_step(job, at_step)
    home.clock.advance(LONG_S)  # it is stopped, or this host sleeps
    assert cost(home, job) <= budget
    home.settle()
    assert cost(home, job) <= budget
    assert home.job(job).state == "paused"
    (waits,) = home.events(job, "job.waits")
    assert waits.message == UNBOOKED
    message = home.events(job, "job.paused")[-1].message
    home.ask("budget", job, nano_usd=usd(named_budget(message)))
    home.tick()
    home.ask("resume", job)
    home.until_state(job, "running")
    home.settle(limit_s=6000.0)
    assert home.job(job).state == "finished"
    check_truth(home)


@pytest.mark.parametrize("ticks", range(1, 9))
def test_the_budget_holds_if_the_control_plane_stops_while_the_first_machine_starts(
    install: Install, ticks: int
) -> None:
    home = install(catalog=((CHEAP, usd("1.00")),), stride_s=1.0)
    budget = usd("0.12")
    job = home.submit(steps=2000, budget_nano_usd=budget)
    for _ in range(ticks):
        home.tick()
    home.clock.advance(LONG_S)
    assert cost(home, job) <= budget
    assert paid(home) <= budget


@pytest.mark.parametrize("step", STEP_ORDER[1:-1])
def test_the_budget_holds_if_the_control_plane_stops_in_the_middle_of_a_move(
    home: SimulatedInstallation, step: Step
) -> None:
    budget = usd("0.30")
    job = home.submit(steps=2000, budget_nano_usd=budget)
    home.until_step(job, 60)
    home.ask("migrate", job, offer_id=EXPENSIVE.id)
    home.until(lambda: len(found := home.migrations(job)) > 1 and found[-1].step is step, stride_s=0.5)
    home.clock.advance(LONG_S)
    assert cost(home, job) <= budget
    assert paid(home) <= budget


def test_the_budget_of_a_project_holds_while_no_control_plane_runs(install: Install) -> None:
    budget = usd("0.20")
    home = install()
    home.config = replace(home.config, projects=Projects({"vision": Project(budget=0.20)}))
    home.start()
    jobs = [home.submit(name, steps=2000, project="vision") for name in ("a", "b")]
    for job in jobs:
        home.until_step(job, 20)
    home.clock.advance(LONG_S)
    assert cost(home, *jobs) <= budget
    assert paid(home) <= budget


def test_no_cost_is_stated_for_machines_that_ended_by_themselves(home: SimulatedInstallation) -> None:
    """The provider's answer arrives some seconds after the control plane continues."""
    job = home.submit(steps=2000, budget_nano_usd=usd("0.12"))
    home.until_step(job, 120)
    slow(home, Delay(3.0), only="describe")
    home.clock.advance(LONG_S)
    home.settle()
    (paused,) = home.events(job, "job.paused")
    assert "is spent so far" not in paused.message
    assert usd(named_budget(paused.message)) < usd("1.20")
    assert [run.end for run in home.runs(job)] == ["lost"]


def test_no_cost_of_a_project_is_stated_for_machines_that_ended_by_themselves(home: SimulatedInstallation) -> None:
    home.config = replace(home.config, projects=Projects({"vision": Project(budget=0.20)}))
    home.start()
    jobs = [home.submit(name, steps=2000, project="vision") for name in ("a", "b")]
    for job in jobs:
        home.until_step(job, 60)
    slow(home, Delay(3.0), only="describe")
    home.clock.advance(LONG_S)
    home.run_for(60)
    for job in jobs:
        assert [run.end for run in home.runs(job)][:1] == ["lost"]
        for event in home.events(job, "job.paused", "job.pausing", "job.waits"):
            stated = re.search(r"\$(\S+) of its \$0.20 is spent", event.message)
            assert stated is None or usd(stated[1]) < usd("0.20"), event.message


def test_a_budget_that_was_lowered_holds_if_the_control_plane_stops_after_it(home: SimulatedInstallation) -> None:
    job = home.submit(steps=4000, budget_nano_usd=usd("5.00"))
    home.until_step(job, 60)
    asked = home.ask("budget", job, nano_usd=usd("0.10"))
    home.tick()
    assert (home.answer(asked) or "").startswith("the budget is now $0.10 ")
    home.clock.advance(LONG_S)
    assert cost(home, job) <= usd("0.10")
    assert paid(home) <= usd("0.10")


def test_a_machine_is_not_ended_by_itself_while_a_control_plane_runs(home: SimulatedInstallation) -> None:
    """Its time to live becomes short near the end of the budget, where the job still saves a checkpoint."""
    job = home.submit(steps=2000, budget_nano_usd=usd("0.12"))
    home.settle()
    (run,) = home.runs(job)
    assert home.job(job).state == "paused"
    assert run.end == "paused"
    assert home.machine(run).end_reason is EndReason.USER
