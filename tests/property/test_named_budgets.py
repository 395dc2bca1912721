"""A budget that is named as enough is enough: at no step does the control plane pause the job that has it."""

from __future__ import annotations

import random

import pytest

from orchestrator.engine.billing.accrue import reserve_nano_usd
from orchestrator.engine.billing.spending_limits import Coming, reserved
from orchestrator.engine.inputs.reserves import LOOK_EVERY_S, poll_every_wall_s, reserve_of
from orchestrator.policy import Demand, MoveLimits
from orchestrator.policy.decide import considered
from orchestrator.policy.needed_budget import needed_budgets
from orchestrator.policy.ranking.eligible import Filter
from providers.money import usd
from tests.unit.policy.conftest import DecisionCase


@pytest.mark.parametrize("seed", range(300))
def test_a_job_with_the_budget_named_is_paused_at_no_step(seed: int) -> None:
    """It costs what it does at the 95th percentile. Prices were polled up to one poll and its answer ago."""
    draw = random.Random(seed)
    case, spot = DecisionCase(), draw.random() < 0.8
    case.offer("only", draw.choice([0.1, 1.0, 9.0, 80.0]), spot=spot)
    rate, factor = 10 ** draw.uniform(-3, 2), draw.choice([1.0, 60.0, 360.0])
    steps = max(round(rate * 10 ** draw.uniform(1, 6)), 1)
    spent = draw.choice([0, round(10 ** draw.uniform(6, 12))])
    job = case.job(rates={"SIM-M": rate}, budget_nano_usd=usd(1))
    demand = Demand(job, steps, spent_nano_usd=spent, reserve=reserve_of((), factor))
    market, perf = case.market(), case.perf()
    budget = needed_budgets([demand], market, perf, limits=MoveLimits())[job.id].enough_cents * usd("0.01")

    _, forecast = considered(demand, Filter(market, MoveLimits()), market, perf, None, None)
    whole_s, whole = float(forecast.high.billed_s[0]), float(forecast.high.cost[0])
    step_s, per_hour = 1 / forecast.throughput(0).low, round(float(forecast.high.price_s[0]) * 3600)
    for done in (0.0, draw.random(), 1 - 10 ** draw.uniform(-6, 0), 1.0):
        unheard_s = min(2 * poll_every_wall_s(factor) * factor, done * whole_s) * spot
        now = reserved(
            factor,
            spent + int(done * whole),
            per_hour,
            reserve_nano_usd(per_hour, unheard_s),
            per_hour * spot,
            budget,
            Coming(),
            step_wall_s=step_s / factor,
            look_every_s=LOOK_EVERY_S,
        )
        assert not now.nearly_used_up(budget - 1), f"paused when {done:.3%} of {steps} steps are done"
