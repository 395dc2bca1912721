"""Outcome: what one history came to, for whoever adds many of them up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Outcome:
    """What became of one history. `deaths` and `pauses` of the control plane and `naps` of trainers are by edge,
    `harms` by kind; `digest` is of everything that the store tells of it."""

    seed: int
    findings: tuple[str, ...]
    deaths: Mapping[str, int]
    pauses: Mapping[str, int]
    naps: Mapping[str, int]
    harms: Mapping[str, int]
    migrations: int
    completed: int
    jobs: Mapping[str, int]
    machines: int
    events: int
    virtual_s: float
    digest: str
    story: tuple[str, ...] = field(repr=False, default=())
