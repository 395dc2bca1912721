"""A wall clock that jumps: market time and leases stand on CLOCK_MONOTONIC, which never does.

The jump happens inside a process of its own, where `time.time` and its relatives are a day off from one call to the
next.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

JUMPING = """
import sys, time
from pathlib import Path

off_s = 0.0
honest, honest_ns = time.time, time.time_ns
time.time = lambda: honest() + off_s
time.time_ns = lambda: honest_ns() + int(off_s * 1e9)
"""


def _jumping(code: str, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", JUMPING + code, *arguments], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_market_time_takes_no_part_in_a_jump_of_the_wall_clock(tmp_path: Path) -> None:
    _jumping(
        """
from orchestrator.installation import anchored_clock

path = Path(sys.argv[1])
clock = anchored_clock(path, 600.0)
for off_s in (86_400.0, -86_400.0):
    before, began = clock.now_ms(), time.monotonic()
    again = anchored_clock(path, 600.0)  # as another process opens it
    passed_ms = (time.monotonic() - began) * 600.0 * 1000.0
    assert before <= again.now_ms() <= before + passed_ms + 600_000, "market time jumped"
    assert 0 <= clock.now_ms() - before <= passed_ms + 600_000
""",
        str(tmp_path / "clock.json"),
    )


def test_a_lease_runs_out_by_the_monotonic_clock_alone(tmp_path: Path) -> None:
    _jumping(
        """
from trainers.control import ControlDirectory
from trainers.process.run_context import Timers

control, timers = ControlDirectory(sys.argv[1]), Timers()
control.put_lease(timers.monotonic() + 30.0)
for off_s in (86_400.0, -86_400.0):
    assert 0.0 < control.lease_until() - timers.monotonic() <= 30.0
control.put_lease(timers.monotonic() - 1.0)
assert control.lease_until() < timers.monotonic()
""",
        str(tmp_path / "control"),
    )


def test_leadership_is_not_lost_to_a_jump_of_the_wall_clock(tmp_path: Path) -> None:
    _jumping(
        """
from orchestrator.store import Store
from providers.clock import SystemClock

store = Store.open(f"sqlite:///{sys.argv[1]}", SystemClock())
leadership = store.campaign("first")
off_s = 86_400.0
store.beat(leadership)
assert store.leader().holder == "first"
off_s = -86_400.0
store.beat(leadership)
store.close()
""",
        str(tmp_path / "tradewind.db"),
    )
