"""Where only a job's unknown speed puts its deadline in danger, it is measured on spot before on-demand is bought."""

from __future__ import annotations

import math

import numpy as np
import pytest

from orchestrator.perf import Observation
from orchestrator.policy import Demand, MoveLimits, trace
from orchestrator.policy.ranking.chance import SURER, _poisson
from tests.unit.policy.conftest import HOUR, NOW, DecisionCase

STEPS = 360_000  # 100 h on the K80 at 1 step/s


@pytest.fixture
def offers(case: DecisionCase) -> dict[str, str]:
    prices = {"K80": 0.9, "V100": 3.06}
    found = {}
    for gpu, dollars in prices.items():
        found[gpu] = case.offer(f"one.{gpu}", dollars, gpu=gpu, provider="aws")
        found[f"{gpu} spot"] = case.offer(f"one.{gpu}", dollars / 3, gpu=gpu, spot=True, provider="aws")
    case.observations.append(Observation("job_1", "K80", 1, 1.0, 2209, case.now))
    return found


def due(case: DecisionCase, hours: float) -> Demand:
    return Demand(case.job(rates={}, deadline_at_ms=case.now + round(hours * HOUR)), STEPS, done_steps=100)


def odds(case: DecisionCase, hours: float) -> tuple[str | None, float]:
    placed = case.decide(due(case, hours))
    assert placed.chance is not None
    return placed.offer_id, placed.chance


def test_it_is_measured_on_spot_first_where_that_is_nearly_as_safe(case, offers, settled):
    moved = case.decide(due(case, 30), settled(offers["K80 spot"]))
    assert (moved.action, moved.offer_id) == ("move", offers["V100 spot"])
    assert case.decide(due(case, 30)).reason.endswith("the job's speed is measured before on-demand is rented")
    assert moved.chance is not None
    case.happened(offers["V100 spot"], "refused", 5)
    offer_id, sure = odds(case, 30)
    assert offer_id == offers["V100"]
    assert sure - SURER <= moved.chance <= sure


def test_a_trace_ranks_by_its_values_and_says_that_measuring_first_counts_as_equal(case, offers):
    demand = due(case, 30)
    found = trace(demand, case.market(), case.perf(), None, limits=MoveLimits())
    assert (found.options[0].offer_id, found.options[0].value) == (offers["V100 spot"], 1.0)
    assert all(each.value >= 1.0 for each in found.options)
    assert "is measured" in found.rule
    bought = next(each for each in case.decide(demand).alternatives if each.offer_id == offers["V100"])
    assert "measured" in bought.reason


def test_of_several_such_machines_the_cheapest_is_taken(case, offers):
    cheaper = case.offer("other.V100", 0.8, gpu="V100", spot=True, provider="aws", region="us-east-1")
    assert odds(case, 30)[0] == cheaper


def test_where_measuring_takes_too_much_of_the_time_on_demand_is_bought_at_once(case, offers):
    case.startup_s = 3 * 3600.0
    assert odds(case, 20)[0] == offers["V100"]


def test_a_measured_spot_machine_is_as_unsafe_as_ever(case, offers):
    case.observations.append(Observation("job_1", "V100", 1, 5.0, 2209, case.now))
    placed = case.decide(due(case, 20.9))
    assert placed.offer_id == offers["V100"]


def test_a_job_that_is_to_find_out_its_speed_stays_until_it_is_measured(case, offers, settled):
    """On-demand of the measured kind keeps the deadline meanwhile, whatever is found."""
    where = settled(offers["V100 spot"], came_by="probe", since_ms=NOW - 60_000)
    stays = case.decide(due(case, 107), where)
    assert stays.action == "stay"
    assert case.decide(due(case, 107)).chance is None


def test_a_job_that_cannot_be_measured_in_time_goes_to_on_demand(case, offers, settled):
    """It asks to be decided again when a measurement should have been made."""
    where = settled(offers["V100 spot"], since_ms=NOW - 60_000)
    measuring = case.decide(due(case, 30), where)
    assert (measuring.action, measuring.again_at_ms) == ("stay", where.since_ms + 24 * 60_000)
    late = case.decide(due(case, 30), settled(offers["V100 spot"], since_ms=NOW - 24 * 60_000))
    assert (late.action, late.offer_id) == ("move", offers["V100"])


@pytest.mark.parametrize("hours", [20, 30, 60])
def test_a_job_is_not_measured_on_spot_where_on_demand_of_the_same_machine_costs_less(case, hours):
    for gpu, dollars in (("K80", 0.75), ("V100", 3.06)):
        case.offer(f"t.{gpu}", dollars, gpu=gpu, provider="aws")
        case.offer(f"t.{gpu}", 1.05 * dollars, gpu=gpu, spot=True, provider="aws")
    case.observations.append(Observation("job_1", "K80", 1, 1.0, 2209, case.now))
    placed = case.decide(due(case, hours))
    assert placed.offer_id == "aws/eu-1/eu-1a/t.V100/on_demand"
    assert placed.saving_nano_usd >= 0


def test_a_job_is_not_measured_on_a_spot_machine_that_is_expected_to_cost_more_than_on_demand(case, offers):
    expensive = case.offer("dear", 5.0, gpu="A10", spot=True, provider="aws")
    for other in ("K80 spot", "V100 spot"):
        case.happened(offers[other], "refused", 5)
    assert odds(case, 30)[0] == offers["V100"]
    case.price(expensive, 2.0)
    assert odds(case, 30)[0] == expensive


@pytest.mark.parametrize("hours", [30, 100])
def test_a_spot_machine_that_is_in_time_though_it_is_lost_is_not_passed_over_for_one_that_may_be_late(case, hours):
    """On-demand of unknown speed cannot rescue the job. It made one loss of the spot machine count as a missed one."""
    spot = case.offer("fast", 3.7, gpu="A100-80GB", spot=True, provider="aws")
    job = case.job(rates={"A100-80GB": 6.0}, deadline_at_ms=case.now + hours * HOUR, probe=False)
    alone = case.decide(Demand(job, 360_000))
    case.offer("slow", 0.75, gpu="K80", provider="aws")
    placed = case.decide(Demand(job, 360_000))
    assert alone.offer_id == placed.offer_id == spot
    assert placed.chance is None or placed.chance > 0.5


@pytest.mark.parametrize("mean", [0.01, 0.3, 1.0, 2.5, 10.0, 60.0])
def test_how_likely_few_losses_are_is_the_distribution_of_poisson(mean):
    most = np.arange(0.0, 120.0)
    exact = np.cumsum([math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(len(most))])
    assert np.abs(_poisson(most, np.full(len(most), mean)) - exact).max() < 0.01
