"""Outages: how long missing capacity of a market's spot offers is expected to stay away."""

from __future__ import annotations

import numpy as np

from orchestrator.market import Market, expected_wait_s, mean_outage_h
from orchestrator.policy.ranking.pool import Floats, Rows

MOST_WAIT = 1.0
"""The longest time that capacity may be away or a job may wait, including the time so far and the expected rest. In
multiples of the time that the whole job takes on the open offer."""


def wait_seconds(market: Market, rows: Rows) -> Floats:
    """Market seconds until a launch in each of some spot rows is expected to succeed."""
    return expected_wait_s(
        mean_outages_h(market, rows),
        at_ms=market.at,
        last_sign_ms=market.backed_off_at[rows],
        until_ms=market.backed_off_until[rows],
    )


def outage_h(market: Market, row: int) -> float:
    """The expected length (hours) of an outage of a spot row."""
    return float(mean_outages_h(market, np.array([row]))[0])


def mean_outages_h(market: Market, rows: Rows) -> Floats:
    """The expected length (hours) of an outage of each of some spot rows."""
    of_provider_h = market.outage_by_provider_h[market.listing.site_provider[market.listing.site[rows]]]
    return mean_outage_h(of_provider_h, market.returns[rows], market.away_ms[rows])
