"""A planner's knowledge: the terms of a job, and its present situation."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from orchestrator.policy.slack.spells import Floats


@dataclass(frozen=True, slots=True)
class Terms:
    """The facts that stay the same for the whole job. Prices are in US$ per hour, times in hours, egress in US$.

    Raises ValueError if there are no pools, if a pool has no price or speed, or if a number is invalid.

    - `speed`: by pool. Hours of work are those of a machine with speed 1.
    - `egress_usd`: the egress cost of a launch, by the pool of the checkpoint (row) and that of the launch (column).
    - `only_spot`, `only_on_demand`: pools with only one kind of machine. The other price of such a pool is ignored.
    - `kept_h`: how long an on-demand machine is kept; at least a tick, and less if keeping it would endanger the
      deadline.
    """

    restart_h: float
    tick_h: float
    on_demand_usd: tuple[float, ...]
    egress_usd: Floats
    speed: tuple[float, ...]
    probe_h: float = 0.0
    only_spot: frozenset[int] = frozenset()
    only_on_demand: frozenset[int] = frozenset()
    kept_h: float = 0.0

    def __post_init__(self) -> None:
        count = len(self.on_demand_usd)
        if count == 0 or self.egress_usd.shape != (count, count):
            raise ValueError(f"a market needs pools, each with an on-demand price and egress prices: {self}")
        if len(self.speed) != count or not all(0 < each < math.inf for each in self.speed):
            raise ValueError(f"each pool needs a positive speed: {self.speed}")
        if not self.tick_h > 0:
            raise ValueError(f"a tick must be longer than 0 h, not {self.tick_h} h")
        require_numbers("on-demand price", self.on_demand_usd)
        require_numbers("egress price", self.egress_usd.ravel().tolist())
        hours = (self.restart_h, self.tick_h, self.probe_h, self.kept_h)
        require_numbers("restart overhead, tick, length of a probe or time that a machine is kept", hours)


class Situation(NamedTuple):
    """The present knowledge. Times are in hours, prices in US$ per hour by pool. `ticks_left` includes the present
    tick; `running` is (pool, whether the machine is spot); `at` is the pool of the checkpoint."""

    now_h: float
    ticks_left: int
    work_h: float
    running: tuple[int, bool] | None
    overhead_left_h: float
    at: int | None
    spot_usd: tuple[float, ...]


def require_numbers(what: str, values: Iterable[float]) -> None:
    """Raises ValueError if one of the values is negative or not finite. `what` names them in the message."""
    for value in values:
        if not 0 <= value < math.inf:
            raise ValueError(f"invalid {what}: {value}; it must be a finite number of at least 0")
