"""JobForecast: the expected cost and duration of a job that has not ended."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.model.plan import Evidence

START_UNKNOWN = "it is not known when it can start"
"""Shown instead of a forecast while a job waits for a limit, another job or a secret."""


@dataclass(frozen=True, slots=True)
class JobForecast:
    """The expected cost of a job from `at_ms` on (nano-USD) and the expected time until it is done (market seconds),
    each with its 5th and 95th percentile. `evidence` is the source of its speed."""

    at_ms: int
    cost_nano_usd: int
    cost_low_nano_usd: int
    cost_high_nano_usd: int
    duration_s: float
    duration_low_s: float
    duration_high_s: float
    evidence: Evidence
