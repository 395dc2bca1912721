"""Computes how long to train between two checkpoints, to minimise the cost of checkpoints plus lost work.

A checkpoint costs `cost_s` seconds, and a loss half an interval on average. With a loss every `mean_s` seconds, the sum
`cost_s / t + t / 2 / mean_s` is lowest at t = sqrt(2 * cost_s * mean_s) (Young, "A first order approximation to the
optimum checkpoint interval", 1974; Daly, FGCS 22, 2006). The other costs of a loss (a restart, the time until the last
checkpoint was durable) are the same for every t, so they change the sum but not the best t.

Both numbers are current: the cost is that of the latest checkpoint, and the losses are what the control plane expects
for this machine now. So the interval can become shorter as well as longer, unlike CheckFreq's (FAST 2021), which only
grows until checkpoints take their share of the time.
"""

from __future__ import annotations

import math

SHORTEST_S = 0.5
LONGEST_S = 15 * 60.0
"""The longest interval without a known risk. More than a quarter of an hour of work is never worth so little."""
LONGEST_KNOWN_S = 60 * 60.0
OTHER_LOSSES_PER_H = 0.01
"""The assumed rate of failures of programs, hosts and power, also if no provider takes machines away: one in 100
hours."""


def interval_s(cost_s: float, losses_per_h: float | None, max_overhead: float) -> float:
    """Seconds of training from one checkpoint to the next.

    `losses_per_h`: how often the run's machines are expected to be taken away; None: unknown, and checkpoints take the
    share `max_overhead` of the time. In both cases they take no more than that share, unless a save takes so long that
    the longest interval is too short: that interval limits the work that a crash can cost.
    """
    least_s = cost_s / max_overhead if max_overhead > 0 else math.inf
    if losses_per_h is None:
        return min(max(least_s, SHORTEST_S), LONGEST_S)
    mean_s = 3600.0 / (losses_per_h + OTHER_LOSSES_PER_H)
    return min(max(math.sqrt(2 * cost_s * mean_s), least_s, SHORTEST_S), LONGEST_KNOWN_S)
