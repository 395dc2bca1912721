"""A joint plan of a group on a market: who runs where, at what cost, and what a quota is worth."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.errors import InfeasibleError
from orchestrator.market import Listing, Market, rooms
from orchestrator.model import GROUP_POLICIES, GroupPolicy
from orchestrator.policy import Demand, Running
from orchestrator.policy.groups.course import course
from orchestrator.policy.groups.order import NO_ORDER, Order
from orchestrator.policy.groups.planning import Joint, asked, joint
from orchestrator.policy.groups.quota_value import QuotaValue, quota_values
from providers.base import Covered, Quota
from tests.unit.policy.conftest import DecisionCase

HOUR_STEPS = 3600  # at one step per second


@pytest.fixture
def case() -> DecisionCase:
    return DecisionCase(startup_s=0.0)


def quota(limit: int, *types: str, used: int = 0, unit: str = "machines") -> Quota:
    return Quota("machines", "eu-1", limit, used, Covered(unit, instance_types=types))  # type: ignore[arg-type]


def market_of(case: DecisionCase, *quotas: Quota) -> Market:
    listing = Listing.of(case.offers)
    return Market.as_of(
        case.now, offers=listing, prices=case.prices, startup_s={"local": 0.0}, rooms=rooms(listing, {"local": quotas})
    )


def planned(
    case: DecisionCase,
    jobs: int | list[Demand],
    *quotas: Quota,
    policy: GroupPolicy = "cheapest",
    running: dict[str, Running] | None = None,
) -> Joint:
    demands = [job(case, n) for n in range(jobs)] if isinstance(jobs, int) else jobs
    market = market_of(case, *quotas)
    question = asked(demands, market, case.perf(), running or {})
    return joint(question, policy, running or {})


def valued(
    case: DecisionCase,
    jobs: list[Demand],
    *quotas: Quota,
    policy: GroupPolicy = "cheapest",
    after: Order = NO_ORDER,
) -> list[QuotaValue]:
    market, perf = market_of(case, *quotas), case.perf()
    question = asked(jobs, market, perf)
    plan = joint(question, policy, after=after)
    unfolded = course(question, policy, plan, after=after)
    return list(quota_values(jobs, market, perf, policy, plan, unfolded, after=after))


def shares(found: Joint) -> list[dict[str, float]]:
    return [{part.offer_id: part.share for part in each.parts} for each in found.jobs]


def job(case: DecisionCase, number: int, *, steps: int | None = HOUR_STEPS, **spec: object) -> Demand:
    return Demand(case.job(f"job-{number}", **spec), steps)  # type: ignore[arg-type]


def test_without_quotas_each_job_takes_the_cheapest_way(case: DecisionCase) -> None:
    cheap = case.offer("cheap", 1.0)
    case.offer("dear", 5.0)
    found = planned(case, 3)
    assert [[part.offer_id for part in each.parts] for each in found.jobs] == [[cheap]] * 3
    assert found.cost_usd == pytest.approx(3.0, rel=0.02)
    assert [each.duration_s for each in found.jobs] == pytest.approx([3600] * 3, rel=0.02)
    assert found.gap < 1e-6


def test_with_a_deadline_for_all_a_quota_is_shared_and_its_worth_is_the_difference_in_price(case: DecisionCase) -> None:
    cheap = case.offer("cheap", 1.0)
    case.offer("dear", 5.0)
    jobs = [job(case, number, deadline_s=3600.0) for number in range(2)]
    found = planned(case, jobs, quota(1, "cheap"))
    assert sum(each.get(cheap, 0.0) for each in shares(found)) == pytest.approx(1.0, abs=1e-3)
    assert found.cost_usd == pytest.approx(6.0, rel=0.02)
    (worth,) = valued(case, jobs, quota(1, "cheap"))
    assert (worth.quota[1].limit, worth.more) == (1, 1)
    assert worth.saving_usd == pytest.approx(4.0, rel=0.02)
    assert valued(case, jobs, quota(2, "cheap")) == []


def test_without_a_deadline_nothing_is_bought_to_be_done_sooner(case: DecisionCase) -> None:
    cheap = case.offer("cheap", 1.0)
    case.offer("dear", 5.0)
    jobs = [job(case, number) for number in range(2)]
    found = planned(case, jobs, quota(1, "cheap"))
    assert [set(each) for each in shares(found)] == [{cheap}] * 2
    assert found.cost_usd == pytest.approx(2.0, rel=0.02)
    assert max(each.duration_s for each in found.jobs) == pytest.approx(7200, rel=0.02)
    (worth,) = valued(case, jobs, quota(1, "cheap"))
    assert worth.saving_usd == pytest.approx(0.0, abs=1e-3)
    assert worth.sooner_s == pytest.approx(3600, rel=0.02)


def test_a_quota_is_worth_only_what_the_order_of_the_jobs_leaves(case: DecisionCase) -> None:
    """One after the other, two jobs need no second machine."""
    case.offer("cheap", 1.0)
    jobs = [job(case, number) for number in range(2)]
    (worth,) = valued(case, jobs, quota(1, "cheap"), policy="makespan")
    assert worth.sooner_s == pytest.approx(3600, rel=0.02)
    one, two = (each.job.id for each in jobs)
    assert valued(case, jobs, quota(1, "cheap"), policy="makespan", after={two: (one,)}) == []


def test_a_quota_that_others_use_up_is_worth_something_too(case: DecisionCase) -> None:
    case.offer("cheap", 1.0)
    case.offer("dear", 5.0)
    jobs = [job(case, 0)]
    (worth,) = valued(case, jobs, quota(2, "cheap", used=2))
    assert worth.saving_usd == pytest.approx(4.0, rel=0.02)


def test_the_cheap_machine_goes_first_to_the_job_that_saves_more_there(case: DecisionCase) -> None:
    """An hour of it saves the short job more than the long one, which has it when the short one has ended."""
    cheap = case.offer("cheap", 1.0)
    expensive = case.offer("dear", 5.0, gpu="SIM-L")
    rates = {"SIM-M": 1.0, "SIM-L": 0.9}
    short = Demand(case.job("short", rates=rates, deadline_s=12 * 3600.0), 10 * HOUR_STEPS)
    long = Demand(case.job("long", rates={**rates, "SIM-L": 1.0}, deadline_s=1001 * 3600.0), 1000 * HOUR_STEPS)
    found = planned(case, [short, long], quota(1, "cheap"))
    assert [max(each, key=lambda offer: each[offer]) for each in shares(found)] == [cheap, expensive]
    assert found.cost_usd == pytest.approx(10 + 991 + 9 * 5, rel=3e-3)


def test_a_job_of_seconds_beside_one_of_days_is_planned(case: DecisionCase) -> None:
    case.offer("cheap", 1.0)
    found = planned(case, [job(case, 0, steps=120 * HOUR_STEPS), job(case, 1, steps=3)])
    assert [sum(each.values()) for each in shares(found)] == pytest.approx([1.0, 1.0])
    assert found.jobs[1].duration_s == pytest.approx(3.0, rel=0.05)
    assert found.jobs[1].cost_usd > 0


def test_a_quota_with_room_for_all_changes_nothing(case: DecisionCase) -> None:
    case.offer("cheap", 1.0)
    jobs = [job(case, 0, steps=100), job(case, 1)]
    assert shares(planned(case, jobs, quota(100, "cheap"))) == shares(planned(case, jobs))


@pytest.mark.parametrize("policy", ["max-throughput", "first-in-first-out", "shortest-job-first"])
def test_a_job_without_a_share_now_has_a_cost_all_the_same(case: DecisionCase, policy: GroupPolicy) -> None:
    case.offer("cheap", 1.0)
    found = planned(case, 3, quota(1, "cheap"), policy=policy)
    assert [each.cost_usd for each in found.jobs] == pytest.approx([1.0] * 3, rel=0.05)


def test_only_one_machine_for_several_jobs_takes_longer_and_costs_the_same(case: DecisionCase) -> None:
    case.offer("cheap", 1.0)
    found = planned(case, 3, quota(1, "cheap"))
    assert found.cost_usd == pytest.approx(3.0, rel=0.02)
    assert max(each.duration_s for each in found.jobs) >= 3 * 3600 * 0.98


def test_units_of_a_quota_may_be_more_than_one_a_machine(case: DecisionCase) -> None:
    cheap = case.offer("cheap", 1.0)  # 4 vCPUs
    case.offer("dear", 5.0)
    jobs = [job(case, number, deadline_s=3600.0) for number in range(2)]
    found = planned(case, jobs, quota(4, "cheap", unit="vcpus"))
    assert sum(each.get(cheap, 0.0) for each in shares(found)) == pytest.approx(1, abs=1e-3)
    (worth,) = valued(case, jobs, quota(4, "cheap", unit="vcpus"))
    assert worth.more == 4
    assert worth.saving_usd == pytest.approx(4.0, rel=0.02)


@pytest.mark.parametrize("policy", GROUP_POLICIES)
def test_every_policy_gives_a_certified_plan(case: DecisionCase, policy: GroupPolicy) -> None:
    case.offer("cheap", 1.0)
    case.offer("dear", 5.0, gpu="SIM-L")
    demands = [Demand(case.job(f"job-{n}", rates={"SIM-M": 1.0, "SIM-L": 2.0 + n}), HOUR_STEPS) for n in range(3)]
    found = planned(case, demands, quota(1, "cheap"), quota(1, "dear"), policy=policy)
    assert found.gap <= 5e-3
    assert len(found.jobs) == 3


def test_equal_offers_leave_jobs_where_they_run(case: DecisionCase) -> None:
    one, two = case.offer("one", 1.0), case.offer("two", 1.0)
    running = {"job-0": Running(two, case.now), "job-1": Running(one, case.now)}
    found = planned(case, 2, running=running)
    assert [[part.offer_id for part in each.parts] for each in found.jobs] == [[two], [one]]


def test_deadlines_decide_who_gets_the_fast_machine(case: DecisionCase) -> None:
    case.offer("slow", 1.0)
    fast = case.offer("fast", 5.0, gpu="SIM-L")
    rates = {"SIM-M": 1.0, "SIM-L": 4.0}
    hurried = Demand(case.job("hurried", rates=rates, deadline_s=1800.0), HOUR_STEPS)
    patient = Demand(case.job("patient", rates=rates), HOUR_STEPS)
    found = planned(case, [hurried, patient], quota(1, "fast"))
    assert found.jobs[0].duration_s <= 1800 * 1.001
    assert fast in {part.offer_id for part in found.jobs[0].parts}


def started(case: DecisionCase, demands: list[Demand], **startup_s: float) -> Joint:
    """The cheapest plan where machines of each provider start in so many seconds."""
    market = Market.as_of(case.now, offers=Listing.of(case.offers), prices=case.prices, startup_s=startup_s)
    return joint(asked(demands, market, case.perf()), "cheapest")


def test_a_short_job_goes_where_it_costs_least_with_its_start(case: DecisionCase) -> None:
    """Steps are cheaper on the fast machine; 100 s of starting cost more there than the whole job on the slow one."""
    slow = case.offer("slow", 1.0)
    fast = case.offer("fast", 3.0, gpu="SIM-L")
    rates = {"SIM-M": 1.0, "SIM-L": 4.0}
    short = Demand(case.job("short", rates=rates), 300)
    long = Demand(case.job("long", rates=rates), 3000)
    found = started(case, [short, long], local=100.0)
    assert [each.parts[0].offer_id for each in found.jobs] == [slow, fast]
    assert found.jobs[0].cost_usd == pytest.approx((300 + 100) / 3600, rel=0.02)
    assert found.jobs[1].cost_usd == pytest.approx(3 * (3000 / 4 + 100) / 3600, rel=0.02)
    assert found.value == pytest.approx(found.cost_usd, rel=1e-4)


def test_of_equal_machines_the_one_that_starts_soon_can_be_cheaper(case: DecisionCase) -> None:
    soon = case.offer("soon", 1.1, provider="aws")
    late = case.offer("late", 1.0, provider="gcp")
    assert started(case, [job(case, 0, steps=600)], aws=60.0, gcp=600.0).jobs[0].parts[0].offer_id == soon
    assert started(case, [job(case, 0, steps=60_000)], aws=60.0, gcp=600.0).jobs[0].parts[0].offer_id == late


def test_the_start_is_paid_once_by_a_job_that_runs_in_two_ways(case: DecisionCase) -> None:
    case.offer("slow", 1.0)
    case.offer("fast", 5.0, gpu="SIM-L")
    hurried = Demand(case.job("hurried", rates={"SIM-M": 1.0, "SIM-L": 4.0}, deadline_s=1900.0), HOUR_STEPS)
    found = started(case, [hurried], local=100.0)
    one, two = found.jobs[0].parts
    assert (one.share + two.share) * 1800 == pytest.approx(1800, rel=1e-3)
    without = (
        (found.jobs[0].duration_s - 100)
        / 3600
        * sum(part.share * (5.0 if "fast" in part.offer_id else 1.0) for part in (one, two))
    )
    assert without + 100 / 3600 * 1.0 < found.jobs[0].cost_usd < without + 100 / 3600 * 5.0


def test_a_job_that_runs_does_not_start_again(case: DecisionCase) -> None:
    """So it stays on the machine where its steps cost least; one that waits pays for a start there."""
    slow = case.offer("slow", 1.0)
    fast = case.offer("fast", 3.0, gpu="SIM-L")
    rates = {"SIM-M": 1.0, "SIM-L": 4.0}
    demands = [Demand(case.job(name, rates=rates), 300) for name in ("runs", "waits")]
    market = Market.as_of(case.now, offers=Listing.of(case.offers), prices=case.prices, startup_s={"local": 100.0})
    running = {"runs": Running(fast, case.now)}
    found = joint(asked(demands, market, case.perf(), running), "cheapest", running)
    assert [each.parts[0].offer_id for each in found.jobs] == [fast, slow]
    assert found.jobs[0].cost_usd == pytest.approx(3 * 300 / 4 / 3600, rel=0.02)


def test_the_start_of_the_offer_that_is_chosen_counts_for_the_deadline(case: DecisionCase) -> None:
    case.offer("cheap", 1.0, provider="aws")
    quick = case.offer("quick", 5.0, provider="gcp")
    hurried = started(case, [job(case, 0, deadline_s=1.1 * 3600)], aws=3600.0, gcp=60.0)
    assert shares(hurried)[0][quick] > 0.8
    assert hurried.jobs[0].duration_s <= 1.1 * 3600 * 1.001
    patient = started(case, [job(case, 1, deadline_s=2.5 * 3600)], aws=3600.0, gcp=60.0)
    assert patient.jobs[0].duration_s == pytest.approx(7200, rel=0.02)


def test_starts_take_the_machines_of_a_quota_when_jobs_have_deadlines(case: DecisionCase) -> None:
    case.offer("cheap", 1.0)

    def jobs(hours: float) -> list[Demand]:
        return [replace(job(case, n, deadline_s=hours * 3600), setup_s=1800.0) for n in range(2)]

    in_time = jobs(3.1)
    question = asked(in_time, market_of(case, quota(1, "cheap")), case.perf())
    unfolded = course(question, "cheapest", joint(question, "cheapest"))
    assert max(each.ends_s for each in unfolded.jobs) <= 3.1 * 3600 * (1 + 1e-3)
    with pytest.raises(InfeasibleError, match="not all deadlines can be met"):
        planned(case, jobs(2.8), quota(1, "cheap"))


def test_a_deadline_that_no_offer_meets_names_the_job(case: DecisionCase) -> None:
    case.offer("slow", 1.0)
    with pytest.raises(
        InfeasibleError, match=r"takes \d+ min on its fastest offer, including its start, but only \d+ min is left"
    ):
        planned(case, [job(case, 0, deadline_s=1800.0)])
    with pytest.raises(InfeasibleError, match=r"its deadline passed 90 s ago, and it takes"):
        planned(case, [job(case, 0, deadline_s=-90.0)])


def test_deadlines_that_quotas_do_not_allow_together_name_the_jobs_and_the_quota(case: DecisionCase) -> None:
    case.offer("slow", 1.0)
    with pytest.raises(InfeasibleError, match=r"deadlines.*machines in eu-1.*job-") as error:
        planned(case, [job(case, 0, deadline_s=4000.0), job(case, 1, deadline_s=4000.0)], quota(1, "slow"))
    assert "--what-if" in error.value.hint


def test_quotas_that_have_no_part_in_a_conflict_are_not_named(case: DecisionCase) -> None:
    case.offer("slow", 1.0)
    case.offer("slower", 1.0, gpu="SIM-L")
    rates = {"SIM-M": 1.0, "SIM-L": 0.1}
    others = replace(quota(9, "slower"), name="others")
    hurried = [job(case, n, deadline_s=4000.0, rates=rates) for n in range(2)]
    for policy in ("cheapest", "max-min-fairness"):
        with pytest.raises(InfeasibleError, match=r"machines in eu-1.*job-") as error:
            planned(case, hurried, quota(1, "slow"), others, policy=policy)
        assert policy != "cheapest" or "others" not in str(error.value)


def test_a_quota_below_the_need_of_one_job_is_named(case: DecisionCase) -> None:
    case.offer("slow", 1.0)
    with pytest.raises(InfeasibleError, match=r"job-0.*your quota"):
        planned(case, 1, quota(0, "slow"))


@pytest.mark.parametrize(("limit", "used", "why"), [(2, 2, "all 2 machines"), (0, 0, "there are 0 machines")])
def test_owned_machines_that_are_in_use_or_too_few_are_named(
    case: DecisionCase, limit: int, used: int, why: str
) -> None:
    case.offer("desk", 1.0)
    with pytest.raises(InfeasibleError, match=f"job-0.*{why}"):
        planned(case, 1, replace(quota(limit, "desk", used=used), owned=True))


def test_jobs_without_speed_or_steps_are_named(case: DecisionCase) -> None:
    case.offer("slow", 1.0)
    with pytest.raises(InfeasibleError, match=r"job-0: no throughput"):
        planned(case, [job(case, 0, rates={})])
    with pytest.raises(InfeasibleError, match=r"job-1: its number of steps"):
        planned(case, [job(case, 1, steps=None)])


def test_fairness_needs_something_that_is_limited(case: DecisionCase) -> None:
    case.offer("slow", 1.0)
    with pytest.raises(InfeasibleError, match="nothing limits"):
        planned(case, 2, policy="max-min-fairness")


def test_the_order_of_the_jobs_does_not_matter(case: DecisionCase) -> None:
    case.offer("cheap", 1.0)
    case.offer("dear", 5.0)
    demands = [replace(job(case, n), total_steps=HOUR_STEPS * (n + 1)) for n in range(3)]
    forward = planned(case, demands, quota(1, "cheap"))
    back = planned(case, demands[::-1], quota(1, "cheap"))
    assert forward.cost_usd == pytest.approx(back.cost_usd, rel=1e-6)
    assert forward.value == pytest.approx(back.value, rel=1e-6)
