"""A job whose budget is too small: what is said when it is resumed or its budget is set names the amount that works."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from orchestrator.errors import UsageError
from orchestrator.model import FASTEST, Expected, GpuRequest
from orchestrator.services.caller import Caller
from orchestrator.services.jobs import commands
from orchestrator.services.jobs.explain import explain
from providers.money import usd
from tests.sim.harness import CHEAP, RESERVE, SimulatedInstallation
from tests.sim.test_spending_limits import named_budget, paid, why_paused

Install = Callable[..., SimulatedInstallation]
ME = Caller("me")
KNOWN = Expected(GpuRequest("V100"), 1.0)


@pytest.mark.parametrize("expected", [KNOWN, None])
def test_a_job_whose_budget_would_pause_it_again_is_not_resumed_until_it_has_the_budget_named(
    home: SimulatedInstallation, expected: Expected | None
) -> None:
    job = home.submit(steps=600, expected=expected, budget_nano_usd=usd("0.015"))
    why_paused(home, job)
    with pytest.raises(UsageError, match=r"^job would be paused again at once: its \$0\.015 budget ") as refused:
        commands.resume(home.installation, "job", caller=ME)
    hint = refused.value.hint
    assert hint.endswith("then tradewind resume job")
    enough = named_budget(hint) if expected else re.findall(r"\$(\d+\.\d\d) is enough to rent a machine", hint)[0]
    commands.set_budget(home.installation, "job", enough, caller=ME)
    accepted = commands.resume(home.installation, "job", caller=ME)  # no control plane has set the budget yet
    assert "paused again" not in accepted.message
    home.until_state(job, "running")
    assert paid(home) <= usd(enough)
    assert expected is None or home.job(job).state == "finished"


def test_a_job_of_unknown_speed_that_is_resumed_rents_a_machine_though_its_budget_does_not_pay_for_the_best_one(
    install: Install,
) -> None:
    """It wants the fastest machine, which costs ten times as much as the other one."""
    fast = replace(RESERVE, instance_type="h100.1", gpu="H100")
    home = install(catalog=((CHEAP, usd("1.00")), (fast, usd("10.00"))))
    job = home.submit(steps=600, objective=FASTEST, budget_nano_usd=usd("0.01"))
    (enough,) = re.findall(r"\$(\d+\.\d\d) is enough to rent a machine", why_paused(home, job))
    commands.set_budget(home.installation, "job", enough, caller=ME)
    home.tick()
    commands.resume(home.installation, "job", caller=ME)
    home.until_state(job, "running")
    assert [run.offer_id for run in home.runs(job)] == [CHEAP.id]
    home.settle()
    assert paid(home) <= usd(enough)


def test_a_job_that_may_be_paused_again_is_resumed_with_a_warning_and_the_command(home: SimulatedInstallation) -> None:
    job = home.submit(steps=600, expected=KNOWN, budget_nano_usd=usd("0.05"))
    (enough,) = re.findall(r"a budget of \$(\d+\.\d\d) would be enough", why_paused(home, job))
    commands.set_budget(home.installation, "job", f"{float(enough) - 0.02:.2f}", caller=ME)
    said = commands.resume(home.installation, "job", caller=ME).message
    assert re.search(r"; its \$0\.\d\d budget may pause it again; to let it finish: ", said)
    assert named_budget(said) == enough


def test_a_budget_that_pays_for_no_machine_is_set_and_says_what_is_enough_to_rent_one(
    home: SimulatedInstallation,
) -> None:
    """The speed of the job is not known, so it may begin with any budget that pays for a machine."""
    job = home.submit(steps=600, budget_nano_usd=usd("0.01"))
    why_paused(home, job)
    said = commands.set_budget(home.installation, "job", "0.015", caller=ME).message
    (enough,) = re.findall(
        r"; it is still too small to rent a machine; to continue: tradewind budget set job USD \(\$(\S+) is enough to "
        r"rent a machine; training costs more\), then tradewind resume job$",
        said,
    )
    said = commands.set_budget(home.installation, "job", enough, caller=ME).message
    assert said.endswith("; to continue: tradewind resume job")
    assert "may pause it again" not in commands.resume(home.installation, "job", caller=ME).message
    home.until_state(job, "running")


@pytest.mark.parametrize("expected", [KNOWN, None])
def test_the_way_on_of_a_job_that_is_paused_already_is_accepted(
    home: SimulatedInstallation, expected: Expected | None
) -> None:
    job = home.submit(steps=600, expected=expected, budget_nano_usd=usd("0.015"))
    why_paused(home, job)
    with pytest.raises(UsageError, match=r"^job is already paused$") as refused:
        commands.pause(home.installation, "job", caller=ME)
    assert refused.value.hint.startswith("tradewind budget set job ")
    assert refused.value.hint.endswith(", then tradewind resume job")
    commands.set_budget(home.installation, "job", "2.00", caller=ME)
    home.tick()
    with pytest.raises(UsageError) as refused:
        commands.pause(home.installation, "job", caller=ME)
    assert refused.value.hint == "tradewind resume job"


@pytest.mark.parametrize("state", ["running", "paused"])
def test_a_budget_below_what_is_spent_is_refused_with_the_smallest_that_is_accepted(
    home: SimulatedInstallation, state: str
) -> None:
    job = home.submit(steps=600, expected=KNOWN, budget_nano_usd=usd("0.5"))
    home.until_step(job, 320)
    if state == "paused":
        commands.pause(home.installation, "job", caller=ME)
        home.settle()
    with pytest.raises(UsageError, match=r"^job has already spent \$0\.0\d+$") as refused:
        commands.set_budget(home.installation, "job", "0.01", caller=ME)
    found = re.fullmatch(
        r"to finish it: tradewind budget set job (\S+); the smallest allowed budget: tradewind budget set job (\S+?)"
        r"(; or stop spending: tradewind pause job)?",
        refused.value.hint,
    )
    assert found is not None, refused.value.hint
    assert (found[3] is None) == (state == "paused")
    asked = home.ask("budget", job, nano_usd=usd(found[2]))
    home.tick()
    assert (home.answer(asked) or "").startswith("the budget is now "), home.answer(asked)
    assert usd(found[2]) < usd(found[1])


def test_a_deadline_that_cannot_be_met_is_named_beside_a_budget_that_is_too_small(home: SimulatedInstallation) -> None:
    deadline_ms = home.clock.now_ms() + 300_000
    job = home.submit(steps=600, expected=KNOWN, budget_nano_usd=usd("0.1"), deadline_at_ms=deadline_ms)
    home.until(lambda: home.job(job).state == "paused")
    late = "; the deadline cannot be met, so it finishes late"
    assert home.events(job, "job.paused")[0].message.count("the deadline") == 1
    with pytest.raises(UsageError, match="is too small" + late):
        commands.resume(home.installation, "job", caller=ME)
    said = commands.set_budget(home.installation, "job", "0.11", caller=ME).message
    assert f"too small to finish{late}; to continue: " in said


def test_a_paused_job_that_got_another_budget_names_one_next_command(home: SimulatedInstallation) -> None:
    job = home.submit(steps=600, budget_nano_usd=usd("0.12"))
    enough = named_budget(why_paused(home, job))
    home.settle()
    for amount, next_one in ((enough, "tradewind resume job"), ("0.13", "tradewind budget set job")):
        home.ask("budget", job, nano_usd=usd(amount))
        home.tick()
        headline = explain(home.installation, "job").headline
        assert headline.count("; to continue: ") == 1, headline
        assert re.search(rf"; since then: the budget is now .*; to continue: {next_one}", headline)
