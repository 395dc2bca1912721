"""Sabotage: an exception that nobody expects, thrown into a compartment of the control plane (engine.compartment).

A step breaks before it began, or when it was done but not told.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


class Sabotage(Exception):
    """No error of ours: as from a defect, or from data that no line of code foresaw."""


@dataclass
class Saboteur:
    """Throws into `target`, a compartment by its name, for the job or provider `about` (None: whoever comes first), as
    often as `times` says. `begun` counts the steps, `struck` those broken, by compartment."""

    target: str | None = None
    about: str | None = None
    late: bool = False
    times: int = 1
    begun: Counter[str] = field(default_factory=Counter)
    struck: Counter[str] = field(default_factory=Counter)

    def arm(self, target: str, about: str | None = None, *, late: bool = False, times: int = 1) -> None:
        """Break the next `times` steps of this kind; the first of them decides for whom if `about` does not."""
        self.target, self.about, self.late, self.times = target, about, late, times

    def crossing(self, where: str, about: str) -> None:
        """A step begins."""
        self.begun[where] += 1
        if not self.late:
            self._strike(where, about)

    def crossed(self, where: str, about: str) -> None:
        """A step is done."""
        if self.late:
            self._strike(where, about)

    def _strike(self, where: str, about: str) -> None:
        if where != self.target or self.about not in (None, about) or self.times == 0:
            return
        self.times -= 1
        self.about = about
        self.struck[where] += 1
        raise Sabotage(f"thrown into {where} of {about}")
