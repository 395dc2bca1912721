"""The ranking, `resume` and the control plane agree on which budgets pay for a machine at all."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from orchestrator.engine.billing.accrue import reserve_nano_usd
from orchestrator.engine.billing.spending_limits import Coming, reserved, shortest_nano_usd
from orchestrator.engine.inputs.reserves import LOOK_EVERY_S, release_market_s, reserve_of
from orchestrator.model import CHEAPEST, FASTEST, Objective
from orchestrator.policy import Demand, MoveLimits
from orchestrator.policy.needed_budget import budgets_to_start
from orchestrator.policy.ranking.renting import promised_by_start
from providers.money import usd
from tests.unit.policy.conftest import DecisionCase

GPUS = ("K80", "T4", "V100", "A100-80GB", "H100")


@pytest.mark.parametrize("seed", range(400))
def test_a_job_is_placed_only_where_its_budget_pays_for_a_machine_and_waits_for_money_only_if_it_pays_for_none(
    seed: int,
) -> None:
    draw = random.Random(seed)
    case, factor = DecisionCase(), draw.choice([1.0, 60.0])
    prices = {}
    for number in range(draw.randint(1, 5)):
        provider, dollars, spot = (
            draw.choice(["aws", "gcp", "azure"]),
            draw.choice([0.1, 1.0, 9.0]),
            draw.random() < 0.5,
        )
        dollars *= draw.uniform(0.5, 1.5)
        offer_id = case.offer(f"m{number}", dollars, gpu=draw.choice(GPUS), spot=spot, provider=provider)
        prices[offer_id] = usd(dollars), spot
    shut = {offer_id for offer_id in prices if draw.random() < 0.2}
    for offer_id in shut:
        case.happened(offer_id, "refused", 1)
    rates = {gpu: 10 ** draw.uniform(-2, 1) for gpu in GPUS} if draw.random() < 0.5 else {}
    job = case.job(rates=rates, objective=draw.choice([CHEAPEST, FASTEST, Objective(0.5, 0.5)]))
    spent = draw.choice([0, round(10 ** draw.uniform(6, 11))])
    demand = Demand(job, draw.choice([1, 60, 6000]), spent_nano_usd=spent, reserve=reserve_of((), factor))

    def to_rent(offer_id: str, budget: int) -> bool:
        """As the control plane judges before it rents a machine."""
        price, spot = prices[offer_id]
        release = reserve_nano_usd(price, release_market_s(factor))
        least = int(promised_by_start(shortest_nano_usd(offer_id, price), release, spot))
        coming = Coming(price, price * spot, least)
        then = reserved(factor, spent, 0, 0, 0, budget, coming, step_wall_s=0.0, look_every_s=LOOK_EVERY_S)
        return not then.nearly_used_up(budget)

    least = budgets_to_start([demand], case.market(), case.perf(), limits=MoveLimits())[job.id]
    assert any(to_rent(each, least) for each in prices)
    for budget in (least - 1, least, round(least * draw.uniform(0.5, 4)), spent + usd(draw.uniform(0.001, 2))):
        spec = replace(job.spec, budget_nano_usd=budget)
        placement = case.decide(replace(demand, job=replace(job, spec=spec)))
        assert placement.lacks_money == (budget < least and len(shut) < len(prices)), placement.reason
        assert budget >= least or placement.action == "wait"
        if placement.action == "place":
            assert to_rent(placement.offer_id or "", budget), placement.reason
