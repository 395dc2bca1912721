"""Reserves: how long a job's machines must still be paid for when its budget pauses the job."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.model import Run
from orchestrator.policy.demand import Reserve

LOOK_EVERY_S = 0.5  # wall
RELEASE_WALL_S = 2.0  # how long a machine on this host is still billed after the decision to end it
RELEASE_MARKET_S = 30.0  # the same for a real provider, which answers more slowly
STOP_WALL_S = 3.0  # a checkpoint and its overhead; two steps are added
STOP_TIMEOUT_WALL_S = 120.0  # but at most this
POLL_EVERY_WALL_S = 1.0  # the local market changes every few seconds,
POLL_EVERY_MARKET_S = 30.0  # a real one every few minutes


def release_market_s(factor: float, look_every_s: float = LOOK_EVERY_S) -> float:
    """How long a machine is still billed after the decision to end it, in market seconds."""
    return max(RELEASE_WALL_S * factor, RELEASE_MARKET_S) + look_every_s * factor


def stop_market_s(factor: float, step_wall_s: float, look_every_s: float = LOOK_EVERY_S) -> float:
    """Market seconds to save a checkpoint at the end of a step."""
    return (STOP_WALL_S + 2 * step_wall_s + 2 * look_every_s) * factor


def poll_every_wall_s(factor: float) -> float:
    """Wall seconds between two polls of a provider's prices."""
    return max(POLL_EVERY_WALL_S, POLL_EVERY_MARKET_S / factor)


def reserve_of(runs: Iterable[Run], factor: float) -> Reserve:
    """The reserve of a job with these runs. The market clock runs `factor` times as fast as the wall clock."""
    step_wall_s = max((run.step_wall_s or 0.0 for run in runs), default=0.0)
    return Reserve(
        release_market_s(factor),
        stop_market_s(factor, 0.0),
        STOP_TIMEOUT_WALL_S * factor,
        step_wall_s * factor,
        2 * poll_every_wall_s(factor) * factor,  # the answer to a poll may take as long as the time between two polls
    )
