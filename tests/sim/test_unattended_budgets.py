"""Budgets hold although no control plane runs: machines end by themselves before the money is used up."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.config.projects import Project, Projects
from orchestrator.engine.calls import Place
from orchestrator.engine.migration.place import UNBOOKED
from orchestrator.model import STEP_ORDER, Job, Step
from providers.fake import Fault
from providers.instance import EndReason
from providers.money import usd
from providers.offer import CapacityType
from tests.rig.wires import Delay
from tests.sim.harness import CHEAP, EXPENSIVE, RESERVE, SimulatedInstallation, check_truth
from tests.sim.test_slow_calls import slow
from tests.sim.test_spending_limits import named_budget, paid

Install = Callable[..., SimulatedInstallation]
LONG_S = 7200.0
ON_DEMAND = tuple(
    (replace(offer, capacity_type=CapacityType.ON_DEMAND), usd(price))
    for offer, price in ((CHEAP, "1.00"), (EXPENSIVE, "1.60"))
)


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


def second_machine(home: SimulatedInstallation) -> None:
    """Until a second machine has just been launched."""
    for _ in range(300):
        home.tick(0.0)
        if len(home.cloud.instances()) == 2:
            return
        home.clock.advance(1.0)
    pytest.fail("no second machine was launched")


@pytest.mark.parametrize("second", ["standby", "a better offer", "a move while renewals are slow"])
def test_the_budget_holds_if_the_control_plane_stops_right_after_a_second_machine_was_launched(
    install: Install, second: str
) -> None:
    """On-demand machines, because the time to live of spot machines allows for higher prices."""
    home = install(catalog=ON_DEMAND)
    budget = usd("0.50")
    job = home.submit(steps=4000, budget_nano_usd=budget, standby="warm" if second == "standby" else "none")
    if second != "standby":
        home.until_step(job, 30)
    if second == "a better offer":
        home.reprice(ON_DEMAND[1][0].id, "0.10")
    elif second != "standby":
        slow(home, Delay(20.0), only="renew")
        home.ask("migrate", job, offer_id=ON_DEMAND[1][0].id)
    second_machine(home)
    home.clock.advance(2 * LONG_S)
    assert cost(home, job) <= budget
    assert paid(home) <= budget


def test_the_budget_of_a_project_holds_if_the_control_plane_stops_right_after_another_launch(install: Install) -> None:
    budget = usd("0.50")
    home = install(catalog=ON_DEMAND)
    home.config = replace(home.config, projects=Projects({"vision": Project(budget=0.50)}))
    home.start()
    first = home.submit("a", steps=4000, project="vision")
    home.until_step(first, 30)
    other = home.submit("b", steps=4000, project="vision")
    second_machine(home)
    home.clock.advance(2 * LONG_S)
    assert cost(home, first, other) <= budget
    home.run_for(300)
    assert cost(home, first, other) <= budget
    assert home.job(first).state == "paused"


def test_a_second_machine_waits_for_the_renewal_of_the_first_and_says_so(install: Install) -> None:
    home = install(catalog=ON_DEMAND)
    job = home.submit(steps=4000, budget_nano_usd=usd("0.50"))
    home.until_step(job, 30)
    home.faults.inject("renew", *[Fault.NO_ANSWER] * 10)
    home.ask("migrate", job, offer_id=ON_DEMAND[1][0].id)
    home.run_for(20)
    assert len(home.cloud.instances()) == 1
    (said,) = home.events(job, "site.unavailable")
    assert (
        "its budget covers another machine only after the present ones have got a shorter time to live" in said.message
    )
    second_machine(home)
    home.clock.advance(2 * LONG_S)
    assert cost(home, job) <= usd("0.50")


def test_a_standby_is_not_launched_after_the_budget_was_used_up_while_no_control_plane_ran(install: Install) -> None:
    home = install(catalog=ON_DEMAND, stride_s=1.0)
    job = home.submit(steps=4000, budget_nano_usd=usd("0.50"), standby="warm")
    home.until(lambda: bool(home.events(job, "standby.decided")))
    machines = len(home.cloud.instances())
    home.clock.advance(LONG_S)
    home.run_for(60)
    assert len(home.cloud.instances()) == machines
    assert paid(home) <= usd("0.50")


@pytest.mark.parametrize("how", ["continues", "is restarted"])
@pytest.mark.parametrize("of", ["the job", "the project"])
def test_no_amount_is_stated_before_the_provider_has_reported_the_end_of_a_machine(
    install: Install, how: str, of: str
) -> None:
    """The machines have ended by themselves, long before the budget was used up."""
    home = install(catalog=ON_DEMAND, overrides={"limits.max_unattended_s": 600.0})
    budget: dict[str, Any] = {"budget_nano_usd": usd("1.50")}
    if of == "the project":
        budget = {"project": "vision"}
        home.config = replace(home.config, projects=Projects({"vision": Project(budget=1.50)}))
        home.start()
    job = home.submit(steps=2000, **budget)
    home.until_step(job, 60)
    home.clock.advance(LONG_S)
    slow(home, Delay(8.0), only="describe")
    if how == "is restarted":
        home.start()
    home.reprice(ON_DEMAND[0][0].id, "0.90")
    home.run_for(30)
    assert [run.end for run in home.runs(job)][:1] == ["lost"]
    assert not home.events(job, "job.paused", "job.pausing", "job.at_risk")
    assert all(" is spent" not in each.message for each in home.events(job, "job.waits"))
    slow(home)
    home.settle(limit_s=6000.0)
    assert home.job(job).state == "finished"
    assert paid(home) <= usd("1.50")


def test_a_job_is_not_at_risk_because_its_machine_ended_while_no_control_plane_ran(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers about the machine and its trainer arrive some seconds after the control plane continues."""
    home = install(catalog=ON_DEMAND, overrides={"limits.max_unattended_s": 600.0})
    job = home.submit(steps=2000, budget_nano_usd=usd("1.50"))
    home.until_step(job, 60)
    home.clock.advance(LONG_S)
    slow(home, Delay(8.0), only="describe")
    monkeypatch.setattr(home.site, "reports", lambda _ids: {})
    home.reprice(ON_DEMAND[0][0].id, "0.90")
    home.tick()
    assert home.job(job).state == "running"
    assert not home.events(job, "job.at_risk")


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


