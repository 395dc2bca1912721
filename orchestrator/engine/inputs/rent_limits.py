"""Limits on what an installation may rent at once ([limits] in tradewind.toml), and on what the jobs of one project may
rent ([projects.NAME])."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from orchestrator.config import Config
from orchestrator.policy.demand import RentLimits
from providers.money import NANO_USD, usd

_EXACT_USD = 1e9
"""Above this, rounding does not matter."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of the installation (`name` "limits") or of a `project`; inf: no limit. `usd` is per hour."""

    name: str
    machines: float
    usd: float
    project: str | None = None

    @property
    def nano_usd(self) -> float:
        """The most per hour, in nano-USD: exact, as prices are."""
        return usd(self.usd) if self.usd < _EXACT_USD else self.usd * NANO_USD


def limits_of(config: Config, project: str) -> Iterator[Limits]:
    """The limits of the installation, and those of the project if it has any."""
    yield Limits("limits", config.limits.max_instances, config.limits.max_usd_per_hour)
    own = config.projects.of(project)
    if own.max_instances is not None or own.max_usd_per_hour is not None:
        machines = inf if own.max_instances is None else own.max_instances
        dollars = inf if own.max_usd_per_hour is None else own.max_usd_per_hour
        yield Limits(f"projects.{project}", machines, dollars, project)


def rent_limits(config: Config, project: str) -> RentLimits:
    """The most that a job of this project may ever rent."""
    found = list(limits_of(config, project))
    few, cheap = min(found, key=lambda each: each.machines), min(found, key=lambda each: each.usd)
    return RentLimits(few.machines, cheap.nano_usd, f"{few.name}.max_instances", f"{cheap.name}.max_usd_per_hour")
