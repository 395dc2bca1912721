"""What is not known is not promised: a job without evidence of its speed gets ratios and prices, and is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from orchestrator.model import CHEAPEST, FASTEST, Expected, GpuRequest, Job, Objective, Placement
from orchestrator.perf import Observation
from orchestrator.policy import Demand, MoveLimits, Running, compare, prospects
from providers.money import usd
from tests.unit.policy.conftest import DecisionCase

STEPS = 36_000


def job(case: DecisionCase, **spec: object) -> Job:
    return case.job(rates={}, **spec)


@pytest.fixture
def gpus(case: DecisionCase) -> dict[str, str]:
    """Spot and on-demand of two kinds whose ratio is known only so well."""
    prices = {"L4": 0.30, "A100-80GB": 1.60}
    offers = {}
    for gpu, dollars in prices.items():
        for spot in (True, False):
            named = f"{gpu} {'spot' if spot else 'on demand'}"
            price = dollars if spot else 4.8 * dollars
            offers[named] = case.offer(f"one.{gpu}", price, gpu=gpu, spot=spot, provider="aws")
    return offers


@pytest.mark.parametrize("objective", [CHEAPEST, FASTEST, Objective(0.5, 0.5)])
@pytest.mark.parametrize("spec", [{}, {"deadline_s": 60.0}, {"budget_nano_usd": usd("1.00")}])
def test_without_evidence_a_plan_tells_no_time_no_cost_and_no_promise(
    case: DecisionCase, gpus: dict[str, str], objective: Objective, spec: dict[str, object]
) -> None:
    demand = Demand(job(case, objective=objective, **spec), STEPS)
    placed = case.decide(demand)
    assert placed.action == "place"
    assert placed.evidence == "none"
    reported = (placed.cost_nano_usd, placed.finish_at_ms, placed.throughput, placed.parts, placed.expected_losses)
    assert reported == (None,) * 5
    assert placed.would_move_below_nano_usd_per_hour is placed.kept_up_to_nano_usd_per_hour is None
    assert placed.saving_nano_usd == 0
    assert placed.reason.startswith("not measured yet")
    assert "$" not in placed.reason
    assert placed.baseline is not None
    assert {each.offer_id for each in placed.alternatives} == set(gpus.values())
    for each in (*placed.alternatives, placed.baseline):
        assert (each.cost_nano_usd, each.cost_low_nano_usd, each.cost_high_nano_usd) == (None,) * 3
        assert (each.duration_s, each.steps_per_s, each.nano_usd_per_step) == (None,) * 3
        assert each.relative_speed is not None
        assert 0 < each.relative_speed.low <= each.relative_speed.value <= each.relative_speed.high
    assert compare(demand, case.market(), case.perf(), limits=MoveLimits()) is None
    found, _ = prospects(demand, case.market(), case.perf(), limits=MoveLimits())
    assert {(each.cost_nano_usd, each.duration_s, each.nano_usd_per_step) for each in found} == {(None,) * 3}
    assert found[0].offer_id == placed.offer_id


def test_ratios_are_to_a_fixed_machine_whatever_else_is_offered(case: DecisionCase, gpus: dict[str, str]) -> None:
    reported = {each.offer_id: each.relative_speed for each in case.decide(Demand(job(case), STEPS)).alternatives}
    reference, small = reported[gpus["A100-80GB spot"]], reported[gpus["L4 spot"]]
    assert reference is not None
    assert small is not None
    assert (reference.low, reference.value, reference.high) == (1.0, 1.0, 1.0)
    assert small.value < 0.6
    assert small.provenance == "A100-80GB"


def test_it_begins_on_a_machine_that_may_well_be_best_and_is_cheap_to_be_wrong_on(
    case: DecisionCase, gpus: dict[str, str]
) -> None:
    placed = case.decide(Demand(job(case), STEPS))
    assert placed.offer_id == gpus["L4 spot"]
    larger = case.offer("eight", 20.0, gpu="A100-80GB", count=8, spot=True, provider="aws")
    assert case.decide(Demand(job(case), STEPS)).offer_id == gpus["L4 spot"]
    assert case.decide(Demand(job(case, objective=FASTEST), STEPS)).offer_id == larger


def test_a_job_that_wants_speed_begins_on_the_cheapest_offer_of_a_kind_that_is_about_as_early(
    case: DecisionCase,
) -> None:
    """Spot is lost every 8 h, and each loss takes 5 min: 1% later, at a quarter of the price."""
    case.offer("kept", 4.00, gpu="A100-80GB", provider="aws")
    spot = case.offer("lent", 1.00, gpu="A100-80GB", spot=True, provider="aws")
    demand = Demand(job(case, objective=FASTEST), STEPS, checkpoint_s=0.1)
    assert case.decide(demand).offer_id == spot


def test_where_ratios_are_sure_it_begins_where_it_is_expected_to_be_best(case: DecisionCase) -> None:
    case.offer("small", 0.40, gpu="SIM-S")
    large = case.offer("large", 0.90, gpu="SIM-L")
    placed = case.decide(Demand(job(case), STEPS))
    assert placed.offer_id == large
    assert placed.probe is None


def test_a_deadline_buys_nothing_expensive_until_the_measured_speed_requires_it(
    case: DecisionCase, gpus: dict[str, str], at_hour: Callable[[DecisionCase, float], None]
) -> None:
    """The p95 of a guess bought 2.5 hours of on-demand at 4.8 times the price, 48 hours before they were due."""
    demand = Demand(job(case, deadline_s=48 * 3600.0), STEPS)
    placed = case.decide(demand)
    assert placed.offer_id == gpus["L4 spot"]
    at_hour(case, 0.5)
    here = Running(gpus["L4 spot"], case.now - 20 * 60_000)
    quick = measured(case, demand, here, 4.0)
    assert (quick.action, quick.offer_id) == ("stay", here.offer_id)
    assert quick.finish_at_ms is not None
    assert quick.finish_at_ms < (demand.job.deadline_at_ms or 0)
    slow = measured(case, demand, here, 0.22)
    assert slow.action == "move"
    assert str(slow.offer_id).endswith("/on_demand")


@pytest.mark.parametrize("gpu", ["SIM-L", None])
def test_a_run_on_a_simulated_gpu_or_a_processor_is_no_evidence_for_real_gpus(
    case: DecisionCase, gpus: dict[str, str], gpu: str | None
) -> None:
    """The ratio between them is hardly known: 277 steps/s here became a forecast of $5 for a job of $917."""
    wanted = job(case)
    case.observations.append(Observation(wanted.id, gpu, 1, 277.0, 10_000, case.now))
    placed = case.decide(Demand(wanted, STEPS))
    assert (placed.action, placed.evidence) == ("place", "none")
    assert (placed.cost_nano_usd, placed.finish_at_ms, placed.throughput) == (None,) * 3
    expected = replace(wanted, spec=replace(wanted.spec, expected=Expected(GpuRequest("A100-80GB"), 2.5)))
    assert case.decide(Demand(expected, STEPS)).evidence == "expected"


def test_what_is_known_of_a_real_gpu_is_no_evidence_for_simulated_ones(case: DecisionCase) -> None:
    case.offer("sim", 0.10)
    stated = job(case, expected=Expected(GpuRequest("A100-80GB"), 2.5))
    assert case.decide(Demand(stated, STEPS)).evidence == "none"
    case.observations.append(Observation(stated.id, "A100-80GB", 1, 2.5, 10_000, case.now))
    assert case.decide(Demand(stated, STEPS)).evidence == "none"
    case.observations.append(Observation(stated.id, "SIM-S", 1, 1.0, 10_000, case.now))
    assert case.decide(Demand(stated, STEPS)).evidence == "measured"


def measured(case: DecisionCase, demand: Demand, here: Running, rate: float) -> Placement:
    case.observations[:] = [Observation(demand.job.id, "L4", 1, rate, 400, case.now)]
    return case.decide(replace(demand, done_steps=400, spent_nano_usd=1), here)


def test_what_runs_unmeasured_is_left_where_it_is_for_the_minutes_that_measuring_takes(
    case: DecisionCase, gpus: dict[str, str]
) -> None:
    demand = replace(Demand(job(case), STEPS), spent_nano_usd=1)
    here = Running(gpus["A100-80GB spot"], case.now - 10 * 60_000)
    placed = case.decide(demand, here)
    assert (placed.action, placed.offer_id) == ("stay", here.offer_id)
    assert "$" not in placed.reason
    assert (placed.cost_nano_usd, placed.finish_at_ms) == (None, None)


@pytest.mark.parametrize("known", ["the user", "another GPU"])
def test_any_evidence_makes_a_forecast(case: DecisionCase, gpus: dict[str, str], known: str) -> None:
    expected = Expected(GpuRequest("A100-80GB"), 2.5) if known == "the user" else None
    wanted = job(case, expected=expected)
    if expected is None:
        case.observations.append(Observation(wanted.id, "V100", 1, 1.0, 2209, case.now))
    placed = case.decide(Demand(wanted, STEPS))
    assert placed.evidence == ("measured" if expected is None else "expected")
    assert None not in (placed.cost_nano_usd, placed.finish_at_ms, placed.throughput)
    assert all(each.relative_speed is None for each in placed.alternatives)
    assert known != "the user" or "its job file states" in (placed.throughput.provenance if placed.throughput else "")
