"""Notice: what a machine learns of its own end from its provider, in time to save its work."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Notice:
    """The provider will preempt this machine: `deadline_monotonic_s` is a time of CLOCK_MONOTONIC (wall seconds)."""

    kind: str
    deadline_monotonic_s: float
