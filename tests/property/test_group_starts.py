"""Joint plans count each job's first start: by the figures that a plan shows, no plan with fewer offers is cheaper."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import InfeasibleError
from orchestrator.market import Listing, Market, rooms
from orchestrator.policy import Demand
from orchestrator.policy.groups.course import Course, course
from orchestrator.policy.groups.planning import Joint, asked, joint
from providers.base import Covered, Quota
from providers.offer import Offer
from tests.unit.policy.conftest import DecisionCase

GPUS = ("SIM-S", "SIM-M", "SIM-L")
SEEDS = st.integers(0, 100_000)
PRECISE = 2e-4
"""Smaller shares of a plan are left out as rounding errors of the solver."""


class Drawn:
    """Random offers of two clouds whose machines start in different times, and jobs from seconds to days."""

    def __init__(self, seed: int, jobs: int, *, hurried: bool = False) -> None:
        chance = np.random.default_rng(seed)
        self.case = case = DecisionCase()
        for number in range(int(chance.integers(2, 7))):
            gpu, dollars = str(chance.choice(GPUS)), float(10 ** chance.uniform(-1.5, 1))
            case.offer(f"type-{number}", dollars, gpu=gpu, provider=str(chance.choice(["aws", "gcp"])))
        self.starts_s = {cloud: float(chance.choice([0.0, 20.0, 300.0, 3000.0])) for cloud in ("aws", "gcp")}
        self.demands = []
        for number in range(jobs):
            rates = dict(zip(GPUS, chance.uniform(0.2, 5, len(GPUS)).tolist(), strict=True))
            steps = round(10 ** chance.uniform(0.5, 5))
            due_s = 5000 + steps * float(chance.uniform(0.5, 4)) if hurried else None
            job = case.job(f"job-{number}", rates=rates, deadline_s=due_s)
            self.demands.append(Demand(job, steps, setup_s=float(chance.choice([0.0, 60.0]))))
        self.quotas = {
            cloud: [Quota("all", "eu-1", int(chance.integers(1, 4)), 0, Covered("machines"))]
            for cloud in ("aws", "gcp")
        }

    def planned(self, offers: list[Offer], *, scarce: bool = False) -> tuple[Joint, Course]:
        case, listing = self.case, Listing.of(offers)
        limits = rooms(listing, self.quotas) if scarce else {}
        market = Market.as_of(case.now, offers=listing, prices=case.prices, startup_s=self.starts_s, rooms=limits)
        question = asked(self.demands, market, case.perf())
        plan = joint(question, "cheapest")
        return plan, course(question, "cheapest", plan)


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, hurried=st.booleans())
def test_no_single_offer_is_cheaper_than_all_offers(seed: int, hurried: bool) -> None:
    drawn = Drawn(seed, 1, hurried=hurried)
    try:
        plan, unfolded = drawn.planned(drawn.case.offers)
    except InfeasibleError:
        return
    assert unfolded.cost_usd == pytest.approx(plan.cost_usd)
    for offer in drawn.case.offers:
        try:
            alone, _ = drawn.planned([offer])
        except InfeasibleError:
            continue
        assert plan.cost_usd <= alone.cost_usd * (1 + PRECISE)


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, jobs=st.integers(1, 6), scarce=st.booleans())
def test_what_is_certified_is_what_the_plan_shows(seed: int, jobs: int, scarce: bool) -> None:
    drawn = Drawn(seed, jobs)
    plan, _ = drawn.planned(drawn.case.offers, scarce=scarce)
    assert plan.gap < 1e-5
    assert plan.cost_usd == pytest.approx(plan.value, rel=PRECISE)
    assert plan.cost_usd >= plan.bound * (1 - PRECISE)
