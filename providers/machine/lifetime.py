"""Enforces a machine's time to live, on the machine itself, as root.

providers.machine.user_data sends this module's text in front of that of a cloud's own `on_machine`. It needs only the
standard library of any Python 3. LIVES says for how many seconds the machine may go on from the moment at which it was
set. That moment is taken to be the last look that still showed the previous value, so the machine ends some seconds
early rather than late. The machine's own wall clock is not used.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

LIVES = "tradewind-lives"
LOOK_S = 5.0


def lives(to_live_s: int, now_ms: int) -> str:
    """The value of LIVES for a machine that may run for `to_live_s` from now."""
    return f"{to_live_s} from {now_ms}"


def wait_for_the_end(
    to_live_s: float,
    age_s: Callable[[], float],
    said: Callable[[], str | None],
    now: Callable[[], float],
    sleep: Callable[[float], None],
) -> None:
    """Return when the time to live is over: at first `to_live_s` after the launch, then as LIVES says.

    `age_s`: how long ago the launch was; `said`: the present value of LIVES. Both may raise OSError, ValueError and
    KeyError. `now` counts seconds."""
    looked = now()
    try:
        looked -= max(0.0, age_s())
    except (OSError, ValueError, KeyError):
        sys.stderr.write("tradewind: the metadata service does not report when this machine was launched\n")
    deadline, before = looked + to_live_s, ""
    while now() < deadline:
        began = now()
        try:
            found = said() or before
        except (OSError, ValueError, KeyError):
            found = before
        if found != before:
            seconds = found.split(" ")[0]
            if seconds.isdigit():  # the first look may be long after the launch, and the value much newer
                ends = looked + float(seconds)
                deadline = ends if before else max(deadline, ends)
            before = found
        looked = began
        sleep(max(0.0, min(LOOK_S, deadline - now())))


def since_boot_s() -> float:
    """How long ago this machine's first process started. Raises OSError and ValueError."""
    with open("/proc/1/stat", encoding="ascii", errors="replace") as file:
        started = file.read().rpartition(")")[2].split()[19]  # the 22nd field of proc_pid_stat(5), in ticks
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(started) / os.sysconf("SC_CLK_TCK")


def keep(age_s: Callable[[], float], said: Callable[[], str | None]) -> None:
    """Return when this machine has to end. Its time to live is the program's only argument."""
    parent = os.getppid()

    def sleep(seconds: float) -> None:
        time.sleep(seconds)
        if os.getppid() != parent:  # the script that shuts the machine down is gone
            os.execvp("shutdown", ["shutdown", "-h", "now"])

    wait_for_the_end(float(sys.argv[1]), age_s, said, lambda: time.clock_gettime(time.CLOCK_BOOTTIME), sleep)
    sys.stderr.write("tradewind: this machine was not renewed, and its time to live is over\n")
