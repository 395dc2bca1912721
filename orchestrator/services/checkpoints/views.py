"""Views of a job's checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """One checkpoint. `counts`: a run of the job may start from it; others were written by a run that had lost the job.
    `new_bytes`: what no earlier one of these has. `saved_at_ms` (by the clock of the machine) and `loss` are None if it
    does not say. `problem`: what is wrong with it, "" if nothing was found.
    """

    name: str
    step: int
    generation: int
    counts: bool
    ranks: int
    size_bytes: int
    new_bytes: int
    saved_at_ms: int | None
    loss: float | None
    problem: str


@dataclass(frozen=True, slots=True)
class CheckpointList:
    """The checkpoints of a job, the newest first. `verified`: every byte of them was read. `elsewhere`: what the job
    saved under a former `store_root` and is not here, and the remedy; "" if there is nothing."""

    kind: ClassVar[str] = "checkpoints"

    job: str
    job_id: str
    place: str
    checkpoints: tuple[StoredCheckpoint, ...]
    verified: bool
    elsewhere: str = ""

    @property
    def damaged(self) -> tuple[StoredCheckpoint, ...]:
        """Those of which something is missing or altered."""
        return tuple(each for each in self.checkpoints if each.problem)


@dataclass(frozen=True, slots=True)
class CheckpointsPruned:
    """What was deleted of a job's checkpoints. `dry_run`: nothing was."""

    kind: ClassVar[str] = "checkpoints-pruned"

    job: str
    job_id: str
    place: str
    dry_run: bool
    deleted: tuple[str, ...]
    kept: tuple[str, ...]
    freed_bytes: int


@dataclass(frozen=True, slots=True)
class CheckpointExported:
    """A file with the content of a checkpoint. `skipped`: newer ones that are damaged, and why."""

    kind: ClassVar[str] = "checkpoint-exported"

    job: str
    job_id: str
    name: str
    step: int
    path: str
    format: str
    size_bytes: int
    skipped: tuple[str, ...]
