"""Swing: how far the mean price of a spot machine strays from the price at which it was chosen. Pure.

What is chosen is what is cheap just now, so prices rise afterwards more often and by more than they fall. That is in
these figures, which are quantiles of

    ln(mean price per unit of work paid over a stretch / price when it was chosen)

found by historical simulation: choose the cheapest spot offer per unit of work at many instants of a known market, and
follow it. (A job that moves when its price rises pays less: it moves seldom within the hours that these are about.)
Must not know: jobs, offers.
"""

from __future__ import annotations

from typing import NamedTuple


class Swing(NamedTuple):
    """The 5th percentile is `-down`, the 95th `up`, for stretches of `hold_h` hours or more; in shorter ones the price
    has had less time to change."""

    down: float
    up: float
    hold_h: float


USUAL = Swing(0.10, 0.15, 72.0)
"""Of a cloud. Its spot prices change by some percent in a week (GCP's list, 2023 to 2026: a step of 5 % in the median,
22 % at the 90th percentile)."""
SIMULATED = Swing(0.13, 0.75, 1.25)
"""Of the `local` provider's market: 120 choices on seeds 5000 to 5059. It changes about once in an hour."""
