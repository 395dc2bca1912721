"""Sabotage: raises an unexpected exception in a compartment of the control plane (engine.compartment), before or
after a step."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


class Sabotage(Exception):
    """An unexpected error, as from a defect or from unforeseen data."""


@dataclass
class Saboteur:
    """Throws into `target`, a compartment by its name, for the job or provider `about` (None: the first one), as
    often as `times` says. `begun` counts the steps, `struck` those broken, by compartment."""

    target: str | None = None
    about: str | None = None
    late: bool = False
    times: int = 1
    begun: Counter[str] = field(default_factory=Counter)
    struck: Counter[str] = field(default_factory=Counter)

    def arm(self, target: str, about: str | None = None, *, late: bool = False, times: int = 1) -> None:
        """Breaks the next `times` steps of this kind, for `about` or else for the first that begins."""
        self.target, self.about, self.late, self.times = target, about, late, times

    def crossing(self, where: str, about: str) -> None:
        """Called when a step begins. Raises Sabotage."""
        self.begun[where] += 1
        if not self.late:
            self._strike(where, about)

    def crossed(self, where: str, about: str) -> None:
        """Called when a step is done. Raises Sabotage."""
        if self.late:
            self._strike(where, about)

    def _strike(self, where: str, about: str) -> None:
        if where != self.target or self.about not in (None, about) or self.times == 0:
            return
        self.times -= 1
        self.about = about
        self.struck[where] += 1
        raise Sabotage(f"thrown into {where} of {about}")
