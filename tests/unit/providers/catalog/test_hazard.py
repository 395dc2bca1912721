"""What a share of interrupted machines may mean per hour."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.catalog import Interruption, hazard
from providers.catalog.hazard import EXPOSURE_H, MONTH_H


@given(share=st.floats(0, 0.99), hours=st.floats(0.1, 1000))
def test_at_that_hazard_just_that_share_is_lost(share: float, hours: float) -> None:
    assert 1 - math.exp(-hazard(share, hours) * hours) == pytest.approx(share, abs=1e-9)


def test_the_middle_of_the_bucket_counts() -> None:
    assert Interruption(0.05, 0.10, 0, "x").hazard_per_hour() == pytest.approx(-math.log(0.925) / EXPOSURE_H)
    assert Interruption(0.05, 0.10, 0, "x").hazard_per_hour(MONTH_H) == pytest.approx(-math.log(0.925) / MONTH_H)


def test_worse_buckets_are_worse_and_bounds_enclose() -> None:
    buckets = [(0.0, 0.05), (0.05, 0.10), (0.10, 0.15), (0.15, 0.20), (0.20, None)]
    kinds = [Interruption(low, high, 0, "x") for low, high in buckets]
    rates = [kind.hazard_per_hour() for kind in kinds]
    assert rates == sorted(rates)
    for kind in kinds:
        least, most = kind.hazard_bounds()
        assert 0 <= least < kind.hazard_per_hour() < most


@pytest.mark.parametrize(("share", "hours"), [(1.0, 24), (-0.1, 24), (0.1, 0), (math.nan, 24), (0.1, math.nan)])
def test_nonsense_is_refused(share: float, hours: float) -> None:
    with pytest.raises(ValueError, match="gives no hazard"):
        hazard(share, hours)
