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
