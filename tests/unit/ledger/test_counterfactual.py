"""What staying on one machine would have cost."""

from __future__ import annotations

import pytest

from orchestrator.ledger import Counterfactual, counterfactual
from providers.money import usd

HOUR = 3_600_000


def test_it_pays_start_up_and_steps_at_the_prices_as_they_were():
    prices = [(0, usd(1)), (HOUR, usd(3))]
    found = counterfactual(prices, 0, steps=5400, steps_per_s=1.0, startup_s=1800)
    assert found == Counterfactual(usd(1) + usd(3), 2 * HOUR)


def test_the_last_price_is_carried_forward():
    assert counterfactual([(0, usd(1))], HOUR, steps=36_000, steps_per_s=1.0).cost_nano_usd == usd(10)


def test_a_rate_that_is_not_positive_is_refused():
    with pytest.raises(ValueError, match="positive"):
        counterfactual([(0, 1)], 0, steps=1, steps_per_s=0)
