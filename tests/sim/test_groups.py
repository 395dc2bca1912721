"""Jobs of a group start after those that must have finished before, and fail if one of these never will."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from string import ascii_lowercase
from typing import Any

import pytest

from orchestrator.errors import UsageError
from orchestrator.model import Expected, GpuRequest, Group, Job, JobSpec
from orchestrator.services.caller import Caller
from orchestrator.services.groups.orders import resume_group, set_group_budget
from orchestrator.services.jobs.commands import pause, resume, set_budget
from orchestrator.services.jobs.explain import explain
from orchestrator.services.jobs.plan import planned
from providers.hardware import GIB
from providers.money import usd
from providers.offer import CapacityType, Offer
from tests.sim.harness import SimulatedInstallation, check_truth, train_spec


def grouped(
    home: SimulatedInstallation,
    names: str = "abc",
    budget: str | None = None,
    steps: int = 10,
    expected: Expected | None = None,
) -> list[Job]:
    """A chain: each job after the one before it."""
    now = home.clock.now_ms()
    group = Group("group_A", "chain", "cheapest", "default", "me", now, None if budget is None else usd(budget))
    jobs: list[Job] = []
    for name in names:
        after = (jobs[-1].id,) if jobs else ()
        job = Job(
            f"job_{name}",
            JobSpec(name, train_spec(steps), expected=expected),
            "me",
            now,
            "queued",
            group.id,
            after=after,
        )
        jobs.append(job)
    with home.installation.store.write() as tx:
        tx.add_group(group)
        for job in jobs:
            tx.add_job(job)
    return jobs


def reasons(home: SimulatedInstallation, job: Job) -> list[str]:
    return [each.message for each in home.read(lambda tx: tx.events(job_id=job.id)) if each.kind == "job.waits"]


SLOW, FAST = (
    Offer("fake", "alpha", "alpha-1", name, gpu, 1, 8, 64 * GIB, CapacityType.ON_DEMAND, simulated=True)
    for name, gpu in (("v100.1", "V100"), ("a100.1", "A100-40GB"))
)
SLOW_AND_FAST = ((SLOW, usd("1.00")), (FAST, usd("9.00")))


def pair(home: SimulatedInstallation, deadline_s: float | None, **first: Any) -> Job:
    """A job of 2000 steps, and one after it with a deadline."""
    now, known = home.clock.now_ms(), Expected(GpuRequest("V100"), 1.0)
    leads = Job("job_a", JobSpec("a", train_spec(2000), expected=known, **first), "me", now, "queued", "group_A")
    spec = JobSpec("b", train_spec(2000), expected=known, deadline_s=deadline_s)
    with home.installation.store.write() as tx:
        tx.add_group(Group("group_A", "chain", "cheapest", "default", "me", now, None))
        tx.add_job(leads)
        tx.add_job(Job("job_b", spec, "me", now, "queued", "group_A", after=(leads.id,)))
    return leads


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


def test_a_control_plane_that_starts_anew_keeps_the_order(home: SimulatedInstallation) -> None:
    a, b = grouped(home, "ab")
    home.until_state(a, "running")
    home.tick(down_s=1.0)
    assert home.job(b).state == "queued"
    home.until_state(b, "finished")
    home.settle()
    check_truth(home)


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


def order(home: SimulatedInstallation, nano_usd: int | None) -> str:
    with home.installation.store.write() as tx:
        return tx.add_command("group-budget", None, {"group_id": "group_A", "nano_usd": nano_usd}, "user:me")


def side_by_side(home: SimulatedInstallation, steps: dict[str, int]) -> list[Job]:
    """Jobs of known speed in a group without a budget."""
    now, known = home.clock.now_ms(), Expected(GpuRequest("V100"), 1.0)
    jobs = [
        Job(f"job_{name}", JobSpec(name, train_spec(each), expected=known), "me", now, "queued", "group_A")
        for name, each in steps.items()
    ]
    with home.installation.store.write() as tx:
        tx.add_group(Group("group_A", "chain", "cheapest", "default", "me", now, None))
        for job in jobs:
            tx.add_job(job)
    return jobs


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
