"""The budget of a group: its parts, its growth, and the commands by which a paused job continues."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from orchestrator.errors import UsageError
from orchestrator.model import Expected, GpuRequest
from orchestrator.services.caller import Caller
from orchestrator.services.groups.orders import resume_group, set_group_budget
from orchestrator.services.jobs.commands import pause, set_budget
from orchestrator.services.jobs.plan import planned
from providers.money import usd
from tests.sim.grouped import SLOW, SLOW_AND_FAST, grouped, order, pair, side_by_side
from tests.sim.harness import SimulatedInstallation, check_truth


def test_a_part_of_the_budget_may_grow_by_what_an_ended_job_left(home: SimulatedInstallation) -> None:
    a, b = grouped(home, "ab", budget="1.00")
    for job in (a, b):
        with home.installation.store.write() as tx:
            tx.set_budget(job.id, usd("0.50"))
    refused = home.ask("budget", home.job(b), nano_usd=usd("0.60"))
    home.until(lambda: home.answer(refused) is not None)
    assert "at most $0.50" in (home.answer(refused) or "")
    home.until_state(a, "finished")
    home.until(lambda: not home.read(lambda tx: tx.runs(job_id=a.id, unsettled=True)))
    granted = home.ask("budget", home.job(b), nano_usd=usd("0.60"))
    home.until(lambda: home.answer(granted) is not None)
    assert home.job(b).spec.budget_nano_usd == usd("0.60")
    home.settle()
    check_truth(home)


@pytest.mark.parametrize("dollars", ["1.00", "2.00", "3.50"])
def test_a_job_does_not_risk_its_own_budget_for_the_deadline_of_one_that_comes_after_it(
    install: Callable[..., SimulatedInstallation], dollars: str
) -> None:
    """On the cheaper machine it costs $0.56; on the other about $2.50, if that is as fast as expected."""
    home = install(catalog=SLOW_AND_FAST)
    first = pair(home, 3000.0, budget_nano_usd=usd(dollars))
    home.until_step(first, 60)
    assert [run.offer_id for run in home.runs(first)] == [SLOW.id]


def test_what_one_job_needs_to_end_its_machines_is_not_given_to_another(home: SimulatedInstallation) -> None:
    a, b = side_by_side(home, {"a": 600, "b": 600})
    for job in (a, b):
        with home.installation.store.write() as tx:
            tx.set_budget(job.id, usd("0.50"))
    order(home, usd("1.00"))
    home.until_step(a, 100)
    home.site.ignore_control(a.id)
    for _ in range(3):
        home.ask("budget", home.job(a), nano_usd=home.read(lambda tx: tx.total_nano_usd(job_id=a.id)) + usd("0.008"))
        home.tick()
    kept = home.job(a).spec.budget_nano_usd or 0
    home.ask("budget", home.job(b), nano_usd=usd("1.00") - kept)
    home.ask("pause", a)
    home.until(lambda: not home.read(lambda tx: tx.runs(job_id=a.id, unsettled=True)))
    assert home.read(lambda tx: tx.total_nano_usd(job_id=a.id)) <= kept
    home.ask("cancel", a)
    home.settle()
    check_truth(home)


def test_a_paused_job_that_has_the_whole_budget_of_its_group_continues_by_the_commands_that_it_names(
    home: SimulatedInstallation,
) -> None:
    (a,) = grouped(home, "a", budget="0.12", steps=600)
    with home.installation.store.write() as tx:
        tx.set_budget(a.id, usd("0.12"))
    home.until_state(a, "paused")
    said = home.events(a, "job.paused")[0].message
    (enough,) = re.findall(
        r"to continue: tradewind budget set --group chain (\d+\.\d\d), then tradewind resume a$", said
    )
    refused = home.ask("budget", a, nano_usd=usd(enough))
    home.tick()
    assert home.answer(refused) == "refused: a can get at most $0.1200, the budget of its group chain"
    granted = order(home, usd(enough))
    home.tick()
    assert (home.answer(granted) or "").startswith(f"the budget of group chain is now ${enough} (before: $0.12)")
    assert home.job(a).spec.budget_nano_usd == usd(enough)
    assert home.read(lambda tx: tx.group("group_A")).budget_nano_usd == usd(enough)
    (event,) = home.read(lambda tx: tx.events(kinds=("group.budget",)))
    assert (event.actor, event.data["nano_usd"]) == ("user:me", usd(enough))
    home.ask("resume", a)
    home.until_state(a, "finished")
    home.settle()
    check_truth(home)


def test_a_paused_job_whose_group_has_other_jobs_names_both_budgets_and_they_are_enough(
    home: SimulatedInstallation,
) -> None:
    a, b = grouped(home, "ab", budget="0.62", steps=600)
    with home.installation.store.write() as tx:
        for job, part in ((a, "0.12"), (b, "0.50")):
            tx.set_budget(job.id, usd(part))
    home.until_state(a, "paused")
    said = home.events(a, "job.paused")[0].message
    ((whole, part),) = re.findall(
        r"tradewind budget set --group chain (\S+), then tradewind budget set a (\S+), then tradewind resume a$", said
    )
    assert usd(whole) == usd(part) + usd("0.50")
    for wanted, why in ((None, "a budget must be"), (usd("0.61"), "the jobs of chain have $0.6200 of its budget")):
        refused = order(home, wanted)
        home.tick()
        assert (home.answer(refused) or "").startswith(f"refused: {why}")
    order(home, usd(whole))
    home.ask("budget", a, nano_usd=usd(part))
    home.ask("resume", a)
    home.until_state(a, "finished")
    assert home.job(b).spec.budget_nano_usd == usd("0.50")
    home.ask("cancel", b)
    home.settle()
    check_truth(home)


def test_the_plan_of_all_jobs_names_the_budget_of_the_group_as_well(home: SimulatedInstallation) -> None:
    a, b = grouped(home, "ab", budget="0.62", steps=600)
    with home.installation.store.write() as tx:
        for job, part in ((a, "0.12"), (b, "0.50")):
            tx.set_budget(job.id, usd(part))
    home.until_state(a, "paused")
    with home.installation.store.write() as tx:
        tx.set_job_state(a.id, "queued")
    decided, *_ = planned(home.installation, (), only=[a.id]).decisions
    way = r"to continue: tradewind budget set --group chain \d+\.\d\d, then tradewind budget set a \d+\.\d\d$"
    assert re.search(way, decided.reason), decided.reason


@pytest.mark.parametrize(
    ("names", "way"),
    [
        ("a", r"group chain (?P<whole>\d+\.\d\d)"),
        ("ab", r"group chain (?P<whole>\d+\.\d\d), then tradewind budget set a (?P<own>\d+\.\d\d)"),
    ],
)
def test_a_job_of_a_group_that_never_ran_names_the_budget_of_the_group_as_well(
    home: SimulatedInstallation, names: str, way: str
) -> None:
    a, *_ = grouped(home, names, budget="0.05", steps=600, expected=Expected(GpuRequest("V100"), 1.0))
    with home.installation.store.write() as tx:
        for name in names:
            tx.set_budget(f"job_{name}", usd("0.05") // len(names))
    home.until_state(a, "paused")
    said = home.events(a, "job.paused")[0].message
    found = re.search(rf"; to set it: tradewind budget set --{way}, then tradewind resume a$", said)
    assert found is not None, said
    (enough,) = re.findall(r"a budget of \$(\d+\.\d\d) would be enough", said)
    assert found.groupdict().get("own", enough) == enough
    home.ask("group-budget", a, group_id="group_A", nano_usd=usd(found["whole"]))
    home.ask("budget", a, nano_usd=usd(enough))
    home.ask("resume", a)
    home.until_state(a, "running")
    home.settle(limit_s=2000.0)
    assert home.job(a).state == "finished"


def test_a_group_without_a_budget_gets_one_that_counts_what_is_spent_and_is_never_exceeded(
    home: SimulatedInstallation,
) -> None:
    a, b, c = grouped(home, "abc", steps=600)
    with home.installation.store.write() as tx:
        tx.set_budget(c.id, usd("0.10"))
    home.until_state(a, "running")
    home.run_for(120.0)
    spent = home.read(lambda tx: tx.total_nano_usd(job_id=a.id))
    refused = order(home, spent + usd("0.10") + 1)
    home.tick()
    assert (home.answer(refused) or "").startswith("refused: the jobs of chain need at least")
    assert home.job(a).spec.budget_nano_usd is None
    order(home, usd("0.40"))
    home.tick()
    parts = [home.job(each).spec.budget_nano_usd or 0 for each in (a, b, c)]
    assert parts[0] > spent
    assert parts[1] > 0
    assert parts[2] == usd("0.10")
    assert usd("0.39") <= sum(parts) <= usd("0.40")
    assert home.read(lambda tx: tx.group("group_A")).budget_nano_usd == usd("0.40")
    (event,) = home.read(lambda tx: tx.events(kinds=("group.budget",)))
    assert event.message == "the budget of group chain is now $0.40 (none before)"
    home.until_state(a, "paused")
    home.ask("cancel", a)
    home.settle()
    assert home.read(lambda tx: sum(tx.total_nano_usd(job_id=each.id) for each in (a, b, c))) <= usd("0.40")
    check_truth(home)


def test_a_first_budget_with_enough_for_all_pauses_no_job_that_is_nearly_done(home: SimulatedInstallation) -> None:
    short, long = side_by_side(home, {"short": 200, "long": 6000})
    home.until_step(short, 120)
    order(home, usd("2.00"))
    home.until(lambda: home.job(short).state not in ("running", "migrating"))
    assert home.job(short).state == "finished", home.events(short, "job.paused")
    home.ask("cancel", long)
    home.settle()
    check_truth(home)


def test_a_first_budget_is_refused_until_the_last_bill_of_an_ended_job_is_known(home: SimulatedInstallation) -> None:
    ended, _ = side_by_side(home, {"ended": 20, "other": 300})
    home.until_state(ended, "finished")
    assert home.read(lambda tx: tx.runs(job_id=ended.id, unsettled=True))
    with pytest.raises(UsageError, match="ended has ended without a budget, and its last bill is not known") as caught:
        set_group_budget(home.installation, "chain", "1.00", caller=Caller("me"))
    assert caught.value.hint == "set the budget again in a minute"
    refused = order(home, usd("1.00"))
    home.tick()
    assert (home.answer(refused) or "").startswith("refused: ended has ended without a budget, and its last bill")
    home.until(lambda: not home.read(lambda tx: tx.runs(job_id=ended.id, unsettled=True)))
    set_group_budget(home.installation, "chain", "1.00", caller=Caller("me"))
    home.tick()
    assert home.read(lambda tx: tx.group("group_A")).budget_nano_usd == usd("1.00")
    home.settle()
    check_truth(home)


def test_a_budget_after_one_that_is_not_carried_out_yet_promises_no_parts(home: SimulatedInstallation) -> None:
    """They depend on the parts of the first, which only the control plane knows; it may refuse the second."""
    a, b = side_by_side(home, {"a": 200, "b": 200})
    set_group_budget(home.installation, "chain", "2.00", caller=Caller("me"))
    second = set_group_budget(home.installation, "chain", "0.50", caller=Caller("me"))
    assert second.message == "the budget of group chain becomes $0.50; an earlier request takes effect first"
    home.tick()
    assert home.read(lambda tx: tx.group("group_A")).budget_nano_usd == usd("2.00")
    set_budget(home.installation, a.id, "0.20", caller=Caller("me"))
    set_budget(home.installation, b.id, "0.20", caller=Caller("me"))
    set_group_budget(home.installation, "chain", "0.50", caller=Caller("me"))  # what the refusal advises
    home.tick()
    assert home.read(lambda tx: tx.group("group_A")).budget_nano_usd == usd("0.50")
    home.settle()
    check_truth(home)


def test_a_smaller_budget_of_a_group_names_the_larger_one_that_its_last_job_needs(home: SimulatedInstallation) -> None:
    """And not a budget of the job, for which the group has no money left then."""
    (a,) = grouped(home, "a", budget="1.50", steps=600, expected=Expected(GpuRequest("V100"), 1.0))
    with home.installation.store.write() as tx:
        tx.set_budget(a.id, usd("1.50"))
    pause(home.installation, "a", caller=Caller("me"))
    home.until_state(a, "paused")
    said = set_group_budget(home.installation, "chain", "0.05", caller=Caller("me")).message
    home.tick()
    answer = home.events(a, "job.budget")[-1].message
    for each in (said, answer):
        found = re.search(
            r"; it is still too small to finish; to continue: tradewind budget set --group chain (\S+), then "
            r"tradewind resume a$",
            each,
        )
        assert found is not None, each
    assert usd("0.30") < usd(found[1]) < usd("0.60")


def test_advice_about_the_budget_of_a_group_gives_ids_where_other_jobs_have_the_names(
    home: SimulatedInstallation,
) -> None:
    a, b = grouped(home, "ab", budget="0.62", steps=600)
    for job, part in ((a, "0.12"), (b, "0.50")):
        with home.installation.store.write() as tx:
            tx.set_budget(job.id, usd(part))
    home.submit("a", steps=1)
    home.submit("b", steps=1)
    with pytest.raises(UsageError, match="a can get at most") as caught:
        set_budget(home.installation, a.id, "0.30", caller=Caller("me"))
    assert caught.value.hint.endswith("; or lower that of another job: tradewind budget set job_b USD")
    home.until_state(a, "paused")
    said = home.events(a, "job.paused")[0].message
    assert re.search(r"--group chain \S+, then tradewind budget set job_a \S+, then tradewind resume job_a$", said), (
        said
    )
    home.ask("cancel", a)
    home.until_state(b, "failed")
    home.settle()


def test_advice_about_the_only_job_that_is_left_gives_its_id_where_another_has_its_name(
    home: SimulatedInstallation,
) -> None:
    (a,) = grouped(home, "a", budget="0.12", steps=600)
    with home.installation.store.write() as tx:
        tx.set_budget(a.id, usd("0.12"))
    home.submit("a", steps=1)
    home.until_state(a, "paused")
    with pytest.raises(UsageError, match="have already spent") as caught:
        set_group_budget(home.installation, "chain", "0.01", caller=Caller("me"))
    least = re.fullmatch(
        r"the smallest that is accepted: tradewind budget set --group chain (\d\.\d\d); "
        rf"or stop spending: tradewind pause {a.id}",
        caught.value.hint,
    )
    assert least is not None, caught.value.hint
    assert "becomes" in set_group_budget(home.installation, "chain", least[1], caller=Caller("me")).message
    home.tick()
    raised = set_group_budget(home.installation, "chain", "1.00", caller=Caller("me"))
    assert raised.message.endswith(f"; to continue: tradewind resume {a.id}")


def test_a_group_is_resumed_without_the_jobs_that_their_budgets_would_pause_again(home: SimulatedInstallation) -> None:
    a, b = grouped(home, "ab", steps=600)
    with home.installation.store.write() as tx:
        tx.set_budget(a.id, usd("0.12"))
    home.until_state(a, "paused")
    with pytest.raises(UsageError, match="a would be paused again at once: its") as caught:
        resume_group(home.installation, "chain", caller=Caller("me"))
    assert caught.value.hint.endswith(", then tradewind resume --group chain")
    pause(home.installation, b.id, caller=Caller("me"))
    home.until_state(b, "paused")
    resumed = resume_group(home.installation, "chain", caller=Caller("me"))
    assert resumed.job_ids == (b.id,)
    assert re.search(
        r"^1 job of chain will resume .*; a would be paused again at once: its \$0\.12 budget is too small; "
        r"to resume it, too: tradewind budget set a \d+\.\d\d$",
        resumed.message,
    ), resumed.message
