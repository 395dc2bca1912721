"""Disk: the disk space that a job's data and checkpoints need on a machine that is rented for it."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.model import DataSource

GIB = 1 << 30
COPIES = 2
"""Copies of a checkpoint: the one that the program writes to its output folder, and the previous one."""


def disk_gb(data: Sequence[DataSource], checkpoint_bytes: int) -> int:
    """Whole GiB. Data without a declared size counts as 0, and so does a checkpoint whose size is not known yet (0)."""
    return -(-(sum(each.size_bytes or 0 for each in data) + COPIES * checkpoint_bytes) // GIB)
