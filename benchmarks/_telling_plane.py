"""The control plane as a process (orchestrator.daemon) that also records the turns that it gives.

    python -m benchmarks._telling_plane FILE [--short]

Each time it evaluates the turns, it appends a line of JSON: `at_ms` (market time), the `round`, and by job the planned
`share` of a machine's time (empty if each job has a machine). With --short, turns are as short as `policy.turn_s`,
regardless of the time for a change of machines.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from orchestrator import daemon
from orchestrator.engine import control
from orchestrator.engine.context import Context
from orchestrator.policy import time_sharing

share_time = control.share_time  # type: ignore[attr-defined]


def tell(ctx: Context) -> bool:
    """See share_time."""
    before = ctx.round
    changed: bool = share_time(ctx)
    now = ctx.round
    if now is not before:
        share = {} if now.given is None else dict(now.given.share)
        with Path(sys.argv[1]).open("a") as file:
            file.write(json.dumps({"at_ms": ctx.now_ms, "round": now.number, "share": share}) + "\n")
    return changed


if __name__ == "__main__":
    if "--short" in sys.argv[2:]:
        time_sharing.GAPS = 0.0
    control.share_time = tell  # type: ignore[attr-defined]
    sys.exit(daemon.main())
