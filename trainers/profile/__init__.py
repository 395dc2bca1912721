"""Profiles: count the operations of a training step, by running a few steps of the real program under `attach()`."""

from trainers.profile.counts import STEPS, TOO_FEW_STEPS, StepCounts

__all__ = ["STEPS", "TOO_FEW_STEPS", "StepCounts"]
