"""Views of a job's checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """One checkpoint. `counts`: a run of the job may start from it; other checkpoints were written by a run that no
    longer owned the job. `new_bytes`: data that no earlier checkpoint of the list has. `saved_at_ms` (by the clock of
    the machine) and `loss` are None if not recorded. `problem`: what is wrong with it, "" if nothing was found.
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
    """The checkpoints of a job, newest first. `verified`: every byte of them was read. `elsewhere`: what the job saved
    in a former `store_root` that is missing in the current one, and the remedy; "" if nothing is missing."""

    kind: ClassVar[str] = "checkpoints"

    job: str
    job_id: str
    place: str
    checkpoints: tuple[StoredCheckpoint, ...]
    verified: bool
    elsewhere: str = ""

    @property
    def damaged(self) -> tuple[StoredCheckpoint, ...]:
        """The checkpoints with missing or altered data."""
        return tuple(each for each in self.checkpoints if each.problem)


@dataclass(frozen=True, slots=True)
class CheckpointsPruned:
    """The deleted checkpoints of a job. `dry_run`: nothing was deleted."""

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
    """A file with the content of a checkpoint. `skipped`: newer checkpoints that are damaged, and why."""

    kind: ClassVar[str] = "checkpoint-exported"

    job: str
    job_id: str
    name: str
    step: int
    path: str
    format: str
    size_bytes: int
    skipped: tuple[str, ...]
