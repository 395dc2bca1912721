"""The control plane as a process (orchestrator.daemon), which also writes down the turns that it gives.

    python -m benchmarks._telling_plane FILE

Each time it looks at the turns, it adds a line of JSON: `at_ms` (market time), the `round`, and the planned `share` of a
machine's time by job (empty where there is a machine for each job).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from orchestrator import daemon
from orchestrator.engine import control
from orchestrator.engine.context import Context

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
    control.share_time = tell  # type: ignore[attr-defined]
    sys.exit(daemon.main())
