"""Which process a number means: a pid is given anew, a pid with its start time within one boot is not."""

from __future__ import annotations

from pathlib import Path


def process_start(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot (proc(5), field 22); None when it is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the name in parentheses may hold anything, so from the last one
    return None if fields[0] in {"Z", "X", "x"} else int(fields[19])
