"""The problem that the planner's tables solve."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.policy.slack.spells import Floats


@dataclass(frozen=True, slots=True)
class Problem:
    """The remaining work, and the prices. Times are hours, prices are per hour (in units of Planner.unit_usd, if a
    Planner asks); pools are numbered as in the market.

    - `pools`: the spot pools that are considered, with `spot_usd` and `speed` (relative to the fastest on-demand
      machine, at most 1).
    - `on_demand_pools`: the on-demand pools, the fastest first, with `on_demand_usd` and `on_demand_speed`.
    - `egress_usd`: the egress cost of a launch, by the pool of the checkpoint (row) and that of the launch (column).
    - `at`: the pool of the checkpoint; None if there is no checkpoint.
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
