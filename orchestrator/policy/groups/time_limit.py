"""How long solving may take in all, over as many runs of the solver as it needs. The solver measures its time."""

from __future__ import annotations


class TimeLimit:
    """So many `seconds` of solving. What a part of it spends, it spends, too."""

    def __init__(self, seconds: float = 60.0, *, whole: TimeLimit | None = None) -> None:
        self.seconds = seconds
        self._whole = whole
        self._spent_s = 0.0

    @property
    def left_s(self) -> float:
        """How many seconds are left, at least 0."""
        return max(self.seconds - self._spent_s, 0.0)

    def spend(self, seconds: float) -> None:
        """The solver has run for so long."""
        self._spent_s += seconds
        if self._whole is not None:
            self._whole.spend(seconds)

    def part(self, share: float) -> TimeLimit:
        """The part `share` of what is left."""
        return TimeLimit(share * self.left_s, whole=self)
