"""What a spot price will be on average over the hours to come: read from how prices went before."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.market import Course, History, PriceForecast
from orchestrator.market.reversion import CLOUD, DEVIATIONS, HORIZONS_H, UNKNOWN, course

HOUR_MS = 3_600_000
WEEK_H = 168
EXPECTED, LOW, HIGH = range(3)


def history(prices: Sequence[float], hours: float = 1.0) -> History:
    """Prices that held for so many hours each."""
    at_ms = np.arange(len(prices), dtype=np.int64) * int(hours * HOUR_MS)
    return History(at_ms, np.array(prices, np.float64), int(len(prices) * hours * HOUR_MS))


def reverting(seed: int, *, hours: int = WEEK_H, kept: float = 0.7, noise: float = 0.15) -> History:
    """Hourly prices around $1: of a deviation so much is kept from hour to hour."""
    draw, off, prices = random.Random(seed), 0.0, []
    for _ in range(hours):
        off = kept * off + draw.gauss(0, noise)
        prices.append(1e9 * math.exp(off))
    return history(prices)


def halfway(whole: History) -> History:
    """What is known of it half an hour before the last price of its first week is over."""
    return History(whole.at_ms[:WEEK_H], whole.price[:WEEK_H], WEEK_H * HOUR_MS - HOUR_MS // 2)


def level(known: History) -> float:
    return float(np.average(known.price, weights=np.diff([*known.at_ms, known.until_ms])))


SEEN = course([reverting(seed) for seed in range(12)])


def at(found: Course, which: int, hours: float, deviation: float) -> float:
    return float(np.interp(deviation, DEVIATIONS, found.table[which, HORIZONS_H.index(hours)]))


def test_without_a_history_prices_are_expected_to_stay_within_the_declared_prior() -> None:
    assert np.all(UNKNOWN.table[EXPECTED] == 1)
    assert at(UNKNOWN, HIGH, 72.0, 0.0) == pytest.approx(math.exp(CLOUD.up))
    assert at(UNKNOWN, LOW, 72.0, 0.0) == pytest.approx(math.exp(-CLOUD.down))
    assert at(UNKNOWN, HIGH, 1.0, 0.0) < at(UNKNOWN, HIGH, 24.0, 0.0) < at(UNKNOWN, HIGH, 168.0, 0.0) + 1e-9


def test_a_market_that_returns_to_its_level_is_known_for_it() -> None:
    found = SEEN
    assert at(found, EXPECTED, 24.0, -0.35) > 1.2
    assert at(found, EXPECTED, 24.0, 0.35) < 0.85
    assert at(found, EXPECTED, 24.0, 0.0) == pytest.approx(1, abs=0.05)
    assert at(found, EXPECTED, 1.0, -0.35) < at(found, EXPECTED, 24.0, -0.35)


def test_in_a_market_whose_prices_stay_none_is_expected_to_return() -> None:
    """Steps that last: a lower price is simply the price now."""
    draw = random.Random(5)
    walks = [
        history(list(1e9 * np.exp(np.cumsum([draw.choice((0.0,) * 19 + (-0.1, 0.1)) for _ in range(WEEK_H)]))))
        for _ in range(40)
    ]
    found = course(walks)
    for hours in (1.0, 8.0, 24.0):
        assert at(found, EXPECTED, hours, -0.15) == pytest.approx(1, abs=0.06)
        assert at(found, EXPECTED, hours, 0.15) == pytest.approx(1, abs=0.06)


def test_the_prior_gives_way_to_evidence() -> None:
    steady = [history([1e9] * WEEK_H) for _ in range(200)]
    few, many = course(steady[:1]), course(steady)
    assert at(many, HIGH, 24.0, 0.0) < at(few, HIGH, 24.0, 0.0) < at(UNKNOWN, HIGH, 24.0, 0.0)
    assert at(many, HIGH, 24.0, 0.0) == pytest.approx(1, abs=0.01)


def test_nine_of_ten_means_lie_within_the_interval_also_those_of_the_cheapest_of_many() -> None:
    """Choosing what is cheap now chooses what will rise: the expected mean must know it."""
    inside, chosen, hours = [], [], 4
    for trial in range(40):
        whole = [reverting(1000 * trial + number, hours=WEEK_H + hours) for number in range(12)]
        known = [halfway(each) for each in whole]
        found = course(known)
        price = np.array([each.price[-1] for each in known])
        off = np.log(price / [level(each) for each in known])
        expected, low, high = (
            price * np.interp(off, DEVIATIONS, each[HORIZONS_H.index(hours)]) for each in found.table
        )
        shares = (0.5, *[1.0] * (hours - 1), 0.5)
        came = np.array([np.average(each.price[WEEK_H - 1 :], weights=shares) for each in whole])
        inside.append((low <= came) & (came <= high))
        chosen.append(came[off.argmin()] / expected[off.argmin()])
    assert 0.85 <= np.mean(inside) <= 0.95
    assert np.mean(chosen) == pytest.approx(1, abs=0.04), "no winner's curse is left"


def test_a_history_too_short_to_show_a_horizon_says_nothing_of_it() -> None:
    found = course([history([1e9, 2e9])])
    assert np.all(found.table[EXPECTED, HORIZONS_H.index(2.0) :] == found.table[EXPECTED, -1])
    assert at(found, HIGH, 168.0, 0.0) == pytest.approx(at(UNKNOWN, HIGH, 168.0, 0.0), rel=0.05)


@settings(deadline=None)
@given(st.lists(st.lists(st.floats(1e6, 1e11), min_size=1, max_size=60), max_size=5), st.floats(0.1, 30.0))
def test_the_expected_mean_lies_in_its_interval_and_rises_with_the_price(
    prices: list[list[float]], hours: float
) -> None:
    table = course([history(each, hours) for each in prices]).table
    assert np.isfinite(table).all()
    assert (table[LOW] <= table[EXPECTED]).all()
    assert (table[EXPECTED] <= table[HIGH]).all()
    assert (np.diff(np.log(table[EXPECTED]) + DEVIATIONS) >= -1e-9).all()


@settings(deadline=None)
@given(st.floats(0.05, 20.0), st.floats(60.0, 2e6))
def test_the_price_at_which_a_mean_is_expected_is_found_again(price: float, seconds: float) -> None:
    found = SEEN
    nano = np.array([round(price * 1e9)], np.int64)
    spot, first = np.array([True]), np.zeros(1, np.int64)
    ahead = PriceForecast(nano, np.array([1e9]), spot, first, [found])
    mean = float(nano[0] * ahead.mean(np.array([seconds]), first)[0])
    again = ahead.price_for(0, mean, seconds)
    there = PriceForecast(np.array([round(again)], np.int64), np.array([1e9]), spot, first, [found])
    assert round(again) * float(there.mean(np.array([seconds]), first)[0]) == pytest.approx(mean, rel=0.02)


def test_on_demand_prices_and_those_without_a_level_follow_no_deviation() -> None:
    found = SEEN
    price = np.array([500_000_000] * 3, np.int64)
    rows = PriceForecast(
        price, np.array([1e9, 1e9, -1.0]), np.array([True, False, True]), np.zeros(3, np.int64), [found]
    )
    cheap, on_demand, unknown = rows.mean(np.array([86_400.0]), np.zeros(3, np.int64))
    assert cheap > 1.3
    assert on_demand == 1
    assert unknown == pytest.approx(1, abs=0.05)
    low, high = rows.range(np.array([86_400.0]), np.zeros(3, np.int64))
    assert (low[1], high[1]) == (1, 1)
    assert low[0] < 1 < high[0]
