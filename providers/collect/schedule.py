"""When each region of each source is polled next: its own cadence, jitter, and patience after a failure.

Time and chance come in as arguments, so that a test turns them by hand.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from providers.errors import AuthError, ProviderError, RegionDisabledError, SetupError

JITTER = 0.1
"""Intervals vary by this fraction either way, so that regions don't fall into step and hit a rate limit together."""
FIRST_RETRY_S = 30.0
HOPELESS_S = 3600.0
"""After an error that no waiting heals (credentials, a region that is off): somebody has to act first."""
STEP_MS = 60_000
"""A clock that goes back by more than this was wrong before: what it decided then counts no more."""


@dataclass(slots=True)
class _Turn:
    due_ms: int
    decided_ms: int
    failures: int = 0

    def due_at(self, now_ms: int) -> int:
        return now_ms if now_ms < self.decided_ms - STEP_MS else self.due_ms


@dataclass(slots=True)
class Schedule:
    """The turns of all (source, region) pairs. `chance` gives the jitter."""

    chance: random.Random
    _turns: dict[tuple[str, str], _Turn] = field(default_factory=dict)

    def follow(self, source: str, regions: Iterable[str], now_ms: int) -> None:
        """Take over a source's list of regions: new ones are due at once, those that are gone are forgotten."""
        names = set(regions)
        for key in [key for key in self._turns if key[0] == source and key[1] not in names]:
            del self._turns[key]
        for region in names:
            self._turns.setdefault((source, region), _Turn(now_ms, now_ms))

    def due(self, source: str, now_ms: int) -> list[str]:
        """The regions of a source whose turn it is, the longest overdue first."""
        turns = [(turn.due_at(now_ms), key[1]) for key, turn in self._turns.items() if key[0] == source]
        return [region for due_ms, region in sorted(turns) if due_ms <= now_ms]

    def next_ms(self, now_ms: int) -> int | None:
        """When the next turn is; None when nothing is followed."""
        return min((turn.due_at(now_ms) for turn in self._turns.values()), default=None)

    def done(self, source: str, region: str, now_ms: int, cadence_s: float, error: ProviderError | None) -> None:
        """A poll has ended; decides when the next one is. An error sets its own pace, never faster than it asked."""
        turn = self._turns.setdefault((source, region), _Turn(now_ms, now_ms))
        turn.failures = 0 if error is None else turn.failures + 1
        wait_s = cadence_s if error is None else _patience_s(error, turn.failures, cadence_s)
        wait_s *= 1 + JITTER * (2 * self.chance.random() - 1)
        if error is not None and error.retry_after_s is not None:
            wait_s = max(wait_s, error.retry_after_s)
        turn.due_ms, turn.decided_ms = now_ms + round(wait_s * 1000), now_ms


def _patience_s(error: ProviderError, failures: int, cadence_s: float) -> float:
    if isinstance(error, AuthError | RegionDisabledError | SetupError):
        return max(cadence_s, HOPELESS_S)
    return min(cadence_s, FIRST_RETRY_S * 2.0 ** min(failures - 1, 16))
