"""Wanted: random jobs for histories, with their limits."""

from __future__ import annotations

import random
from types import MappingProxyType

from orchestrator.model import CHEAPEST, FASTEST, JobSpec, Objective, Resources, TrainSpec
from orchestrator.model.job import Args
from providers.money import usd
from providers.offer import CapacityType

SECRET = "TOKEN"


def train_spec(steps: int, *, args: Args = MappingProxyType({}), secrets: tuple[str, ...] = ()) -> TrainSpec:
    """A program for simulated machines: only its steps matter there."""
    return TrainSpec(
        entry="train:main", script=None, args=dict(args), workdir="/", env={}, secrets=secrets, steps=steps, epochs=None
    )


def wanted_of(rng: random.Random, name: str, *, gangs: bool = False) -> JobSpec:
    """One job; with `gangs`, most need several machines at once."""
    secrets = (SECRET,) if rng.random() < 0.12 else ()
    return JobSpec(
        name,
        train_spec(rng.choice((40, 80, 140)), secrets=secrets),
        resources=Resources(nodes=rng.choice((1, 2, 2, 3))) if gangs else Resources(),
        objective=rng.choice((CHEAPEST, CHEAPEST, FASTEST, Objective(0.5, 0.5))),
        deadline_s=rng.choice((None, None, 120.0, 900.0)),
        budget_nano_usd=rng.choice((None, None, None, usd("0.08"))),
        capacity=rng.choice(((CapacityType.SPOT, CapacityType.ON_DEMAND), (CapacityType.SPOT,))),
        retries=2,
        standby=rng.choice(("none", "none", "none", "warm")),
    )
