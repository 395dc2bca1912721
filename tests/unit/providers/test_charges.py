"""What each charge comes to: units, rounding, and that it sums exactly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.billing.charges import (
    GB,
    MONTH_MS,
    RATE_CARDS,
    RateCard,
    egress_nano_usd,
    kept_nano_usd,
    minimum_nano_usd,
    rate_card,
    storage_nano_usd,
)
from providers.money import MS_PER_HOUR, cost_nano_usd, usd

CARD = RateCard("a test", minimum_ms=60_000, storage_nano_usd_per_gb_month=usd("0.02"))


def test_every_card_says_who_published_it():
    assert all(card.source and card.declared for card in RATE_CARDS.values())
    assert not rate_card("a cloud nobody has heard of").declared


def test_a_gigabyte_for_a_month_costs_the_published_rate_and_nothing_before_it_is_there():
    assert storage_nano_usd(CARD, [(0, GB)], 0, MONTH_MS) == usd("0.02")
    assert storage_nano_usd(CARD, [(MONTH_MS // 2, GB)], 0, MONTH_MS) == usd("0.01")
    assert storage_nano_usd(CARD, [], 0, MONTH_MS) == 0
    assert storage_nano_usd(CARD, [(0, GB)], 5, 5) == 0


def test_bytes_are_moved_at_the_rate_of_their_route_rounded_down():
    assert egress_nano_usd(usd("0.09"), 10 * GB) == usd("0.9")
    assert egress_nano_usd(usd("0.09"), 1) == 0


@pytest.mark.parametrize(("lived_ms", "charged_ms"), [(1, 59_999), (20_000, 40_000), (60_000, 0), (70_000, 0)])
def test_a_machine_of_seconds_costs_as_one_of_the_shortest_time_that_is_billed(lived_ms, charged_ms):
    hourly = 3600 * 1000 * 7
    assert minimum_nano_usd(CARD, [(0, hourly)], 5, 5 + lived_ms) == charged_ms * 7


def test_the_price_at_its_end_holds_for_the_rest_of_the_shortest_time():
    path = [(0, usd(1)), (10_000, usd(2)), (30_000, usd(50))]
    minimum = minimum_nano_usd(CARD, path, 0, 20_000)
    assert minimum + cost_nano_usd(path, 0, 20_000) == cost_nano_usd(path[:2], 0, 60_000)


levels = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 10**12)), max_size=6, unique_by=lambda each: each[0])


@given(levels.map(sorted), st.integers(0, 10**9), st.integers(0, 300), st.integers(0, 300))
def test_keeping_bytes_costs_what_adding_it_up_by_the_millisecond_gives(levels, rate, one, other):
    start, end = sorted((one, other))
    brute = sum(([0] + [size for since, size in levels if since <= ms])[-1] for ms in range(start, end))
    assert kept_nano_usd(rate, levels, start, end) == rate * brute // (GB * MONTH_MS)


@given(st.integers(0, 10**13), st.integers(0, 10**8), st.integers(1, 10**7))
def test_machine_and_minimum_together_cost_the_longer_of_the_two_times(price, start, lived_ms):
    end = start + lived_ms
    whole = cost_nano_usd([(0, price)], start, max(end, start + CARD.minimum_ms))
    assert cost_nano_usd([(0, price)], start, end) + minimum_nano_usd(CARD, [(0, price)], start, end) == whole
    assert whole == price * max(lived_ms, CARD.minimum_ms) // MS_PER_HOUR
