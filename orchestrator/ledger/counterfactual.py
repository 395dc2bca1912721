"""What a job would have cost had it stayed on one offer that is never taken away: the yardstick of every saving.

It starts when the job did, takes one start-up, makes the same steps at that offer's throughput, and pays that offer's
prices as they were. Must not know: which offer, or who chose it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from providers.money import cost_nano_usd


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """The cost in nano-USD, and when it would have been done (epoch ms, market time)."""

    cost_nano_usd: int
    finish_at_ms: int


def counterfactual(
    price_changes: Sequence[tuple[int, int]], start_ms: int, *, steps: int, steps_per_s: float, startup_s: float = 0.0
) -> Counterfactual:
    """Staying from `start_ms` until `steps` are done at `steps_per_s` (market seconds).

    Past the last known change its price is carried forward. Raises ValueError when no price is known at `start_ms` or
    the rate is not positive.
    """
    if steps_per_s <= 0:
        raise ValueError(f"throughput must be positive, got {steps_per_s}")
    finish_ms = start_ms + math.ceil((startup_s + steps / steps_per_s) * 1000)
    return Counterfactual(cost_nano_usd(price_changes, start_ms, finish_ms), finish_ms)
