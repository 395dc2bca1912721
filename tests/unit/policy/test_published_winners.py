"""The objective flips the choice, exactly as published: 26 job kinds, three price sets (Narayanan et al. 2020)."""

from __future__ import annotations

import pytest

from benchmarks.objectives import OBJECTIVES, PRICES, PUBLISHED, RATES, oracle, winners
from tests.shared_data import shared

VALUE = {"cost": lambda price, rate: price / rate, "time": lambda _price, rate: 1 / rate}
VALUE["cost x time"] = lambda price, rate: price / rate / rate


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("prices", PRICES)
def test_each_job_kind_goes_to_the_gpu_that_a_division_says(prices, name):
    rates = oracle(shared(RATES))
    found = winners(rates, PRICES[prices], OBJECTIVES[name])
    dollars = {gpu: float(price) for gpu, price in PRICES[prices].items()}
    expected = {
        # of equally fast ones the cheaper
        job: min(dollars, key=lambda gpu: (VALUE[name](dollars[gpu], rates[job][gpu]), dollars[gpu]))
        for job in rates
    }
    assert found == expected
    if (prices, name) in PUBLISHED:
        counts = {gpu: list(found.values()).count(gpu) for gpu in set(found.values())}
        assert counts == PUBLISHED[prices, name]
