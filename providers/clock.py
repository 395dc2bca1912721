"""Time as an argument: every component that needs an instant or a pause asks a Clock.

All instants are integers, milliseconds since the Unix epoch (UTC), of
*market* time; on real clouds market time is wall time, on `local` it runs faster by a declared factor.
Leases between processes are no market time: they use `monotonic_s`, which no wall-clock jump can move.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


class Clock(Protocol):
    """A source of market time and of pauses."""

    @property
    def factor(self) -> float:
        """Market seconds that pass in one wall second (1.0 except on simulated markets)."""
        ...

    def now_ms(self) -> int:
        """The present instant in market time, epoch milliseconds."""
        ...

    def monotonic_s(self) -> float:
        """Wall seconds since an arbitrary fixed instant; never jumps. For leases, timeouts and pacing."""
        ...

    def sleep(self, wall_s: float) -> None:
        """Pause for `wall_s` wall seconds (a virtual clock advances at once)."""
        ...


def boot_id() -> str:
    """The kernel's identity of this boot: monotonic readings compare across processes only within one boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


class SystemClock:
    """Wall time as market time."""

    factor = 1.0

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()

    def sleep(self, wall_s: float) -> None:
        time.sleep(wall_s)


@dataclass(frozen=True)
class AcceleratedClock:
    """Market time = `epoch_ms` + factor x (monotonic - `anchor_s`).

    Anchored on the monotonic clock, so that a wall clock that jumps moves no price, bill or deadline.
    The same anchor in several processes of one boot gives the same market time in all of them.
    """

    factor: float
    epoch_ms: int
    anchor_s: float

    def now_ms(self) -> int:
        return self.epoch_ms + int((time.monotonic() - self.anchor_s) * self.factor * 1000)

    def monotonic_s(self) -> float:
        return time.monotonic()

    def sleep(self, wall_s: float) -> None:
        time.sleep(wall_s)


@dataclass
class VirtualClock:
    """A clock that moves only when told to: years replay in minutes, and unit tests never sleep."""

    start_ms: int = 1_700_000_000_000
    factor: float = 1.0
    _elapsed_ms: int = field(default=0, init=False)

    def now_ms(self) -> int:
        return self.start_ms + int(self._elapsed_ms * self.factor)

    def monotonic_s(self) -> float:
        return self._elapsed_ms / 1000

    def sleep(self, wall_s: float) -> None:
        self.advance(wall_s)

    def advance(self, wall_s: float) -> None:
        """Move forward by `wall_s` wall seconds. Raises ValueError for a negative step."""
        if wall_s < 0:
            raise ValueError("time does not run backwards")
        self._elapsed_ms += round(wall_s * 1000)
