"""Hypothesis for the gate: the same examples every time, and no limit on how long one takes on a busy machine."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("gate", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gate")
