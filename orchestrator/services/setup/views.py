"""Views of `init`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from orchestrator.services.views import Check


@dataclass(frozen=True, slots=True)
class FirstJob:
    """A job that trains for an hour on one `gpu`: where it would run now, and what it would cost with start-up and
    interruptions. The low and high costs enclose 90%. Without an offer, `why_not` gives the reason."""

    gpu: str | None = None
    offer_id: str | None = None
    cost_nano_usd: int | None = None
    cost_low_nano_usd: int | None = None
    cost_high_nano_usd: int | None = None
    duration_s: float | None = None
    simulated: bool = False
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class SetUp:
    """What `init` wrote, what `doctor` found with it, and what a first job would cost."""

    kind: ClassVar[str] = "init"

    path: str
    clouds: tuple[str, ...]
    store_root: str
    max_usd_per_hour: float
    checks: tuple[Check, ...]
    first_job: FirstJob

    @property
    def failed(self) -> bool:
        """True if a check failed."""
        return any(check.state == "fail" for check in self.checks)
