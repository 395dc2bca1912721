"""Same inputs, byte-identical Plan, whatever their order; and the plan tells what it was made from."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from orchestrator.model import FASTEST, Objective
from orchestrator.policy import Demand, Running, decide
from providers.money import usd

STEPS = 36_000


@pytest.fixture
def crowd(case):
    """3 jobs, 36 offers, some history."""
    chance = random.Random(7)
    for region in ("eu-1", "eu-2", "us-1"):
        for gpu, dollars in (("SIM-S", 0.5), ("SIM-M", 1.0), ("SIM-L", 2.0)):
            for number in range(2):
                for spot in (False, True):
                    price = dollars * chance.uniform(0.8, 1.2) * (0.4 if spot else 1)
                    case.offer(f"{gpu.lower()}-{number}", round(price, 4), gpu=gpu, region=region, spot=spot)
    offers = [offer.id for offer in case.offers]
    case.happened(offers[3], "refused", 5)
    case.happened(offers[5], "launched", 300)
    case.happened(offers[5], "lost", 5)
    rates = {"SIM-M": 1.0, "SIM-L": 1.9}
    demands = [
        Demand(case.job("job_a", rates=rates), STEPS, 100, usd(1), 10**8),
        Demand(case.job("job_b", rates=rates, deadline_s=15 * 3600), STEPS),
        Demand(case.job("job_c", rates={}, objective=Objective(0.5, 0.5), budget_nano_usd=usd(300)), STEPS),
    ]
    return case, demands, {"job_a": Running(offers[0], case.now - 10**8)}


def test_the_order_of_inputs_does_not_matter(crowd):
    case, demands, running = crowd
    plan = decide(demands, case.market(), case.perf(), running)
    chance = random.Random(1)
    for _ in range(5):
        for inputs in (demands, case.offers, case.prices, case.seen, case.observations):
            chance.shuffle(inputs)
        again = decide(demands, case.market(), case.perf(), running)
        assert repr(again) == repr(plan)
        assert again.id == plan.id


def test_a_plan_has_a_placement_per_job_in_order_and_says_that_it_is_simulated(crowd):
    case, demands, running = crowd
    plan = decide(demands, case.market(), case.perf(), running, complete=True)
    assert [p.job_id for p in plan.placements] == ["job_a", "job_b", "job_c"]
    assert plan.simulated
    assert plan.at_ms == case.now
    assert plan.market_digest == case.market().digest
    assert plan.id.startswith("plan_")
    for placement in plan.placements:
        assert len(placement.alternatives) == 36
        assert sum(not a.reason for a in placement.alternatives) == 1
        assert placement.alternatives[0].offer_id == placement.offer_id


def test_another_price_is_another_plan(crowd):
    case, demands, running = crowd
    plan = decide(demands, case.market(), case.perf(), running)
    case.price(case.offers[0].id, 77)
    assert decide(demands, case.market(), case.perf(), running).id != plan.id


@pytest.mark.parametrize("state", ["paused", "pausing", "cancelling", "finished", "failed", "cancelled"])
def test_a_job_that_is_not_to_run_is_left_alone(case, state):
    case.offer("a", 1)
    demand = Demand(replace(case.job(), state=state), STEPS)
    placement = case.decide(demand)
    assert (placement.action, placement.offer_id, placement.reason) == ("none", None, f"the job is {state}")


def test_a_job_with_nothing_left_to_do_stays_where_it_is(case, settled):
    here = case.offer("a", 1)
    case.offer("b", 0.1)
    assert case.decide(Demand(case.job(objective=FASTEST), STEPS, STEPS), settled(here)).action == "stay"


def test_a_plan_of_real_offers_is_not_simulated(case):
    case.offer("a", 1, provider="aws", gpu="T4")
    plan = decide([Demand(case.job(), STEPS)], case.market(), case.perf(), {})
    assert not plan.simulated
