"""How long solving may take in all, over any number of runs of the solver. The solver measures its own time."""

from __future__ import annotations


class TimeLimit:
    """A limit of `seconds` of solving. What a part of the limit (see `part`) spends is also spent from the whole."""

    def __init__(self, seconds: float = 60.0, *, whole: TimeLimit | None = None) -> None:
        self.seconds = seconds
        self._whole = whole
        self._spent_s = 0.0

    @property
    def left_s(self) -> float:
        """How many seconds are left, at least 0."""
        return max(self.seconds - self._spent_s, 0.0)

    def spend(self, seconds: float) -> None:
        """Records that the solver has run for `seconds`."""
        self._spent_s += seconds
        if self._whole is not None:
            self._whole.spend(seconds)

    def part(self, share: float) -> TimeLimit:
        """A limit that is the part `share` of what is left."""
        return TimeLimit(share * self.left_s, whole=self)
