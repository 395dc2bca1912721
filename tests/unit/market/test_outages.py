"""How long missing capacity is expected to stay away is learned from the outages that were seen to end."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.market.availability import AvailabilityPoint, summarise
from orchestrator.market.outages import OUTAGE_H, WEIGHT, expected_wait_s, mean_by_group_h, mean_outage_h

MIN, HOUR = 60_000, 3_600_000


def summary(*points, at_min=10_000):
    return summarise(
        [AvailabilityPoint("offer", minute * MIN, kind) for minute, kind in points], at_min * MIN, spot=True
    )


def test_an_outage_ends_half_way_between_its_last_sign_and_the_next_launch():
    seen = summary((0, "launched"), (60, "lost"), (75, "refused"), (105, "refused"), (165, "launched"))
    assert (seen.returns, seen.away_ms) == (1, (45 + 30) * MIN)


def test_a_notice_and_its_loss_begin_one_outage():
    seen = summary((0, "launched"), (60, "notice"), (62, "lost"), (82, "launched"))
    assert (seen.returns, seen.away_ms) == (1, 11 * MIN)


def test_an_outage_that_still_lasts_counts_with_the_time_that_it_is_known_to_have_lasted():
    seen = summary((0, "launched"), (60, "lost"), (75, "refused"), (315, "refused"))
    assert (seen.returns, seen.away_ms) == (0, 255 * MIN)


def test_a_time_in_which_nobody_looked_says_nothing():
    seen = summary((0, "launched"), (60, "lost"), (60 + 7 * 24 * 60, "launched"))
    assert (seen.returns, seen.away_ms) == (0, 0)


def test_a_machine_that_we_end_begins_no_outage():
    seen = summary((0, "launched"), (60, "released"), (90, "launched"))
    assert (seen.returns, seen.away_ms) == (0, 0)


def mean(row=0, *, returns, away_h, group=None):
    group = np.zeros(len(returns), np.int64) if group is None else np.array(group)
    returns, away_ms = np.array(returns), np.array([round(each * HOUR) for each in away_h])
    return float(mean_outage_h(mean_by_group_h(group, returns, away_ms)[group], returns, away_ms)[row])


def wait(*, returns, away_h, sign_min_ago=0.0, rest_min=15.0):
    at_ms = 1_000 * HOUR
    return float(
        expected_wait_s(
            np.array([mean(returns=returns, away_h=away_h)]),
            at_ms=at_ms,
            last_sign_ms=np.array([at_ms - round(sign_min_ago * MIN)]),
            until_ms=np.array([at_ms + round(rest_min * MIN)]),
        )[0]
    )


def test_without_anything_seen_an_outage_is_expected_to_last_as_the_prior_says():
    minutes = 15 + 60 * OUTAGE_H * math.exp(-0.25 / OUTAGE_H)
    assert wait(returns=[0], away_h=[0.0]) == pytest.approx(60 * minutes)


def test_what_was_seen_of_one_offer_counts_for_others_of_its_provider_more_than_elsewhere():
    means_h = [mean(row, group=[0, 0, 1], returns=[20, 0, 0], away_h=[20, 0, 0]) for row in range(3)]
    assert 1.0 < means_h[0] < means_h[1] < means_h[2] < OUTAGE_H


def test_the_longer_an_outage_lasts_the_longer_it_is_expected_to_last():
    waits = [wait(returns=[3], away_h=[3.0 + hours], rest_min=0.0) for hours in (0, 2, 8, 24)]
    assert waits == sorted(waits)
    assert waits[-1] - waits[0] > 24 * 3600 / (WEIGHT + 3)


def test_without_a_sign_of_missing_capacity_there_is_no_wait():
    none = np.array([-1])
    assert expected_wait_s(np.array([4.0]), at_ms=0, last_sign_ms=none, until_ms=none).tolist() == [0.0]


@given(
    returns=st.lists(st.integers(0, 50), min_size=1, max_size=5),
    sign_min_ago=st.floats(0, 10_000),
    rest_min=st.floats(0, 240),
    hours=st.floats(0, 1_000),
)
def test_a_wait_is_at_least_the_rest_of_the_back_off_and_at_most_that_and_an_outage(
    returns, sign_min_ago, rest_min, hours
):
    away_h = [hours] * len(returns)
    found = wait(returns=returns, away_h=away_h, sign_min_ago=sign_min_ago, rest_min=rest_min)
    mean_h = mean(returns=returns, away_h=away_h)
    assert 60 * rest_min - 1 <= found <= 60 * rest_min + 3600 * mean_h + 1
