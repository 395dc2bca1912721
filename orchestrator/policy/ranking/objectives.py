"""Objectives: orders offers by their expected cost and time: cost^a x time^b, with a tolerance for `fastest`."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from orchestrator.model import Objective
from orchestrator.policy.demand import TIME_TOLERANCE

Floats = NDArray[np.float64]

LEAST_TIME_WEIGHT = 0.05
"""The least weight of time in the objective by which waiting is judged. With `cheapest`, an hour of waiting must save
more than a nineteenth of the cost of an hour of the job."""


def objective_keys(objective: Objective, cost: Floats, seconds: Floats) -> tuple[Floats, ...]:
    """Sort keys, smaller is better: the objective itself (ordered as by `log_value`), then the measure that it weighs
    less.

    If the objective is cost or time alone, no logarithm is taken, because it would not change the order.
    """
    a, b = objective.cost_weight, objective.time_weight
    cost, seconds = np.maximum(cost, 1.0), np.maximum(seconds, 1e-3)
    if b == 0:
        return (cost, seconds)
    if a == 0:
        return (seconds, cost)
    main = a * np.log(cost) + b * np.log(seconds)
    return (main, seconds, cost) if a >= b else (main, cost, seconds)


def log_value(objective: Objective, cost: float, seconds: float) -> float:
    """ln(cost^a x time^b); cost in nano-USD, at least 1; time in seconds, at least 0.001."""
    a, b = objective.cost_weight, objective.time_weight
    return a * math.log(max(cost, 1.0)) + b * math.log(max(seconds, 1e-3))


def tolerant_keys(cost: Floats, seconds: Floats, earliest_s: float) -> tuple[Floats, ...]:
    """Sort keys for the earliest finish, smaller is better. Among finishes within the tolerance of `earliest_s`, the
    cost decides."""
    seconds = np.maximum(seconds, 1e-3)
    return np.where(seconds <= earliest_s * (1 + TIME_TOLERANCE), earliest_s, seconds), np.maximum(cost, 1.0), seconds


def patient(objective: Objective) -> Objective:
    """The objective by which waiting is judged: the job's own, with at least LEAST_TIME_WEIGHT for time."""
    time = max(objective.time_weight, LEAST_TIME_WEIGHT)
    return Objective(1 - time, time)
