"""Clocks: every component that needs the time or a pause takes a Clock as an argument.

Instants are integer milliseconds since the Unix epoch (UTC) in *market time*. On real clouds market time is wall time;
on `local` it runs faster by a declared factor. Leases between processes use `monotonic_s` instead, which a change of
the wall clock does not affect.
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
        """Market seconds per wall second (1.0 except on simulated markets)."""
        ...

    def now_ms(self) -> int:
        """The current market time in epoch milliseconds."""
        ...

    def monotonic_s(self) -> float:
        """Wall seconds since an arbitrary fixed point; never jumps. For leases, timeouts and pacing."""
        ...

    def sleep(self, wall_s: float) -> None:
        """Pause for `wall_s` wall seconds (a virtual clock advances at once)."""
        ...


def boot_id() -> str:
    """The kernel's id of this boot: monotonic times of different processes are comparable only within one boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


class SystemClock:
    """Market time equals wall time."""

    factor = 1.0

    def now_ms(self) -> int:
        """The wall clock in epoch milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """The kernel's monotonic clock in seconds."""
        return time.monotonic()

    def sleep(self, wall_s: float) -> None:
        """Pause for `wall_s` seconds."""
        time.sleep(wall_s)


@dataclass(frozen=True)
class AcceleratedClock:
    """Market time = `epoch_ms` + factor x (monotonic - `anchor_s`).

    It is anchored on the monotonic clock, so a change of the wall clock shifts no price, bill or deadline. Processes of
    one boot that share the anchor see the same market time.
    """

    factor: float
    epoch_ms: int
    anchor_s: float

    def now_ms(self) -> int:
        """The current market time in epoch milliseconds."""
        return self.epoch_ms + int((time.monotonic() - self.anchor_s) * self.factor * 1000)

    def monotonic_s(self) -> float:
        """The kernel's monotonic clock in wall seconds."""
        return time.monotonic()

    def sleep(self, wall_s: float) -> None:
        """Pause for `wall_s` wall seconds."""
        time.sleep(wall_s)


@dataclass
class VirtualClock:
    """A clock that moves only when advanced: years replay in minutes, and unit tests never sleep."""

    start_ms: int = 1_700_000_000_000
    factor: float = 1.0
    _elapsed_ms: int = field(default=0, init=False)

    def now_ms(self) -> int:
        """The current market time in epoch milliseconds."""
        return self.start_ms + int(self._elapsed_ms * self.factor)

    def monotonic_s(self) -> float:
        """Wall seconds by which the clock was advanced."""
        return self._elapsed_ms / 1000

    def sleep(self, wall_s: float) -> None:
        """Advance by `wall_s` wall seconds and return at once. Raises ValueError for a negative duration."""
        self.advance(wall_s)

    def advance(self, wall_s: float) -> None:
        """Move forward by `wall_s` wall seconds. Raises ValueError for a negative duration."""
        if wall_s < 0:
            raise ValueError("time cannot go backwards")
        self._elapsed_ms += round(wall_s * 1000)
