"""Disk: how much room a job's data and checkpoints need on the disk of a machine that is rented for it."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.model import DataSource

GIB = 1 << 30
COPIES = 2
"""Of a checkpoint: one that the program writes to its output folder, and the one before."""


def disk_gb(data: Sequence[DataSource], checkpoint_bytes: int) -> int:
    """Whole GiB. Data whose size is not declared counts as none, and so does a checkpoint whose size is not known yet
    (0)."""
    return -(-(sum(each.size_bytes or 0 for each in data) + COPIES * checkpoint_bytes) // GIB)
