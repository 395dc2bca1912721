"""Deadlines and budgets in plans: what is said of a chosen offer is of one piece, and more money never makes a job's
limits less certain."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from functools import cache

import pytest

from orchestrator.model import CHEAPEST, FASTEST, Placement
from orchestrator.policy import Demand, Running
from tests.unit.policy.conftest import HOUR, DecisionCase

SPEEDS = {"K80": 1.0, "V100": 3.0, "A100-80GB": 6.0, "H100": 12.0}  # steps per second
USD = {"K80": 0.9, "V100": 3.06, "A100-80GB": 4.0, "H100": 9.0}  # per hour
CASES = 400


class Scene(DecisionCase):
    """One to four kinds of machines in up to three regions, spot and on demand; some spot pools are shut, some speeds
    are not known. A job with limits from hopeless to ample."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        draw = random.Random(seed)
        kinds = list(SPEEDS)[: draw.randint(1, 4)]
        for gpu in kinds:
            for region in ("us-east-1", "eu-west-1", "us-west-2")[: draw.randint(1, 3)]:
                dollars = USD[gpu] * draw.uniform(0.5, 1.5)
                self.offer("t." + gpu, dollars, gpu=gpu, provider="aws", region=region)
                share = draw.uniform(0.1, 1.1)
                spot = self.offer("t." + gpu, dollars * share, gpu=gpu, spot=True, provider="aws", region=region)
                if draw.random() < 0.3:
                    for _ in range(3):
                        self.happened(spot, draw.choice(["refused", "lost"]), draw.uniform(1, 600))
        rates = {gpu: SPEEDS[gpu] * draw.choice([0.5, 1, 2]) for gpu in kinds if draw.random() < 0.85}
        hours = draw.choice([None, None, 1, 10, 30, 100, 1000])
        job = self.job(
            rates=rates,
            objective=draw.choice([CHEAPEST, FASTEST]),
            probe=False,
            deadline_at_ms=None if hours is None else self.now + hours * HOUR,
        )
        steps = draw.choice([1000, 360_000, 3_000_000])
        self.demand = Demand(job, steps, checkpoint_bytes=draw.choice([0, 10**9, 4 * 10**12]), checkpoint_s=30.0)

    def with_budget(self, nano_usd: int) -> Placement:
        job = self.demand.job
        return self.decide(replace(self.demand, job=replace(job, spec=replace(job.spec, budget_nano_usd=nano_usd))))


@cache
def placed() -> list[tuple[int, Scene, int, Placement]]:
    """(seed, scene, budget, placement) of the cases in which the job begins on a machine. Budgets are near what the
    job costs on one of the offers."""
    found = []
    for seed in range(CASES):
        scene, draw = Scene(seed), random.Random(seed)
        costs = [each.cost_nano_usd for each in scene.decide(scene.demand).alternatives if each.cost_nano_usd]
        budget = round(draw.choice(costs or [1]) * draw.uniform(0.85, 1.25))
        placement = scene.with_budget(budget)
        if placement.action == "place":
            found.append((seed, scene, budget, placement))
    return found


def test_a_budget_that_is_likely_to_be_kept_is_in_the_interval_of_the_cost() -> None:
    likely = 0
    for seed, _, budget, placement in placed():
        chosen = next(each for each in placement.alternatives if each.offer_id == placement.offer_id)
        if placement.chance is None or placement.chance < 0.15 or chosen.cost_low_nano_usd is None:
            continue
        likely += 1
        low = chosen.cost_low_nano_usd
        if "is measured before" in placement.reason:  # the chance is that of buying on-demand then
            bought = [each.cost_low_nano_usd for each in placement.alternatives if "on_demand" in each.offer_id]
            low = min(each for each in bought if each is not None)
        assert low <= budget, (seed, placement.reason)
    assert likely > 10


