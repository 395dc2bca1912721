"""The baseline `daily`: `decide` ranks the spot offers, at the daily look and when another zone is cheaper by far."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.arena.baselines.daily import Daily
from orchestrator.arena.baselines.tick_market import TickAdapter
from orchestrator.arena.protocol import Observation, TickJob, TickMarket
from orchestrator.arena.ticks import play
from tests.unit.arena.small_markets import task, trace

PRICES = st.lists(st.floats(0.1, 5.0), min_size=3, max_size=3).map(tuple)


def tick_market(on_demand, egress):
    return TickMarket(("a", "b", "c")[: len(on_demand)], tuple(on_demand), egress, tick_hours=0.25, probe_hours=0.0)


def seen_at(tick, spot=(), done_h=0.0, here=None):
    return Observation(tick, tick * 0.25, 80 - tick, done_h, None, 0.0, False, tuple(spot), here)


@settings(deadline=None, derandomize=True, max_examples=25)
@given(PRICES, PRICES, st.floats(0.0, 9.0), st.sampled_from([None, 0, 1, 2]), st.sampled_from(["spot", "on_demand"]))
def test_the_same_observations_give_a_byte_identical_plan(spot, on_demand, done_h, here, kind):
    market = tick_market(on_demand, ((0, 0.02, 0.01), (0.02, 0, 0.08), (0.01, 0.08, 0)))
    plans = []
    for _ in range(2):
        adapter = TickAdapter(TickJob(10.0, 20.0, 0.2, 50.0), market, (1.0, 1.0, 1.0))
        adapter.saw(seen_at(1), (0, "spot"), "launched")
        adapter.saw(seen_at(2), (0, "spot"), "lost")
        plans.append(adapter.plan(seen_at(3, spot, done_h, here), kind))
    assert repr(plans[0]).encode() == repr(plans[1]).encode()
    assert plans[0].placements[0].action == "place"


@pytest.mark.parametrize(("usd_per_gb", "zone"), [(0.02, 0), (0.005, 1)])
def test_egress_is_in_the_decision(usd_per_gb, zone):
    """Zone 1 saves 1 dollar; the move costs 2, or half a dollar."""
    market = tick_market((3.0, 3.0), ((0, usd_per_gb), (usd_per_gb, 0)))
    adapter = TickAdapter(TickJob(10.0, 20.0, 0.0, 100.0), market, (1.0, 1.0))
    assert adapter.order(adapter.plan(seen_at(3, (1.0, 0.5), 8.0, 0), "spot"))[0] == zone


def test_a_zone_cheaper_by_far_is_moved_to_at_once():
    ticks = 6 * 72
    window = trace([[1] * ticks] * 2, [[1.0] * ticks, [2.0] * 36 + [0.3] * (ticks - 36)]).window(0, ticks)
    done = play(Daily(), task(ticks / 2, ticks, 1.2, gb=1), window)
    assert done.moves == 1
    assert [place[0] for place in done.track[35:37]] == [0, 1]
    assert done.usd == pytest.approx(6.0 + 0.3 * (len(done.track) - 36) / 6)


def test_a_move_that_pays_late_is_made_at_the_daily_look():
    """A dollar to get there, half a dollar saved an hour."""
    ticks = 6 * 200
    prices = [[1.0] * ticks, [9.0] * ticks, [2.0] * 36 + [0.5] * (ticks - 36)]
    window = trace([[1] * ticks, [0] * ticks, [1] * ticks], prices).window(0, ticks)
    job = task(6 * 100, ticks, 1.2, gb=50)
    done = play(Daily(), job, window)
    assert [place[0] for place in done.track[6 * 24 - 1 : 6 * 24 + 1]] == [0, 2]
    assert done.moves == 1
    assert done.usd < play(Daily(replan_hours=1000), job, window).usd
