"""The simulated market: a pure function of (seed, instant), shaped like a market, billed as it is shown."""

import random
from itertools import pairwise
from statistics import median

from hypothesis import given, settings
from hypothesis import strategies as st

from providers.hardware import GPUS
from providers.local import market as market_module
from providers.local.market import OPENED_MS, TYPES, LocalMarket
from providers.local.prices import PriceOverride, PricePath
from providers.money import cost_nano_usd

NOW = 1_750_000_000_000
HOUR = 3_600_000
MARKET = LocalMarket(3)
SPOT = [offer.id for offer in MARKET.offers if offer.spot]
instants = st.integers(NOW, NOW + 30 * 24 * HOUR)


def forget() -> None:
    for cached in ("_reclaim_after", "_change_instant", "_spot_ratio", "_normal"):
        getattr(market_module, cached).cache_clear()


@given(seed=st.integers(0, 99), questions=st.lists(st.tuples(st.sampled_from(SPOT), instants), max_size=20))
@settings(max_examples=30, deadline=None)
def test_answers_depend_on_seed_and_instant_alone(seed, questions):
    def ask(market, offer_id, at_ms):
        return (
            market.price(offer_id, at_ms),
            market.capacity(offer_id, at_ms),
            market.reclaim_after(offer_id, at_ms),
            market.changes_between(offer_id, at_ms - HOUR, at_ms),
        )

    forget()
    first = LocalMarket(seed)
    answers = {question: ask(first, *question) for question in questions}
    shuffled = list(answers)
    random.Random(0).shuffle(shuffled)
    forget()
    second = LocalMarket(seed)
    assert {question: ask(second, *question) for question in shuffled} == answers


def test_seeds_differ():
    assert [LocalMarket(1).price(offer, NOW) for offer in SPOT] != [LocalMarket(2).price(offer, NOW) for offer in SPOT]


def test_there_are_three_regions_of_two_zones_and_three_types_of_different_speed():
    assert len(MARKET.offers) == 3 * 2 * 3 * 2
    assert len({offer.id for offer in MARKET.offers}) == 36
    assert all(offer.simulated for offer in MARKET.offers)
    assert [GPUS[kind.gpu].throttle for kind in TYPES] == [0.25, 0.5, 1.0]


def test_spot_prices_change_every_20_to_90_minutes():
    for offer_id in SPOT[:4]:
        changes = MARKET.changes_between(offer_id, NOW, NOW + 20 * 24 * HOUR)
        gaps = [(b - a) / 60_000 for a, b in pairwise(changes)]
        assert min(gaps) >= 20
        assert max(gaps) <= 90
        assert max(gaps) - min(gaps) > 30


def test_spot_prices_revert_to_a_quarter_to_half_of_on_demand_with_spikes_and_dips():
    ratios = []
    for offer_id in SPOT:
        on_demand = MARKET.price(offer_id.replace("/spot", "/on_demand"), NOW)
        ratios.append([MARKET.price(offer_id, NOW + hour * HOUR) / on_demand for hour in range(30 * 24)])
    assert all(0.25 < median(series) < 0.5 for series in ratios)
    flat = [ratio for series in ratios for ratio in series]
    assert 0.01 < sum(ratio > 1 for ratio in flat) / len(flat) < 0.06
    assert 0.01 < sum(ratio < 0.22 for ratio in flat) / len(flat) < 0.08


def test_the_cheapest_hour_is_seldom_the_cheapest_step():
    def best(at_ms, capacity, speed):
        offers = [offer for offer in MARKET.offers if offer.capacity_type.value == capacity]
        return min(offers, key=lambda o: MARKET.price(o.id, at_ms) / (GPUS[o.gpu].throttle if speed else 1))

    assert best(NOW, "on_demand", speed=False).instance_type == "sim.small"
    assert best(NOW, "on_demand", speed=True).instance_type == "sim.large"
    hours = [NOW + hour * HOUR for hour in range(200)]
    same = sum(best(at, "spot", True).instance_type == best(at, "spot", False).instance_type for at in hours)
    assert same < 20


def test_pools_have_droughts_and_reclaims_at_their_hazard():
    samples = [MARKET.capacity(offer_id, NOW + hour * HOUR) for offer_id in SPOT for hour in range(0, 480, 2)]
    assert 0.06 < samples.count(0) / len(samples) < 0.2
    assert set(samples) == {0, 1, 2, 3, 4}
    expected = found = 0.0
    for offer_id in SPOT:
        expected += 240 * MARKET.hazard_per_hour(offer_id)
        at_ms = NOW
        while (reclaim := MARKET.reclaim_after(offer_id, at_ms)) and reclaim.at_ms <= NOW + 240 * HOUR:
            found += 1
            at_ms = reclaim.at_ms
    assert 0.7 < found / expected < 1.3


def test_on_demand_neither_changes_nor_runs_out_nor_is_reclaimed():
    offer_id = SPOT[0].replace("/spot", "/on_demand")
    assert MARKET.changes_between(offer_id, NOW, NOW + 99 * HOUR) == []
    assert MARKET.capacity(offer_id, NOW) is None
    assert MARKET.hazard_per_hour(offer_id) == 0
    assert PricePath(MARKET, []).in_force(offer_id, NOW) == (OPENED_MS, MARKET.price(offer_id, NOW))


seconds = st.integers(0, 3 * 3600)
overrides = st.lists(
    st.builds(
        lambda price, begin, length: PriceOverride(SPOT[0], price, NOW + begin * 1000, NOW + (begin + length) * 1000),
        st.sampled_from([1, 200_000_000, 900_000_000]),
        seconds,
        seconds,
    ),
    max_size=3,
)


@given(overrides=overrides, begin=seconds, length=seconds)
@settings(max_examples=25, deadline=None)
def test_the_reported_changes_are_those_that_sampling_every_second_finds(overrides, begin, length):
    path = PricePath(MARKET, overrides)
    from_ms, until_ms = NOW + begin * 1000, NOW + (begin + length) * 1000
    prices = [(at, path.price(SPOT[0], at)) for at in range(from_ms, until_ms + 1, 1000)]
    sampled = [b for a, b in pairwise(prices) if a[1] != b[1]]
    (since, first), *changes = path.changes(SPOT[0], from_ms, until_ms)
    assert changes == sampled
    assert since <= from_ms
    assert {path.price(SPOT[0], at) for at in (since, (since + from_ms) // 2, from_ms)} == {first}
    assert path.price(SPOT[0], since - 1) != first


@given(overrides=overrides, begin=seconds, length=seconds)
@settings(max_examples=25, deadline=None)
def test_a_bill_is_the_sum_over_every_segment(overrides, begin, length):
    path = PricePath(MARKET, overrides)
    from_ms, until_ms = NOW + begin * 1000, NOW + (begin + length) * 1000
    brute = sum(path.price(SPOT[0], at) * 1000 for at in range(from_ms, until_ms, 1000)) // HOUR
    assert cost_nano_usd(path.changes(SPOT[0], from_ms, until_ms), from_ms, until_ms) == brute
