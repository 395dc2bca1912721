"""Suspicion: a poll that succeeded and names too few offers.

An empty answer, a product that was renamed or a unit that is not understood looks like a region that sells nothing any
more. So when more than half of the offers of a source and region vanish in one poll, those that it does not name stay
listed, as old as they were, until a second poll, of another interval, agrees.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from orchestrator.store import Tx

MOST_GONE = 0.5
"""More than this share of the offers may not vanish unnoticed."""
ENABLED_INTERVAL_S = 300.0
"""Market seconds between two polls of an enabled provider that count as different ones."""


def suspicion(
    tx: Tx,
    source: str,
    region: str,
    scope: str,
    named: Collection[str],
    at_ms: int,
    interval_s: float,
    *,
    rows: int = 0,
    flagged: Collection[str] = (),
) -> str:
    """Why a whole poll of `source` in `region` at `at_ms` is not believed; empty if it is.

    `scope` is the region of the offers that it is about ('': of all), `interval_s` the usual time between two polls.
    `named` are the ids of the offers that it names, `rows` what the provider sent, and `flagged` the reasons of rows
    that were kept without being eligible: they tell what the offers were dropped for.
    """
    listed = tx.listed_by(source, scope)
    gone = len(listed - set(named))
    if gone <= MOST_GONE * len(listed):
        return ""
    since_ms = tx.suspect_since_ms(source, region)
    if since_ms is not None and at_ms - since_ms >= interval_s * 1000 / 2:
        return ""
    reasons = ", ".join(f"{number} {reason}" for reason, number in sorted(Counter(flagged).items()))
    sent = f"; {rows} rows were sent" if rows else ""
    return f"names {len(listed) - gone} of {len(listed)} offers{sent}" + (f", flagged {reasons}" if reasons else "")
