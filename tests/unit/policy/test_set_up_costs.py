"""What setting up a job's environment takes is forecast with each start, and with nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.policy import Demand, decide

SETUP_S = 1800.0


def test_a_start_takes_and_costs_the_set_up_more(case) -> None:
    case.offer("a", 1.0)
    demand = Demand(case.job(), 1000)
    plain, longer = case.decide(demand), case.decide(replace(demand, setup_s=SETUP_S))
    assert longer.finish_at_ms - plain.finish_at_ms == pytest.approx(SETUP_S * 1000, rel=0.05)
    assert longer.cost_nano_usd - plain.cost_nano_usd == pytest.approx(SETUP_S / 3600 * 1e9, rel=0.05)


def test_staying_needs_none_and_a_move_is_weighed_with_it(case, settled) -> None:
    here = case.offer("a", 1.0)
    case.offer("b", 0.1, region="eu-2")
    demand = Demand(case.job(), 3000)
    assert case.decide(demand, settled(here)).action == "move"
    stays = case.decide(replace(demand, setup_s=10 * 3600.0), settled(here))
    assert stays.action == "stay"
    without = next(each for each in case.decide(demand, settled(here)).alternatives if each.offer_id == here)
    assert stays.cost_nano_usd == without.cost_nano_usd


def test_jobs_that_differ_only_in_it_are_decided_apart(case) -> None:
    case.offer("a", 1.0)
    jobs = [Demand(case.job("job_1"), 1000), Demand(case.job("job_2"), 1000, setup_s=SETUP_S)]
    first, second = decide(jobs, case.market(), case.perf(), {}).placements
    assert second.finish_at_ms > first.finish_at_ms
