"""Decides when each region of each source is polled next: by its interval, with jitter and back-off after failures.

Time and randomness are arguments, so tests control both.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from providers.errors import AuthError, ProviderError, RegionDisabledError, SetupError

JITTER = 0.1
"""Intervals vary by this fraction in both directions, so that regions are not all polled at once and hit a rate limit.
"""
FIRST_RETRY_S = 30.0
NEEDS_ACTION_S = 3600.0
"""Wait after an error that a person has to fix (credentials, a disabled region)."""
STEP_MS = 60_000
"""If the clock goes back by more than this, it was wrong before, and times set by it are ignored."""


@dataclass(slots=True)
class _Turn:
    due_ms: int
    decided_ms: int
    failures: int = 0

    def due_at(self, now_ms: int) -> int:
        return now_ms if now_ms < self.decided_ms - STEP_MS else self.due_ms


@dataclass(slots=True)
class Schedule:
    """The next poll of every (source, region) pair. `chance` provides the jitter."""

    chance: random.Random
    _turns: dict[tuple[str, str], _Turn] = field(default_factory=dict)

    def follow(self, source: str, regions: Iterable[str], now_ms: int) -> None:
        """Set the regions of a source: new ones are due at once, missing ones are dropped."""
        names = set(regions)
        for key in [key for key in self._turns if key[0] == source and key[1] not in names]:
            del self._turns[key]
        for region in names:
            self._turns.setdefault((source, region), _Turn(now_ms, now_ms))

    def due(self, source: str, now_ms: int) -> list[str]:
        """The regions of a source that are due at `now_ms`, the longest overdue first."""
        turns = [(turn.due_at(now_ms), key[1]) for key, turn in self._turns.items() if key[0] == source]
        return [region for due_ms, region in sorted(turns) if due_ms <= now_ms]

    def next_ms(self, now_ms: int) -> int | None:
        """When the next poll is due (epoch ms); None if there are no regions."""
        return min((turn.due_at(now_ms) for turn in self._turns.values()), default=None)

    def done(self, source: str, region: str, now_ms: int, cadence_s: float, error: ProviderError | None) -> None:
        """Record the end of a poll and set the next one: after `cadence_s`, or after a back-off for `error`, never
        earlier than the provider asked.
        """
        turn = self._turns.setdefault((source, region), _Turn(now_ms, now_ms))
        turn.failures = 0 if error is None else turn.failures + 1
        wait_s = cadence_s if error is None else _backoff_s(error, turn.failures, cadence_s)
        wait_s *= 1 + JITTER * (2 * self.chance.random() - 1)
        if error is not None and error.retry_after_s is not None:
            wait_s = max(wait_s, error.retry_after_s)
        turn.due_ms, turn.decided_ms = now_ms + round(wait_s * 1000), now_ms


def _backoff_s(error: ProviderError, failures: int, cadence_s: float) -> float:
    if isinstance(error, AuthError | RegionDisabledError | SetupError):
        return max(cadence_s, NEEDS_ACTION_S)
    return min(cadence_s, FIRST_RETRY_S * 2.0 ** min(failures - 1, 16))
