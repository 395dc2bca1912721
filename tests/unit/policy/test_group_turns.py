"""The joint plan of a group, carried out: who has the machines that a quota limits, and who waits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from orchestrator.market import Listing, Market, rooms
from orchestrator.model import GROUP_POLICIES, GroupPolicy
from orchestrator.policy import Demand, MoveLimits, Running
from orchestrator.policy.group_turns import NOTHING_LATER, GroupRules, Later, group_turns
from orchestrator.policy.groups.following import in_time_for_what_follows
from orchestrator.policy.groups.planning import asked
from orchestrator.policy.time_sharing import Given, History
from providers.base import Covered, Quota
from providers.money import usd
from tests.unit.policy.conftest import DecisionCase

HOUR_STEPS = 3600  # at one step per second
DAY_S = 86_400.0
HOUR_MS = 3_600_000


@pytest.fixture
def case() -> DecisionCase:
    return DecisionCase(startup_s=0.0)


def quota(limit: int, *types: str, used: int = 0, unit: str = "machines") -> Quota:
    return Quota("machines", "eu-1", limit, used, Covered(unit, instance_types=types))  # type: ignore[arg-type]


def job(case: DecisionCase, name: str, *, hours: float = 100.0, **fields: object) -> Demand:
    return Demand(case.job(name, **fields), round(hours * HOUR_STEPS))  # type: ignore[arg-type]


def given(
    case: DecisionCase,
    demands: Sequence[Demand],
    *quotas: Quota,
    policy: GroupPolicy = "cheapest",
    on: Mapping[str, str] | None = None,
    had_h: Mapping[str, float] | None = None,
    least_s: float = DAY_S / 2,
    age_s: Mapping[str, float] | None = None,
    later: Later = NOTHING_LATER,
) -> Given | None:
    """`on`: by name, the offer where a job runs, for a day unless `had_h` says otherwise. `age_s`: by name, for how
    long a job has wanted a machine, unless for a day."""
    listing, on, had_h = Listing.of(case.offers), on or {}, had_h or {}
    market = Market.as_of(
        case.now, offers=listing, prices=case.prices, startup_s={"local": 0.0}, rooms=rooms(listing, {"local": quotas})
    )
    history, running = {}, {}
    for each in demands:
        name, offer = each.job.name, on.get(each.job.name)
        had_s = 3600 * had_h.get(name, 24.0 if offer else 0.0)
        waited_s = 0.0 if offer else DAY_S
        wanted_s = (age_s or {}).get(name, DAY_S)
        history[each.job.id] = History(wanted_s, waited_s, DAY_S, {offer: had_s} if offer else {}, offer, had_s)
        if offer is not None:
            running[each.job.id] = Running(offer, case.now - round(1000 * had_s))
    rules = GroupRules(policy, DAY_S, least_s, 60.0, MoveLimits(), 20.0)
    held = [(offer, 1) for offer in on.values()]
    return group_turns(demands, history, market, case.perf(), running, held, rules, later=later).given


def kept_off(found: Given | None, demands: Sequence[Demand]) -> dict[str, set[str]]:
    """By name, the offers that a job must leave to others."""
    assert found is not None
    return {each.job.name: set(found.not_now.get(each.job.id, ())) for each in demands}


@pytest.mark.parametrize("policy", GROUP_POLICIES)
def test_where_no_quota_covers_an_offer_each_job_is_decided_alone(case: DecisionCase, policy: GroupPolicy) -> None:
    case.offer("cheap", 1.0)
    assert given(case, [job(case, "a"), job(case, "b")], policy=policy) is None


def test_under_cheapest_a_quota_with_room_for_all_reserves_nothing(case: DecisionCase) -> None:
    case.offer("cheap", 1.0)
    case.offer("dear", 2.0)
    assert given(case, [job(case, "a"), job(case, "b")], quota(2, "cheap")) is None


def test_the_job_that_gains_most_has_the_last_machine_and_the_others_are_free_elsewhere(case: DecisionCase) -> None:
    """There is not enough time to take turns on the cheap machine, and the long job is slow on the other one."""
    cheap = case.offer("cheap", 1.0)
    case.offer("dear", 4.0, gpu="SIM-L")
    rates = {"SIM-M": 1.0, "SIM-L": 1.0}
    short_due_ms, long_due_ms = (case.now + hours * HOUR_MS for hours in (14, 201))
    jobs = [
        job(case, "short", hours=10.0, rates=rates, deadline_at_ms=short_due_ms),
        job(case, "long", hours=200.0, rates={**rates, "SIM-L": 0.5}, deadline_at_ms=long_due_ms),
    ]
    assert kept_off(given(case, jobs, quota(1, "cheap")), jobs) == {"short": {cheap}, "long": set()}


def test_jobs_that_can_be_on_time_one_after_the_other_take_turns_on_the_cheapest_machine(case: DecisionCase) -> None:
    offers = {case.offer("cheap", 1.0), case.offer("dear", 4.0)}
    jobs = [
        job(case, "short", hours=10.0, deadline_at_ms=case.now + 14 * HOUR_MS),
        job(case, "long", hours=200.0, deadline_at_ms=case.now + 280 * HOUR_MS),
    ]
    assert kept_off(given(case, jobs, quota(1, "cheap")), jobs) == {"short": set(), "long": offers}


def test_where_all_wait_for_the_cheapest_machine_the_shortest_job_is_first(case: DecisionCase) -> None:
    """In which order makes no difference to the cost."""
    offers = {case.offer("cheap", 1.0), case.offer("dear", 4.0)}
    jobs = [job(case, "long", hours=200.0), job(case, "short", hours=1.0)]
    assert kept_off(given(case, jobs, quota(1, "cheap")), jobs) == {"short": set(), "long": offers}


@pytest.mark.parametrize("policy", GROUP_POLICIES)
def test_no_more_jobs_than_a_quota_allows_have_a_turn(case: DecisionCase, policy: GroupPolicy) -> None:
    only = case.offer("only", 1.0)
    jobs = [job(case, name) for name in "abcde"]
    found = given(case, jobs, quota(2, "only"), policy=policy)
    waiting = [name for name, offers in kept_off(found, jobs).items() if only in offers]
    assert len(waiting) == 3
    assert found is not None
    assert len(found.has_turn) == 2


def test_vcpus_are_counted_as_the_quota_counts_them(case: DecisionCase) -> None:
    case.offer("only", 1.0)  # of 4 vCPUs
    jobs = [job(case, name) for name in "abc"]
    found = given(case, jobs, quota(11, "only", unit="vcpus"))
    assert found is not None
    assert len(found.has_turn) == 2


def test_what_the_group_has_counts_as_its_own(case: DecisionCase) -> None:
    only = case.offer("only", 1.0)
    jobs = [job(case, name) for name in "abc"]
    found = given(case, jobs, quota(2, "only", used=2), on={"a": only, "b": only})
    assert found is not None
    assert (set(found.has_turn), found.give_way) == ({jobs[0].job.id, jobs[1].job.id}, ())


@pytest.mark.parametrize("policy", [each for each in GROUP_POLICIES if "fairness" not in each])
def test_a_job_keeps_its_machine_unless_the_policy_is_about_fairness(case: DecisionCase, policy: GroupPolicy) -> None:
    only = case.offer("only", 1.0)
    jobs = [job(case, "has"), job(case, "waits")]
    found = given(case, jobs, quota(1, "only", used=1), policy=policy, on={"has": only})
    assert found is not None
    assert (found.has_turn, found.give_way) == ((jobs[0].job.id,), ())


@pytest.mark.parametrize("policy", ["max-throughput", "shortest-job-first", "first-in-first-out"])
def test_no_machine_is_idle_while_the_job_that_it_is_planned_for_keeps_another(
    case: DecisionCase, policy: GroupPolicy
) -> None:
    slow, fast = case.offer("slow", 1.0), case.offer("fast", 2.0, gpu="SIM-L")
    jobs = [job(case, "has", rates={"SIM-M": 1.0, "SIM-L": 4.0}), job(case, "waits", rates={"SIM-M": 1.0})]
    has, waits = (each.job.id for each in jobs)
    fast_quota = replace(quota(1, "fast"), name="fast")

    def in_a_round(fast_used: int, **on: str) -> Given:
        quotas = quota(1, "slow", used=1), replace(fast_quota, used=fast_used)
        had_h = dict.fromkeys(on, 1.0)
        found = given(case, jobs, *quotas, policy=policy, on=on, had_h=had_h, least_s=math.inf)
        assert found is not None
        return found

    found = in_a_round(0, has=slow)
    assert (set(found.has_turn), found.give_way) == ({has, waits}, (has,))
    assert fast not in found.not_now[has]
    assert slow not in found.not_now[waits]
    assert in_a_round(1, has=slow).give_way == ()  # the fast machine is another's


@pytest.mark.parametrize("policy", ["cheapest", "shortest-job-first", "first-in-first-out"])
@pytest.mark.parametrize(("hours", "first"), [(1.0, "old"), (30.0, "due"), (200.0, "due")])
def test_a_job_that_would_have_to_give_way_before_it_is_done_leaves_a_free_machine_to_the_one_with_a_deadline(
    case: DecisionCase, policy: GroupPolicy, hours: float, first: str
) -> None:
    """The other job takes 10 of 40 hours. A tenth of these is kept in reserve."""
    case.offer("only", 1.0)
    due = job(case, "due", hours=10.0, deadline_at_ms=case.now + 40 * HOUR_MS)
    jobs = {"old": job(case, "old", hours=hours), "due": due}
    found = given(case, list(jobs.values()), quota(1, "only"), policy=policy, age_s={"old": 10 * DAY_S, "due": 1.0})
    assert found is not None
    assert found.has_turn == (jobs[first].job.id,)


@pytest.mark.parametrize("policy", ["max-min-fairness", "finish-time-fairness"])
def test_under_a_policy_of_fairness_a_turn_ends_with_its_round(case: DecisionCase, policy: GroupPolicy) -> None:
    only = case.offer("only", 1.0)
    jobs = [job(case, "has"), job(case, "waits")]
    found = given(case, jobs, quota(1, "only", used=1), policy=policy, on={"has": only})
    assert found is not None
    assert (found.has_turn, found.give_way) == ((jobs[1].job.id,), (jobs[0].job.id,))
    within = given(case, jobs, quota(1, "only", used=1), policy=policy, on={"has": only}, least_s=float("inf"))
    assert within is not None
    assert (within.has_turn, within.give_way) == ((jobs[0].job.id,), ())


def test_only_the_time_in_which_a_job_wanted_a_machine_makes_it_old(case: DecisionCase) -> None:
    case.offer("only", 1.0)
    jobs = [job(case, "waited"), job(case, "paused")]
    wanted_s = {"waited": 10 * DAY_S, "paused": 0.0}
    fair = given(case, jobs, quota(1, "only"), policy="finish-time-fairness", age_s=wanted_s)
    assert fair is not None
    assert fair.share[jobs[0].job.id] > fair.share[jobs[1].job.id] + 0.1
    for old, waits in ((jobs[0], "paused"), (jobs[1], "waited")):
        first = given(case, jobs, quota(1, "only"), policy="first-in-first-out", age_s={waits: 0.0})
        assert first is not None
        assert first.has_turn == (old.job.id,)


@pytest.mark.parametrize("policy", GROUP_POLICIES)
def test_who_would_be_late_has_the_machine_at_once(case: DecisionCase, policy: GroupPolicy) -> None:
    only = case.offer("only", 1.0)
    first, late = job(case, "first"), job(case, "late", hours=10.0, deadline_at_ms=case.now + round(10.5 * HOUR_MS))
    found = given(
        case, [first, late], quota(1, "only", used=1), policy=policy, on={"first": only}, least_s=float("inf")
    )
    assert found is not None
    assert (found.has_turn, found.give_way) == ((late.job.id,), (first.job.id,))


def test_jobs_that_are_late_already_do_not_spoil_the_plan_of_the_others(case: DecisionCase) -> None:
    only = case.offer("only", 1.0)
    other, late = job(case, "other"), job(case, "late", hours=10.0, deadline_at_ms=case.now - HOUR_MS)
    found = given(case, [other, late], quota(1, "only"), policy="cheapest")
    assert kept_off(found, [other, late]) == {"other": {only}, "late": set()}


def test_jobs_of_unknown_speed_are_left_out(case: DecisionCase) -> None:
    case.offer("only", 1.0)
    jobs = [job(case, name) for name in "abc"]
    unknown = replace(jobs[2], total_steps=None)
    found = given(case, [*jobs[:2], unknown], quota(1, "only"))
    assert found is not None
    assert unknown.job.id not in found.not_now


def test_other_policies_keep_each_job_to_what_it_was_given(case: DecisionCase) -> None:
    """Alone, both would take the cheaper machine; the most throughput needs both machines."""
    slow = case.offer("slow", 1.0, gpu="T4")
    fast = case.offer("fast", 5.0, gpu="H100")
    jobs = [job(case, name, rates={"T4": 1.0, "H100": 4.0}) for name in "ab"]
    found = kept_off(given(case, jobs, quota(1, "fast"), quota(9, "slow"), policy="max-throughput"), jobs)
    assert sorted(found.values(), key=sorted) == [{fast}, {slow}]


def test_without_any_quota_the_plan_of_another_policy_counts_too(case: DecisionCase) -> None:
    """For the earliest end of the last job, only the long one needs the fast machine."""
    slow = case.offer("slow", 1.0, gpu="T4")
    fast = case.offer("fast", 5.0, gpu="H100")
    rates = {"T4": 1.0, "H100": 2.0}
    jobs = [job(case, "short", hours=10.0, rates=rates), job(case, "long", hours=100.0, rates=rates)]
    assert kept_off(given(case, jobs, policy="makespan"), jobs) == {"short": {fast}, "long": {slow}}
    assert kept_off(given(case, jobs[1:], policy="makespan"), jobs[1:]) == {"long": {slow}}


def test_under_makespan_the_job_that_others_wait_for_has_the_fast_machine(case: DecisionCase) -> None:
    case.offer("slow", 1.0)
    fast = case.offer("fast", 5.0, gpu="SIM-L")
    rates = {"SIM-M": 1.0, "SIM-L": 2.0}
    jobs = [job(case, "head", hours=20, rates=rates), job(case, "alone", hours=30, rates=rates)]
    tail = job(case, "tail", hours=40, rates=rates)
    quotas = quota(1, "slow"), replace(quota(1, "fast"), name="fast ones")
    later = Later([tail], {tail.job.id: (jobs[0].job.id,)})
    found = given(case, jobs, *quotas, policy="makespan", later=later)
    assert fast not in kept_off(found, jobs)["head"]
    assert fast in kept_off(found, jobs)["alone"]
    found = given(case, jobs, *quotas, policy="makespan")
    assert fast in kept_off(found, jobs)["head"]


@pytest.mark.parametrize("policy", GROUP_POLICIES)
def test_a_job_has_its_turn_if_one_that_waits_for_it_would_be_late_otherwise(
    case: DecisionCase, policy: GroupPolicy
) -> None:
    only = case.offer("only", 1.0)
    jobs = [job(case, "other", hours=9.0), job(case, "first", hours=10.0)]
    last = job(case, "last", hours=10.0, deadline_at_ms=case.now + 21 * HOUR_MS)
    later = Later((last,), {"last": ("first",)})
    found = given(case, jobs, quota(1, "only"), policy=policy, later=later)
    assert kept_off(found, jobs) == {"other": {only}, "first": set()}


@pytest.mark.parametrize("policy", GROUP_POLICIES)
def test_a_job_that_hurries_for_another_has_a_machine_that_is_fast_enough(
    case: DecisionCase, policy: GroupPolicy
) -> None:
    """By itself it would take the cheap one."""
    cheap, _ = case.offer("cheap", 1.0), case.offer("fast", 9.0, gpu="SIM-L")
    rates = {"SIM-M": 1.0, "SIM-L": 2.0}
    jobs = [job(case, "first", hours=10.0, rates=rates), job(case, "other", hours=9.0, rates=rates)]
    last = job(case, "last", hours=10.0, rates=rates, deadline_at_ms=case.now + 11 * HOUR_MS)
    later = Later((last,), {"last": ("first",)})
    found = given(case, jobs, quota(1, "cheap"), replace(quota(1, "fast"), name="fast"), policy=policy, later=later)
    assert kept_off(found, jobs)["first"] == {cheap}


@pytest.mark.parametrize(("budget", "hurries"), [("30.00", False), ("90.00", True)])
@pytest.mark.parametrize("policy", GROUP_POLICIES)
def test_a_job_hurries_for_another_only_with_what_its_own_budget_surely_pays_for(
    case: DecisionCase, policy: GroupPolicy, budget: str, hurries: bool
) -> None:
    """It costs about $10 on the cheap machine and $45 on the fast one."""
    cheap, fast = case.offer("cheap", 1.0), case.offer("fast", 9.0, gpu="SIM-L")
    rates = {"SIM-M": 1.0, "SIM-L": 2.0}
    first = job(case, "first", hours=10.0, rates=rates, budget_nano_usd=usd(budget))
    jobs = [first, job(case, "other", hours=9.0, rates=rates)]
    last = job(case, "last", hours=10.0, rates=rates, deadline_at_ms=case.now + 11 * HOUR_MS)
    later = Later((last,), {"last": ("first",)})
    quotas = quota(1, "cheap"), replace(quota(1, "fast"), name="fast")
    found = given(case, jobs, *quotas, policy=policy, later=later)
    if hurries:
        assert kept_off(found, jobs)["first"] == {cheap}
    else:
        patient = replace(last, job=replace(last.job, spec=replace(last.job.spec, deadline_at_ms=None)))
        assert found == given(case, jobs, *quotas, policy=policy, later=replace(later, demands=(patient,)))
    market = Market.as_of(case.now, offers=case.offers, prices=case.prices, startup_s={"local": 0.0})
    asked_now = asked(jobs, market, case.perf())
    in_time = in_time_for_what_follows(asked_now, asked((*jobs, last), market, case.perf()), later.after)
    assert (in_time.jobs.deadline_s[0] < np.inf) == hurries
    assert hurries == bool(asked_now.paid[0, asked_now.ids.index(fast)])


def test_a_job_does_not_hurry_for_one_that_is_late_anyway(case: DecisionCase) -> None:
    only = case.offer("only", 1.0)
    jobs = [
        job(case, "due", hours=9.0, deadline_at_ms=case.now + 10 * HOUR_MS),
        job(case, "first", hours=10.0),
    ]
    last = job(case, "last", hours=10.0, deadline_at_ms=case.now + 21 * HOUR_MS)
    later = Later((last,), {"last": ("first",)})
    assert kept_off(given(case, jobs, quota(1, "only"), later=later), jobs) == {"due": set(), "first": {only}}


@pytest.mark.parametrize("policy", GROUP_POLICIES)
def test_jobs_that_would_be_late_together_have_the_machine_before_any_of_them_would_be_alone(
    case: DecisionCase, policy: GroupPolicy
) -> None:
    only = case.offer("only", 1.0)
    for hours, given_way in ((35, False), (26, True), (20, True)):  # in time; hardly; one of the three is late
        due_ms = case.now + hours * HOUR_MS
        jobs = [job(case, "runs"), *[job(case, name, hours=8.0, deadline_at_ms=due_ms) for name in "abc"]]
        found = given(case, jobs, quota(1, "only", used=1), policy=policy, on={"runs": only}, least_s=float("inf"))
        assert found is not None
        assert (found.give_way == ("runs",)) == given_way, hours


@pytest.mark.parametrize("policy", GROUP_POLICIES)
def test_a_job_with_the_nearer_deadline_keeps_its_machine_though_another_has_less_time_to_spare(
    case: DecisionCase, policy: GroupPolicy
) -> None:
    only = case.offer("only", 1.0)
    jobs = [
        job(case, "nearer", hours=0.5, deadline_at_ms=case.now + 3 * HOUR_MS),
        job(case, "later", hours=8.0, deadline_at_ms=case.now + 9 * HOUR_MS),
    ]
    quotas = quota(1, "only", used=1)
    found = given(case, jobs, quotas, policy=policy, on={"nearer": only}, least_s=float("inf"))
    assert found is not None
    assert (found.has_turn, found.give_way) == (("nearer",), ())


@pytest.mark.parametrize("policy", GROUP_POLICIES)
def test_a_job_whose_machine_is_too_slow_for_its_deadline_has_a_faster_one_in_time(
    case: DecisionCase, policy: GroupPolicy
) -> None:
    slow, fast = case.offer("slow", 1.0), case.offer("fast", 2.0, gpu="SIM-L")
    rates = {"SIM-M": 1.0, "SIM-L": 2.0}
    jobs = [
        job(case, "other", hours=100.0, rates=rates),
        job(case, "due", hours=10.0, rates=rates, deadline_at_ms=case.now + round(5.4 * HOUR_MS)),
    ]
    quotas = quota(1, "slow", used=1), replace(quota(1, "fast", used=1), name="fast ones")
    found = given(case, jobs, *quotas, policy=policy, on={"other": fast, "due": slow}, least_s=float("inf"))
    assert fast in kept_off(found, jobs)["other"]
    assert fast not in kept_off(found, jobs)["due"]


@pytest.mark.parametrize("policy", GROUP_POLICIES)
def test_a_job_that_is_late_anyway_makes_no_other_late(case: DecisionCase, policy: GroupPolicy) -> None:
    only = case.offer("only", 1.0)
    jobs = [
        job(case, "due", hours=5.0, deadline_at_ms=case.now + 9 * HOUR_MS),
        job(case, "late", hours=5.0, deadline_at_ms=case.now + 2 * HOUR_MS),
        job(case, "other"),
    ]
    due, late = (
        given(case, jobs, quota(1, "only", used=1), policy=policy, on={name: only}, least_s=float("inf"))
        for name in ("due", "other")
    )
    assert due is not None
    assert due.give_way == ()
    assert late is not None
    assert late.give_way == ("other",)
