"""Jobs that a joint plan puts on spot machines which their own decision refuses: a loss would make them late."""

from __future__ import annotations

import pytest

from orchestrator.policy import Demand, MoveLimits
from orchestrator.policy.groups.course import course
from orchestrator.policy.groups.planning import asked, joint
from orchestrator.policy.groups.spot_risk import Refused, refused_alone
from tests.unit.policy.conftest import DecisionCase

HOUR_STEPS = 3600


def refused(case: DecisionCase, hours: float) -> tuple[tuple[Refused, ...], float, str | None]:
    """(jobs that refuse their offer of the joint plan, its cost, the offer of the job alone) for ten hours of work."""
    demand = Demand(case.job(f"job-{hours:g}", deadline_s=hours * 3600), 10 * HOUR_STEPS)
    market, perf = case.market(), case.perf()
    question = asked([demand], market, perf)
    unfolded = course(question, "cheapest", joint(question, "cheapest"))
    found = refused_alone([demand], market, perf, unfolded, limits=MoveLimits())
    return found, unfolded.cost_usd, case.decide(demand).offer_id


def test_a_job_without_time_to_lose_a_spot_machine_is_named_with_its_cost_alone(case: DecisionCase) -> None:
    spot, bought = case.offer("spot", 0.3, spot=True), case.offer("bought", 1.0)
    (tight,), cost_usd, alone = refused(case, 10.8)
    assert alone == bought
    assert tight.job_id == "job-10.8"
    assert cost_usd == pytest.approx(3.0, rel=0.05)
    assert tight.alone_usd == pytest.approx(10.1, rel=0.05)
    none, _, alone = refused(case, 40)
    assert none == ()
    assert alone == spot


def test_a_job_that_starts_after_others_has_only_the_time_after_them(case: DecisionCase) -> None:
    spot, bought = case.offer("spot", 0.3, spot=True), case.offer("bought", 1.0)
    demands = [Demand(case.job("first"), 10 * HOUR_STEPS), Demand(case.job("then", deadline_s=21.2 * 3600), 36_000)]
    market, perf = case.market(), case.perf()
    question = asked(demands, market, perf)
    unfolded = course(question, "cheapest", joint(question, "cheapest"), after={"then": ("first",)})
    (then,) = refused_alone(demands, market, perf, unfolded, limits=MoveLimits())
    assert then.job_id == "then"
    left_h = 21.2 - unfolded.jobs[1].ready_s / 3600
    assert case.decide(Demand(case.job("alone", deadline_s=left_h * 3600), 36_000)).offer_id == bought
    assert unfolded.jobs[1].parts[0].offer_id == spot


def test_a_spot_machine_that_is_only_fast_enough_for_a_part_of_the_work_is_not_named(case: DecisionCase) -> None:
    """Ten hours of work there, eight until the deadline: not its loss, but its speed makes the job late."""
    case.offer("slow", 0.3, spot=True)
    case.offer("fast", 2.0, gpu="SIM-L")
    demand = Demand(case.job("mixed", rates={"SIM-M": 1.0, "SIM-L": 2.0}, deadline_s=8 * 3600), 10 * HOUR_STEPS)
    market, perf = case.market(), case.perf()
    question = asked([demand], market, perf)
    unfolded = course(question, "cheapest", joint(question, "cheapest"))
    assert len(unfolded.jobs[0].parts) == 2
    assert refused_alone([demand], market, perf, unfolded, limits=MoveLimits()) == ()
