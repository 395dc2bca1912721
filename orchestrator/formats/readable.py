"""Times for people."""

from __future__ import annotations

from datetime import UTC, datetime


def iso(at_ms: int) -> str:
    """Epoch ms as UTC: `2026-11-21T10:03:26.882Z`."""
    instant = datetime.fromtimestamp(at_ms // 1000, UTC)
    return f"{instant:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}Z"
