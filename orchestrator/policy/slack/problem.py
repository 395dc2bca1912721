"""What the planner's tables solve."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.policy.slack.spells import Floats


@dataclass(frozen=True, slots=True)
class Problem:
    """What is left to do, and at which prices. Hours, US$ per hour; pools by their number in the market.

    `spot_usd` and `speed` (relative to the fastest on-demand machine's, at most 1) are those of `pools`, the spot pools
    that are considered, and `on_demand_usd` and `on_demand_speed` those of `on_demand_pools`, the first of which is the
    fastest; `egress_usd` is what a launch costs by the checkpoint's pool and the launch's. `at` is where the checkpoint
    is, None if there is none.
    """

    hours_left: float
    slack_h: float
    tick_h: float
    restart_h: float
    pools: tuple[int, ...]
    spot_usd: tuple[float, ...]
    speed: tuple[float, ...]
    on_demand_pools: tuple[int, ...]
    on_demand_usd: tuple[float, ...]
    on_demand_speed: tuple[float, ...]
    egress_usd: Floats
    at: int | None
