"""Identifies a process across pid reuse by its pid and start time, which are unique within one boot."""

from __future__ import annotations

from pathlib import Path


def process_start(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot (proc(5), field 22); None if it has ended or is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the command name may itself contain parentheses
    return None if fields[0] in {"Z", "X", "x"} else int(fields[19])
