"""Detects suspect polls: successful polls that list too few offers.

An empty answer, a renamed product or an unknown unit looks like a region that no longer sells anything. So if more than
half of the offers of a source and region disappear in one poll, they stay listed, with their previous age, until a
second poll in another interval confirms it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from orchestrator.store import Tx

MOST_GONE = 0.5
"""A poll in which more than this share of the offers disappears is suspect."""
ENABLED_INTERVAL_S = 300.0
"""Market seconds after which a second poll of an enabled provider counts as independent."""


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
    """The reason why a complete poll of `source` in `region` at `at_ms` is suspect; empty if it is not.

    `scope` is the region of the offers that it covers ('': all), `interval_s` the usual time between two polls. `named`
    are the ids of the offers that it lists, `rows` the number of rows that the provider sent, and `flagged` the reasons
    of rows that are not eligible: they explain why offers were dropped.
    """
    listed = tx.listed_by(source, scope)
    gone = len(listed - set(named))
    if gone <= MOST_GONE * len(listed):
        return ""
    since_ms = tx.suspect_since_ms(source, region)
    if since_ms is not None and at_ms - since_ms >= interval_s * 1000 / 2:
        return ""
    reasons = ", ".join(f"{number} {reason}" for reason, number in sorted(Counter(flagged).items()))
    sent = f"; the source sent {rows} rows" if rows else ""
    return f"lists {len(listed) - gone} of {len(listed)} offers{sent}" + (f", flagged {reasons}" if reasons else "")