@pytest.mark.parametrize("how", ["continues", "is restarted"])
def test_no_time_after_the_end_of_a_machine_is_booked(home: SimulatedInstallation, how: str) -> None:
    """It would be corrected once the provider answers, and the amount paid would be too high until then."""
    budget = usd("0.12")
    job = home.submit(steps=2000, budget_nano_usd=budget)
    home.until_step(job, 120)
    slow(home, Delay(3.0), only="describe")
    home.clock.advance(LONG_S)
    if how == "is restarted":
        home.start()
    for _ in range(30):
        home.tick(0.5)
        assert home.read(lambda tx: tx.total_nano_usd(job_id=job.id)) <= budget
    assert paid(home) <= budget
    assert "correction" not in {each.kind for each in home.read(lambda tx: tx.entries(job_id=job.id))}


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


def test_clouds_are_not_asked_too_often_to_renew_machines_near_the_end_of_budgets(home: SimulatedInstallation) -> None:
    """All budgets end in the same minutes."""
    jobs = [home.submit(name, steps=2000, budget_nano_usd=usd("0.12")) for name in "abcd"]
    asked: Counter[int] = Counter()

    def counted(_place: Place, key: str) -> bool:
        asked[int(home.clock.monotonic_s() // 60)] += key.startswith("renew:")
        return False

    home.wires.silent = counted
    home.settle(stride_s=2.0)
    assert {home.job(job).state for job in jobs} == {"paused"}
    assert {run.end for job in jobs for run in home.runs(job)} == {"paused"}
    assert max(asked.values()) <= 5 * len(jobs)  # per minute, as measured; no provider's limit
