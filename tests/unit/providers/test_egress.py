"""The most specific price of moving bytes wins; what is unknown costs a documented default."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.billing.charges import GB
from providers.billing.egress import (
    UNKNOWN_INTERNET_NANO_USD,
    UNKNOWN_REGION_NANO_USD,
    UNKNOWN_ZONE_NANO_USD,
    EgressRow,
    EgressTable,
    Location,
)

CENT = 10_000_000
CONTINENTS = {("c", "us-1"): "na", ("c", "us-2"): "na", ("c", "eu-1"): "eu", ("c", "eu-2"): "eu"}
ROWS = [
    EgressRow("c", "*", "zone", 1 * CENT),
    EgressRow("c", "*", "region", 8 * CENT),
    EgressRow("c", "us-1", "region", 7 * CENT),
    EgressRow("c", "continent:na", "continent:na", 2 * CENT),
    EgressRow("c", "us-1", "us-2", 0),
    EgressRow("c", "*", "eu-2", 15 * CENT),
    EgressRow("c", "*", "internet", 12 * CENT),
    EgressRow("c", "continent:eu", "internet", 9 * CENT),
    EgressRow("c", "eu-2", "internet", 11 * CENT),
]
TABLE = EgressTable(ROWS, CONTINENTS)


@pytest.mark.parametrize(
    ("source", "target", "cents"),
    [
        (("c", "us-1", "a"), ("c", "us-1", "a"), 0),
        (("c", "us-1", "a"), ("c", "us-1", "b"), 1),
        (("c", "us-1"), ("c", "us-1", "b"), 0),
        (("c", "us-1", "a"), ("c", "us-1"), 0),
        (("c", "us-1"), ("c", "us-2"), 0),
        (("c", "us-2"), ("c", "us-1"), 2),
        (("c", "us-1"), ("c", "eu-1"), 7),
        (("c", "us-2"), ("c", "eu-1"), 8),
        (("c", "us-1"), ("c", "eu-2"), 15),
        (("c", "eu-1"), ("c", "eu-2"), 15),
        (("c", "nowhere"), ("c", "us-1"), 8),
        (("c", "us-1"), ("d", "us-1"), 12),
        (("c", "eu-1"), ("d", "x"), 9),
        (("c", "eu-2"), ("d", "x"), 11),
    ],
)
def test_the_most_specific_row_wins(source, target, cents) -> None:
    assert TABLE.rate(source, target) == cents * CENT


def test_what_is_unknown_costs_a_default_and_never_nothing() -> None:
    assert TABLE.rate(("d", "x", "a"), ("d", "x", "b")) == UNKNOWN_ZONE_NANO_USD > 0
    assert TABLE.rate(("d", "x"), ("d", "y")) == UNKNOWN_REGION_NANO_USD > 0
    assert TABLE.rate(("d", "x"), ("c", "us-1")) == UNKNOWN_INTERNET_NANO_USD > 0


def test_equal_region_names_of_two_providers_are_two_places() -> None:
    assert TABLE.rate(("c", "eu-1"), ("d", "eu-1")) == 9 * CENT


def test_costs_are_exact_and_rounded_down() -> None:
    assert TABLE.cost_nano_usd(("c", "us-1"), ("c", "eu-1"), 100 * GB) == 700 * CENT
    assert TABLE.cost_nano_usd(("c", "us-1"), ("c", "eu-1"), 1) == 0


def test_contradictions_are_refused() -> None:
    with pytest.raises(ValueError, match="duplicate egress rate of c from \\* to zone"):
        EgressTable([ROWS[0], EgressRow("c", "*", "zone", 0)], {})
    with pytest.raises(ValueError, match="negative"):
        EgressTable([EgressRow("c", "*", "zone", -1)], {})


places = st.builds(
    Location,
    st.sampled_from("cd"),
    st.sampled_from(["us-1", "us-2", "eu-1", "eu-2", "x"]),
    st.sampled_from(["", "a", "b"]),
)


@given(source=places, targets=st.lists(places, max_size=20))
def test_many_at_once_are_each_by_itself(source: Location, targets: list[Location]) -> None:
    found = TABLE.rates(source, targets)
    assert found.dtype == np.int64
    assert list(found) == [TABLE.rate(source, target) for target in targets]


@given(source=places, target=places)
def test_staying_is_free_and_nothing_is_negative(source: Location, target: Location) -> None:
    assert TABLE.rate(source, source) == 0
    assert TABLE.rate(source, target) >= 0
