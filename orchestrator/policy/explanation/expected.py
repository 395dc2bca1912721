"""Expected: the forecast of a decision about a job, or the reason why there is none."""

from __future__ import annotations

from orchestrator.model import JobForecast, Placement
from orchestrator.policy.explanation.explain import NOT_MEASURED

MOST_NANO_USD, LONGEST_S = 10**18, 1e11
"""A billion dollars and 3,000 years. Larger forecasts result only from wrong reports, and the store cannot hold
them."""


def believable(saving_nano_usd: float) -> int:
    """A saving that may be shown: 0 if it is so large that it must result from wrong speeds."""
    return round(saving_nano_usd) if abs(saving_nano_usd) <= MOST_NANO_USD else 0


def expected(placement: Placement, now_ms: int) -> JobForecast | str:
    """The forecast of a decision made at `now_ms` (market ms), or the reason why there is none."""
    if placement.evidence == "none":
        return NOT_MEASURED
    chosen = next((each for each in placement.alternatives if each.offer_id == placement.offer_id), placement.awaited)
    if chosen is None:
        return placement.reason
    cost, cost_low, cost_high = placement.cost_nano_usd, chosen.cost_low_nano_usd, chosen.cost_high_nano_usd
    finish_ms, low_s, high_s = placement.finish_at_ms, chosen.duration_low_s, chosen.duration_high_s
    if cost is None or cost_low is None or cost_high is None or finish_ms is None or low_s is None or high_s is None:
        return "the number of remaining steps is not known yet"
    if not max(cost, cost_high) <= MOST_NANO_USD or not max(low_s, high_s) <= LONGEST_S:
        return "no machine is fast enough at the known speeds: the job's reports may be wrong"
    return JobForecast(
        now_ms, cost, cost_low, cost_high, (finish_ms - now_ms) / 1000, low_s, high_s, placement.evidence
    )
