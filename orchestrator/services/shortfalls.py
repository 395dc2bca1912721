"""Budgets and limits that are too small for a plan."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProjectMoney:
    """A project whose budget is too small for a plan: `spent_nano_usd` so far, and `cost_nano_usd` for its new jobs."""

    project: str
    budget_nano_usd: int
    spent_nano_usd: int
    cost_nano_usd: int


@dataclass(frozen=True, slots=True)
class FullLimit:
    """A limit on machines, or on nano-USD per hour, without room for all new jobs of a plan at once: `used` is what is
    rented now, and `wanted` what the new jobs need in addition."""

    setting: str
    most: int
    used: int
    wanted: int

    @property
    def of_money(self) -> bool:
        """Whether it limits the cost of machines."""
        return self.setting.endswith("max_usd_per_hour")
