"""Simulated and real prices are never weighed against each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.model import Where
from orchestrator.policy import Demand, Running
from tests.unit.policy.conftest import DecisionCase


@pytest.fixture
def offers(case: DecisionCase) -> tuple[str, str]:
    """The simulated one is far cheaper."""
    return case.offer("sim", 0.01, gpu="V100"), case.offer("real", 3.06, gpu="V100", provider="aws")


def test_a_new_job_takes_real_offers_where_it_may_use_one(case: DecisionCase, offers: tuple[str, str]) -> None:
    simulated, real = offers
    placed = case.decide(Demand(job=case.job(), total_steps=1000))
    assert placed.offer_id == real
    reasons = {each.offer_id: each.reason for each in placed.alternatives}
    assert reasons[simulated] == "simulated, and not compared with real offers (where.clouds selects it)"
    assert [each.topic for each in placed.rejected] == ["simulated or real"]
    assert placed.baseline is not None
    assert placed.baseline.offer_id == real


def test_it_takes_simulated_ones_where_its_job_file_leaves_no_real_one(
    case: DecisionCase, offers: tuple[str, str]
) -> None:
    simulated, real = offers
    placed = case.decide(Demand(job=case.job(where=Where(clouds=("local",))), total_steps=1000))
    assert placed.offer_id == simulated
    reasons = {each.offer_id: each.reason for each in placed.alternatives}
    assert reasons[real] == "cloud aws is excluded by where.clouds"


def test_a_job_stays_in_the_market_where_it_began(case: DecisionCase, offers: tuple[str, str]) -> None:
    simulated, real = offers
    demand = Demand(job=case.job(), total_steps=1000)
    running = case.decide(demand, Running(simulated, case.now))
    lost = case.decide(replace(demand, done_steps=5, checkpoint_at=("local", "eu-1")))
    for placed in (running, lost):
        assert placed.offer_id == simulated
        reasons = {each.offer_id: each.reason for each in placed.alternatives}
        assert reasons[real] == "real, and not compared with the simulated offers that the job has used"
    assert case.decide(demand, Running(real, case.now)).offer_id == real


def test_one_market_alone_is_not_asked_about_the_other(case: DecisionCase) -> None:
    simulated = case.offer("sim", 0.01, gpu="V100")
    demand = Demand(job=case.job(), total_steps=1000, checkpoint_at=("aws", "eu-1"))
    assert case.decide(demand).offer_id == simulated
