"""The interval between checkpoints: shorter where machines are lost often, longer where a checkpoint costs much."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.control import ControlDirectory, Risk
from trainers.errors import MalformedMessage
from trainers.loop.cadence import Cadence
from trainers.loop.tuner import LONGEST_KNOWN_S, LONGEST_S, OTHER_LOSSES_PER_H, SHORTEST_S, interval_s

costs = st.floats(0.0, 1000.0)
rates = st.floats(0.0, 100.0)


def expected_cost(every_s, cost_s, losses_per_h):
    """Share of the time for checkpoints and repeated work."""
    return cost_s / every_s + every_s / 2 * (losses_per_h + OTHER_LOSSES_PER_H) / 3600


@given(st.floats(0.001, 1000.0), rates)
def test_no_other_interval_costs_less(cost_s, losses_per_h):
    best = interval_s(cost_s, losses_per_h, max_overhead=1e9)
    for other in (SHORTEST_S, best / 1.1, best * 1.1, LONGEST_KNOWN_S):
        if SHORTEST_S <= other <= LONGEST_KNOWN_S:
            assert expected_cost(best, cost_s, losses_per_h) <= expected_cost(other, cost_s, losses_per_h) * (1 + 1e-9)


@given(costs, rates, st.floats(0.001, 1.0))
def test_checkpoints_never_take_more_than_the_user_allows(cost_s, losses_per_h, max_overhead):
    every_s = interval_s(cost_s, losses_per_h, max_overhead)
    assert every_s == LONGEST_KNOWN_S or cost_s <= max_overhead * every_s * (1 + 1e-9)


@given(costs, costs, rates, rates, st.floats(0.0, 1.0))
def test_the_interval_follows_both_ways(cost_s, other_s, losses, others, max_overhead):
    low, high = sorted((cost_s, other_s))
    assert interval_s(low, losses, max_overhead) <= interval_s(high, losses, max_overhead)
    rare, often = sorted((losses, others))
    assert interval_s(cost_s, often, max_overhead) <= interval_s(cost_s, rare, max_overhead)


def test_without_a_known_risk_checkpoints_take_their_share_of_the_time():
    assert interval_s(0.7, None, 0.035) == pytest.approx(20.0)
    assert interval_s(1e9, None, 0.035) == LONGEST_S
    assert interval_s(0.0, None, 0.0) == LONGEST_S


def test_a_machine_that_nobody_takes_away_may_still_fail():
    assert interval_s(0.5, 0.0, 0.035) == pytest.approx(math.sqrt(2 * 0.5 * 3600 / OTHER_LOSSES_PER_H))


def test_what_the_store_charges_counts_as_time_that_its_price_would_have_bought():
    cadence = Cadence(0.035, since_s=0.0, billed=True)
    cadence.saved_beside(held_s=0.1, took_s=50.0)
    assert cadence.interval_s() == LONGEST_S, "an unknown charge is not free"
    cadence.risk = Risk(losses_per_h=1.0)
    assert cadence.interval_s() == pytest.approx(interval_s(50.0, 1.0, 0.035)), "nor with a known risk"
    cadence.risk = Risk(losses_per_h=1.0, charge_s=0.0)
    assert cadence.interval_s() == pytest.approx(interval_s(0.1, 1.0, 0.035))
    cadence.risk = Risk(losses_per_h=1.0, charge_s=2.0)
    assert cadence.interval_s() == pytest.approx(interval_s(2.1, 1.0, 0.035))


def test_a_new_risk_changes_the_next_checkpoint_at_once():
    cadence = Cadence(0.035, since_s=0.0, risk=Risk(0.1))
    cadence.saved(0.0, 1.0)
    assert not cadence.due(200.0)
    cadence.risk = Risk(2.0)
    assert cadence.due(62.0)


def test_the_risk_travels_through_the_control_directory(tmp_path):
    control = ControlDirectory(tmp_path)
    assert control.risk() is None
    control.put_risk(Risk(0.5, 1.25))
    assert control.risk() == Risk(0.5, 1.25)
    (tmp_path / "risk.json").write_text('{"losses_per_h": -1, "charge_s": 0}')
    with pytest.raises(MalformedMessage, match="losses_per_h"):
        control.risk()
