"""Outcome: the result of one history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Outcome:
    """The result of one history. `deaths` and `pauses` of control planes and `naps` of trainers are counted by edge,
    `harms` by kind; `digest` is a hash of the store's content."""

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