def test_a_job_that_is_said_to_be_in_time_is_expected_before_its_deadline() -> None:
    sure = 0
    for seed, scene, _, placement in placed():
        due_ms = scene.demand.job.deadline_at_ms
        chosen = next(each for each in placement.alternatives if each.offer_id == placement.offer_id)
        in_time = placement.chance is None and "before the deadline" in placement.reason
        if due_ms is not None and in_time and chosen.duration_s is not None:
            sure += 1
            assert chosen.duration_s * 1000 <= due_ms - scene.now, (seed, placement.reason)
    assert sure > 10


def test_a_late_job_is_expected_within_its_budget_where_an_offer_surely_is() -> None:
    """Nor is it said to finish first where another offer does."""
    late = 0
    for seed, _, budget, placement in placed():
        if "the deadline cannot be met" not in placement.reason or placement.cost_nano_usd is None:
            continue
        late += 1
        chosen, *others = (each for each in placement.alternatives if each.duration_s is not None)
        if any(each.feasible and (each.cost_high_nano_usd or 0) < budget for each in others):
            assert placement.cost_nano_usd <= budget, (seed, placement.reason)
        refused = [each for each in others if not each.feasible and "budget" in each.reason]
        sooner = any((each.duration_s or 0.0) < 0.97 * (chosen.duration_s or 0.0) for each in refused)
        limited = re.search(r"earliest finish (within|that may stay within) the budget", placement.reason)
        assert limited or not sooner, (seed, placement.reason)
    assert late > 10


def test_a_rejected_offer_is_said_to_be_as_late_and_as_expensive_as_is_shown_of_it() -> None:
    found, unit_s = {"late": 0, "dear": 0}, {"s": 1, "min": 60, "h": 3600, "days": 86_400, "years": 365.25 * 86_400}
    said_late = re.compile(r"(?<!could )finish ([\d.,]+) (s|min|h|days|years) after the deadline(?! without)")
    for seed in range(CASES):
        scene, draw = Scene(seed), random.Random(seed)
        costs = [each.cost_nano_usd for each in scene.decide(scene.demand).alternatives if each.cost_nano_usd]
        budget, due_ms = round(min(costs or [1]) * draw.uniform(0.3, 1.1)), scene.demand.job.deadline_at_ms
        for each in scene.with_budget(budget).alternatives:
            late = said_late.search(each.reason)
            if late and due_ms is not None:
                found["late"] += 1
                said_s, unit = float(late[1].replace(",", "")) * unit_s[late[2]], unit_s[late[2]]
                assert each.duration_s is not None
                assert said_s == pytest.approx(each.duration_s - (due_ms - scene.now) / 1000, abs=0.51 * unit), seed
            expensive = re.search(r"would cost \$([\d.,]+) over the budget", each.reason)
            if expensive:
                found["dear"] += 1
                assert each.cost_nano_usd is not None
                over = float(expensive[1].replace(",", "")) * 1e9
                assert over == pytest.approx(each.cost_nano_usd - budget, rel=1e-3, abs=5.1e6), seed
    assert min(found.values()) > 50, found


@pytest.mark.parametrize("factor", [1.15, 2.0])
def test_more_money_never_makes_the_limits_less_certain(factor: float) -> None:
    for seed, scene, budget, placement in placed():
        richer = scene.with_budget(round(budget * factor))
        before, after = (1.0 if each.chance is None else each.chance for each in (placement, richer))
        assert after > before - 0.06, (seed, placement.reason, richer.reason)


def test_no_reason_has_a_negative_figure() -> None:
    negative = re.compile(r"-\$|(?<![\w.])-\d|\$-|\bnan\b|\binf\b")
    for seed in range(CASES):
        scene, draw = Scene(seed), random.Random(seed)
        offer = draw.choice(scene.offers).id
        where = Running(offer, scene.now - round(draw.choice([0.01, 2, 50]) * HOUR))
        for placement in (scene.decide(scene.demand), scene.decide(replace(scene.demand, done_steps=100), where)):
            reasons = [placement.reason, *(each.reason for each in placement.alternatives)]
            assert not [reason for reason in reasons if negative.search(reason)], seed
