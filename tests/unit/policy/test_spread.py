"""The interval that a plan shows: as wide as speed, start-up, interruptions and prices make it."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.market import Course, Market
from orchestrator.market.reversion import Prior, course
from orchestrator.model import FASTEST, Alternative, Estimate
from orchestrator.policy import Demand, decide
from providers.money import usd
from tests.unit.policy.conftest import DecisionCase

STEPS = 36_000


def prices_stray(down: float, up: float, hold_h: float) -> Course:
    return course((), Prior(down, up, hold_h))


def chosen(
    case: DecisionCase, *, prices: Course | None = None, start: Estimate | float = 300.0, **spec: object
) -> Alternative:
    market = Market.as_of(
        case.now,
        offers=case.offers,
        prices=case.prices,
        startup_s={"local": start},
        courses={} if prices is None else {"local": prices},
    )
    case.observations.clear()
    job = case.job(rates={"SIM-M": 10.0}, **spec)
    return decide([Demand(job, STEPS)], market, case.perf(), {}).placements[0].alternatives[0]


def test_on_demand_only_speed_and_start_are_uncertain(case: DecisionCase) -> None:
    case.offer("it", 1.0)
    each = chosen(case)
    assert each.duration_s == pytest.approx(3900)
    assert 0.95 * 3900 < each.duration_low_s < 3900 < each.duration_high_s < 1.05 * 3900
    low, high = each.cost_low_nano_usd, each.cost_high_nano_usd
    assert low / each.cost_nano_usd == pytest.approx(each.duration_low_s / each.duration_s, rel=1e-3)
    assert high / each.cost_nano_usd == pytest.approx(each.duration_high_s / each.duration_s, rel=1e-3)


def test_a_start_that_is_hardly_known_is_in_the_interval_of_time_and_cost(case: DecisionCase) -> None:
    case.offer("it", 1.0)
    each = chosen(case, start=Estimate(300.0, 100.0, 900.0, "prior"))
    assert each.duration_high_s > 3900 + 600
    assert each.duration_low_s < 3900 - 200
    assert each.cost_high_nano_usd / each.cost_nano_usd == pytest.approx(each.duration_high_s / 3900, rel=1e-3)


def test_a_spot_price_strays_and_an_on_demand_price_does_not(case: DecisionCase) -> None:
    case.offer("it", 1.0, spot=True)
    case.offer("sure", 3.0)
    calm, stormy = chosen(case), chosen(case, prices=prices_stray(0.2, 0.7, 0.5))
    assert stormy.cost_high_nano_usd > stormy.cost_nano_usd * np.exp(0.7)
    assert stormy.cost_low_nano_usd < stormy.cost_nano_usd * np.exp(-0.15)
    assert calm.cost_high_nano_usd < stormy.cost_high_nano_usd
    assert (calm.duration_low_s, calm.duration_high_s) == (stormy.duration_low_s, stormy.duration_high_s)


def test_a_short_job_finishes_before_the_price_can_change(case: DecisionCase) -> None:
    case.offer("it", 1.0, spot=True)
    quick, slow = chosen(case, prices=prices_stray(0.2, 0.7, 100.0)), chosen(case, prices=prices_stray(0.2, 0.7, 0.5))
    assert quick.cost_high_nano_usd - quick.cost_nano_usd < (slow.cost_high_nano_usd - slow.cost_nano_usd) / 2


def test_deviations_add_up_as_squares_not_as_worst_cases(case: DecisionCase) -> None:
    case.offer("it", 1.0)
    speed = chosen(case)
    both = chosen(case, start=Estimate(300.0, 100.0, 500.0, "prior"))
    by_speed = speed.duration_high_s - 3900
    assert both.duration_high_s - 3900 == pytest.approx(np.hypot(by_speed, 200), rel=1e-6)


def test_of_a_product_logarithms_stray_so_that_no_cost_comes_near_nothing(case: DecisionCase) -> None:
    case.offer("it", 1.0, spot=True)
    each = chosen(case, prices=prices_stray(1.5, 1.5, 0.5), start=Estimate(3000.0, 100.0, 9000.0, "prior"))
    shorter = 1 - 2900 / 6600
    share = each.cost_low_nano_usd / each.cost_nano_usd
    assert share == pytest.approx(np.exp(-np.hypot(1.5, np.log(shorter))), rel=0.1)


def test_a_job_that_may_come_to_a_faster_machine_may_be_done_as_soon_as_there(case: DecisionCase) -> None:
    case.offer("slow", 1.0, spot=True)
    alone = chosen(case, prices=prices_stray(0.2, 0.7, 0.5))
    case.offer("fast", 2.4, gpu="SIM-L", spot=True)
    expensive = chosen(case, prices=prices_stray(0.2, 0.1, 0.5))
    near = chosen(case, prices=prices_stray(0.2, 0.7, 0.5))
    assert near.offer_id == expensive.offer_id == alone.offer_id
    assert expensive.duration_low_s == pytest.approx(alone.duration_low_s, rel=0.01)
    assert near.duration_low_s < 0.7 * alone.duration_low_s
    assert near.duration_high_s <= alone.duration_high_s  # after a loss it may go there, too


def test_a_job_may_come_to_cost_what_it_costs_on_a_cheaper_machine_that_is_only_away(case: DecisionCase) -> None:
    case.offer("dear", 2.0, spot=True)
    case.offer("second", 2.1, spot=True)
    before = decided(case)
    case.happened(case.offer("cheap", 1.0, spot=True), "lost", 5)
    after = decided(case)
    assert after[0].offer_id == before[0].offer_id == "local/eu-1/eu-1a/dear/spot"
    assert before[0].cost_low_nano_usd > usd(1.8)
    assert after[0].cost_low_nano_usd < usd(1.2)
    second = [next(each for each in found if "second" in each.offer_id) for found in (before, after)]
    assert second[0].cost_low_nano_usd == second[1].cost_low_nano_usd  # only the chosen offer is concerned


def decided(case: DecisionCase) -> tuple[Alternative, ...]:
    """The alternatives of a job of an hour that does not wait for capacity."""
    case.observations.clear()
    job = case.job(rates={"SIM-M": 10.0}, objective=FASTEST)
    return case.decide(Demand(job, STEPS)).alternatives


def test_a_job_on_spot_may_use_all_of_the_time_until_its_deadline(case: DecisionCase) -> None:
    case.offer("it", 1.0, spot=True)
    case.offer("sure", 3.0)
    hours = 20 * 3600
    free, due = chosen(case), chosen(case, deadline_at_ms=case.now + 1000 * hours)
    assert free.duration_high_s < hours / 2
    assert due.duration_high_s == pytest.approx(hours)


def test_the_last_finish_on_demand_does_not_depend_on_the_deadline(case: DecisionCase) -> None:
    case.offer("it", 1.0)
    free, due = chosen(case), chosen(case, deadline_at_ms=case.now + 20 * 3_600_000)
    assert due.duration_high_s == free.duration_high_s


def test_a_job_may_spend_the_budget_that_pays_for_a_part_of_the_work_on_demand(case: DecisionCase) -> None:
    case.offer("it", 1.0, spot=True)
    case.offer("sure", 3.0)
    rich, poor = (
        chosen(case, deadline_at_ms=case.now + 20 * 3_600_000, budget_nano_usd=round(dollars * 1e9))
        for dollars in (100.0, 2.5)
    )
    assert poor.cost_high_nano_usd == pytest.approx(2.5e9)
    assert rich.cost_high_nano_usd < 1.5e9
