"""A deadline that on-demand can keep is never missed, and spot is used while there is slack to lose it in."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace

import numpy as np
import pytest

from orchestrator.model import CheckpointSpec, Expected, GpuRequest
from orchestrator.policy import Demand, Running
from orchestrator.policy.ranking.cost import forecast_of
from orchestrator.policy.ranking.pool import Pool
from providers.money import about_usd, cost_nano_usd, usd

STEPS = 36_000  # 10 h at 1 step/s
TICK_S = 900
STARTUP_S = 300
SPOT_DOLLARS, KEPT_DOLLARS = 0.30, 1.00


@dataclass
class Outcome:
    finished_s: float
    nano_usd: int
    losses: int


def simulate(case, seed: int, deadline_s: float, mean_life_s: float) -> Outcome:
    """A job of 36,000 steps among three spot zones and one on-demand offer, decided every quarter of an hour.

    Spot machines live exponentially long and are lost together with the work since the last checkpoint (a minute of
    it); a zone that lost its machine refuses launches for a while. Losses fall between decisions, at the worst time:
    the rest of that quarter is wasted.
    """
    chance = random.Random(seed)
    begin = case.now
    spots = [case.offer(f"spot{i}", SPOT_DOLLARS, spot=True, region=f"eu-{i}") for i in range(3)]
    kept = case.offer("kept", KEPT_DOLLARS)
    case.startup_s = STARTUP_S
    job = case.job(deadline_s=deadline_s, checkpoint=CheckpointSpec(max_overhead=0.035))
    done, spent, losses = 0.0, 0, 0
    where: str | None = None
    since, busy_until, dies_at = begin, 0, 0
    down_until = dict.fromkeys(spots, 0)
    while done < STEPS:
        running = None if where is None else Running(where, since)
        demand = Demand(job, STEPS, int(done), spent, checkpoint_s=2.1)
        placement = case.decide(demand, running)
        if placement.action in ("place", "move"):
            target = placement.offer_id
            if down_until.get(target, 0) > case.now:
                case.happened(target, "refused")
            else:
                case.happened(target, "launched")
                where, since = target, case.now
                busy_until = case.now + STARTUP_S * 1000
                life_s = chance.expovariate(1 / mean_life_s) if target != kept else 1e9
                dies_at = case.now + int(life_s * 1000)
        end = case.now + TICK_S * 1000
        if where is not None:
            alive_until = min(end, dies_at)
            price = SPOT_DOLLARS if where != kept else KEPT_DOLLARS
            spent += cost_nano_usd([(0, round(price * 1e9))], case.now, alive_until)
            done += max(alive_until - max(case.now, busy_until), 0) / 1000
            if dies_at <= end:
                done, losses = max(done - 60, 0), losses + 1
                down_until[where] = end + int(chance.expovariate(1 / 3600) * 1000)
                case.now = end
                case.happened(where, "lost")
                where = None
        case.now = end
        assert case.now < begin + 10 * deadline_s * 1000, "the job never ends"
    overshoot_s = done - STEPS
    return Outcome((case.now - begin) / 1000 - overshoot_s, spent, losses)


@pytest.mark.parametrize("mean_life_s", [1_800, 3 * 3600, 24 * 3600])
@pytest.mark.parametrize("ratio", [1.12, 1.5, 2.5])
@pytest.mark.parametrize("seed", [1, 2])
def test_no_deadline_is_missed_that_on_demand_can_meet(case, seed, ratio, mean_life_s):
    deadline_s = ratio * STEPS
    outcome = simulate(case, seed, deadline_s, mean_life_s)
    assert outcome.finished_s <= deadline_s


def test_with_slack_the_job_runs_on_spot_and_costs_far_less_than_on_demand(case):
    outcome = simulate(case, 3, 2.5 * STEPS, 8 * 3600)
    assert outcome.nano_usd < 0.5 * KEPT_DOLLARS * 1e9 * STEPS / 3600


def test_losses_eat_the_slack_until_on_demand_steps_in(case):
    """Machines that live for a quarter of an hour bring a job nowhere: its deadline is kept all the same."""
    outcome = simulate(case, 4, 1.5 * STEPS, 600)
    assert outcome.finished_s <= 1.5 * STEPS
    assert outcome.losses >= 2


def test_spot_is_left_when_it_leaves_no_time_to_fall_back(case, settled):
    spot = case.offer("spot", 0.30, spot=True)
    kept = case.offer("kept", 1.00)
    case.happened(spot, "launched", minutes_ago=60 * 2000)  # a calm zone: not one loss in 2,000 h
    job = case.job(deadline_s=12 * 3600)
    assert case.decide(Demand(job, STEPS), settled(spot)).action == "stay"
    case.now += 54 * 60_000  # in which nothing was done
    placement = case.decide(Demand(job, STEPS), settled(spot))
    assert (placement.action, placement.offer_id) == ("move", kept)
    assert "no time to switch to on-demand" in placement.reason


def test_when_no_offer_is_safe_the_likeliest_is_chosen_and_it_is_on_demand(case):
    case.offer("spot", 0.30, spot=True)
    kept = case.offer("kept", 1.00)
    # 10.08 h expected, 10.48 h at the 95th percentile, 10.3 h left.
    placement = case.decide(Demand(case.job(deadline_s=10.3 * 3600), STEPS))
    assert (placement.action, placement.offer_id) == ("place", kept)
    assert re.search(r"no offer is certain .* 8\d% chance", placement.reason)
    assert "likely to meet your limits, compared with" in placement.alternatives[1].reason


def test_of_two_offers_that_are_equally_likely_to_be_in_time_the_plan_says_what_the_other_costs_more(case):
    case.offer("kept", 1.00)
    case.offer("same", 1.50)
    placement = case.decide(Demand(case.job(deadline_s=10.3 * 3600), STEPS))
    more = placement.alternatives[1].cost_nano_usd - placement.cost_nano_usd
    said = rf"as likely to meet your limits \(8\d%\), {re.escape(about_usd(more))} more to finish"
    assert re.fullmatch(said, placement.alternatives[1].reason)


def test_a_slow_spot_machine_that_would_be_too_late_is_not_taken_however_cheap(case):
    case.offer("slow", 0.01, spot=True, gpu="SIM-S")
    kept = case.offer("kept", 1.00)
    job = case.job(rates={"SIM-M": 1.0, "SIM-S": 0.5}, deadline_s=18 * 3600)
    placement = case.decide(Demand(job, STEPS))
    assert placement.offer_id == kept
    assert placement.alternatives[1].reason == "would finish 3.7 h after the deadline without on-demand"


def test_what_runs_is_not_left_for_the_same_kind_elsewhere_because_little_is_known_of_its_speed_yet(case, settled):
    """Nothing to start makes the fastest case of staying much faster, and its chance to be in time no smaller."""
    here, there = case.offer("here", 1.00, region="eu-1"), case.offer("there", 1.00, region="eu-2")
    said = Expected(GpuRequest("SIM-M"), 40 / (3.5 * 3600))
    job = case.job(rates={}, deadline_s=4 * 3600, expected=said)
    first = case.decide(Demand(job, 40))
    assert first.reason.startswith("no offer is certain"), "the interval must reach past the deadline"
    for running in (here, there):
        placement = case.decide(Demand(job, 40), settled(running))
        assert (placement.action, placement.offer_id) == ("stay", running)


@pytest.mark.parametrize("on_demand", ["none", "too slow"])
@pytest.mark.parametrize(("hours", "sure"), [(14, False), (40, True)])
def test_without_on_demand_in_time_a_spot_machine_is_safe_if_the_time_is_enough_for_its_losses(
    case, on_demand, hours, sure
):
    """10 hours of work. An on-demand machine that would be too late makes spot no less safe than none at all."""
    spot = case.offer("spot", 1.0, spot=True)
    if on_demand == "too slow":
        case.offer("slow", 0.1, gpu="SIM-S")
    job = case.job(rates={"SIM-M": 1.0, "SIM-S": 0.1}, deadline_at_ms=case.now + hours * 3_600_000)
    placed = case.decide(Demand(job, 36_000))
    assert (placed.offer_id, placed.chance is None) == (spot, sure)
    words = {"none": "no on-demand machine may be used", "too slow": "no on-demand machine is fast enough"}
    assert (words[on_demand] in placed.reason) == sure


def test_a_budget_that_almost_pays_for_on_demand_is_not_spent_on_it_at_once(case):
    """50 hours of work, 60 until the deadline: $150 on demand, $50 on spot. A job that saves money on spot first can
    soon pay for on-demand until the end. It bought on-demand at once, for "a 45% chance"."""
    spot = case.offer("spot", 1.0, spot=True)
    sure = case.offer("sure", 3.0)
    job = case.job(deadline_at_ms=case.now + 60 * 3_600_000)
    chances = []
    for dollars in (110, 130, 145, 150, 170):
        limited = replace(job, spec=replace(job.spec, budget_nano_usd=usd(dollars)))
        placed = case.decide(Demand(limited, 180_000))
        assert placed.offer_id == spot, dollars
        chances.append(1.0 if placed.chance is None else placed.chance)
    assert chances == sorted(chances)
    assert 0.0 < chances[0] < chances[1] < chances[2] < 1.0 == chances[-1]
    market = case.market()
    forecast = forecast_of(Demand(job, 180_000), Pool(market, np.array([0, 1])), case.perf(), None)
    at, by = market.row(spot), market.row(sure)
    losses = float(forecast.over_rows(forecast.mid.losses)[at])
    bought, alone = float(forecast.at_95.cost[by]), float(forecast.mid.cost[at])
    # The first loss comes at a share of the work from which on what is left pays for on-demand, or not at all.
    first = np.random.default_rng(1).exponential(1 / losses, 100_000)
    kept = (first > 1) | (first * alone + (1 - first) * bought <= usd(130))
    assert chances[1] == pytest.approx(kept.mean(), abs=0.01)
