"""How long to train between two checkpoints, so that checkpoints and the work lost with machines cost least together.

A checkpoint costs `cost_s` seconds, and a loss half an interval on average. With a loss every `mean_s` seconds, the sum
`cost_s / t + t / 2 / mean_s` is least at t = sqrt(2 * cost_s * mean_s) (Young, "A first order approximation to the
optimum checkpoint interval", 1974; Daly, FGCS 22, 2006). What each loss costs besides (a restart, the time until the
last checkpoint was durable) is the same for every t, so it changes the sum but not the best t.

Both numbers are live: the cost is that of the latest checkpoint, and the losses are what the control plane expects of
this machine at present. So the interval becomes shorter as well as longer, unlike CheckFreq's (FAST 2021), which only
grows until checkpoints take their share of the time.
"""

from __future__ import annotations

import math

SHORTEST_S = 0.5
LONGEST_S = 15 * 60.0
"""Without a known risk. The work of more than a quarter of an hour is never worth so little."""
LONGEST_KNOWN_S = 60 * 60.0
OTHER_LOSSES_PER_H = 0.01
"""Assumed: of programs, hosts and power, also where no provider takes machines away. One in 100 hours."""


def interval_s(cost_s: float, losses_per_h: float | None, max_overhead: float) -> float:
    """Seconds of training from one checkpoint to the next.

    `losses_per_h`: how often the run's machines are expected to be taken away; None: unknown, then checkpoints take the
    share `max_overhead` of the time. Known or not, they take no more than that, unless a save takes so long that the
    longest interval does not suffice: it bounds the work that a crash can cost.
    """
    least_s = cost_s / max_overhead if max_overhead > 0 else math.inf
    if losses_per_h is None:
        return min(max(least_s, SHORTEST_S), LONGEST_S)
    mean_s = 3600.0 / (losses_per_h + OTHER_LOSSES_PER_H)
    return min(max(math.sqrt(2 * cost_s * mean_s), least_s, SHORTEST_S), LONGEST_KNOWN_S)
