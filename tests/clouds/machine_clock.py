"""The clock of rented machines in tests: their `python3` reads it from a file, and a test moves it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from providers.clock import VirtualClock
from tests.machines.lab import Host

HURRY_S = 0.02
_GIVE_UP_S = 20
_PYTHON = f"""#!/bin/bash
exec {os.path.realpath(sys.executable)} -I -S -c 'if True:
    import sys, time
    read = lambda: open("/tmp/clock").read()
    def pause(seconds):
        open("/tmp/looked", "w").write(looked[0])
        really({HURRY_S})
    def now(clock):
        looked[0] = read()
        return float(looked[0])
    looked, really = [""], time.sleep
    time.clock_gettime, time.sleep = now, pause
    sys.argv = ["-", *sys.argv[4:]]
    exec(sys.stdin.read())' "$@"
"""
PROGRAMS = {"python3": _PYTHON}
"""For tests.clouds.machines.runner: a program that `python3 -I -S -` reads from its standard input has this clock, and
its sleep is short."""


class MachineClock:
    """Moves a virtual clock and that of all machines which keep their own time to live.

    `keeping` returns the host of each of these, and when its time is over.
    """

    def __init__(self, clock: VirtualClock, keeping: Callable[[], Sequence[tuple[Host, int]]]) -> None:
        self._clock, self._keeping = clock, keeping
        self._booted_s: dict[str, float] = {}

    def advance(self, market_s: float) -> None:
        """In steps from one machine's end to the next; each looks at the clock before it goes on."""
        end_ms = self._clock.now_ms() + round(market_s * 1000)
        self.looked()
        while (now_ms := self._clock.now_ms()) < end_ms:
            due = [at_ms for _, at_ms in self._keeping() if at_ms > now_ms]
            self._clock.advance((min([end_ms, *due]) - now_ms) / 1000)
            for host, _ in self._keeping():
                self.show(host)
            self.looked()

    def looked(self) -> None:
        """Each machine has looked at the clock and at its metadata since this was called, or has ended."""
        for host, _ in [*self._keeping()] * 2:
            looked = Path(f"/proc/{host.pid}/root/tmp/looked")
            with suppress(OSError):
                looked.unlink()
            give_up = time.monotonic() + _GIVE_UP_S
            while not host.ended and not looked.exists():
                assert time.monotonic() < give_up, host.name
                time.sleep(HURRY_S / 2)

    def show(self, host: Host) -> None:
        """Set the clock of one machine: seconds since this was first called for it, when it booted."""
        now_s = self._clock.monotonic_s()
        path = Path(f"/proc/{host.pid}/root/tmp/clock")
        partial = path.with_name("clock.new")
        with suppress(OSError):  # it has ended
            partial.write_text(repr(now_s - self._booted_s.setdefault(host.name, now_s)))
            partial.replace(path)
