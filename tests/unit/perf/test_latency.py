"""What starting takes is learned from what was observed, at each place by itself and of its provider."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.perf import LatencyPrior, learned

PRIOR = LatencyPrior(300.0, 2.0, "five minutes")


def test_before_anything_was_seen_the_prior_speaks_within_its_factor() -> None:
    usual = learned(PRIOR, ()).usual
    assert usual.low < 150
    assert 300 < usual.value < 400
    assert usual.high > 600
    assert usual.provenance == "prior: five minutes"


def test_a_place_where_starts_were_seen_is_known_better_than_others_of_its_provider() -> None:
    found = learned(PRIOR, [("slow", 600.0)] * 5)
    assert found.at["slow"].value == pytest.approx(600, rel=0.08)
    assert 400 < found.usual.value < found.at["slow"].value
    assert found.at["slow"].high / found.at["slow"].low < found.usual.high / found.usual.low


def test_starts_that_scatter_widen_the_interval() -> None:
    steady = learned(PRIOR, [("here", 300.0)] * 10).at["here"]
    scattered = learned(PRIOR, [("here", seconds) for seconds in (100.0, 900.0) * 5]).at["here"]
    assert scattered.high / scattered.low > 2 * steady.high / steady.low


def test_nine_of_ten_next_starts_lie_in_the_interval() -> None:
    chance, hits, tries = random.Random(7), 0, 2000
    for _ in range(tries):
        provider = math.log(PRIOR.seconds) + chance.gauss(0, PRIOR.log_sd)
        places = [provider + chance.gauss(0, 0.25) for _ in range(4)]

        def start(place: int, places: list[float] = places) -> float:
            return math.exp(places[place] + chance.gauss(0, 0.2))

        found = learned(PRIOR, [(place, start(place)) for place in (0, 0, 1, 2)])
        place = chance.randrange(4)
        held = found.at.get(place, found.usual)
        hits += held.low <= start(place) <= held.high
    assert 0.86 <= hits / tries <= 0.94


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.01, 1e6)), max_size=12), st.randoms())
def test_the_order_of_observations_does_not_matter(seen: list[tuple[str, float]], chance: random.Random) -> None:
    mixed = list(seen)
    chance.shuffle(mixed)
    assert learned(PRIOR, mixed).usual.value == pytest.approx(learned(PRIOR, seen).usual.value)
