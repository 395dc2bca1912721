"""CheckpointCatalog: what the engine must know of a job's checkpoints, and the fence.

The engine reads manifests, looks whether their chunks are there, and writes fences; it never reads tensors, because a
checkpoint of gigabytes would keep the control plane from everything else. The run that restores one verifies every
byte, and takes an older one when it must.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from orchestrator.errors import TradewindError
from trainers.checkpoint import store as checkpoint_store
from trainers.checkpoint.fences import fence_of, generations
from trainers.checkpoint.manifest import Manifest, ManifestName
from trainers.errors import CheckpointError, DamagedCheckpoint, FencedError, TrainerError


class CheckpointUnusable(TradewindError):
    """A job's checkpoint folder cannot be read or fenced."""


class CheckpointDamaged(CheckpointUnusable):
    """A fence of the job cannot be believed, so that nobody can tell what it starts from: to ask again is no use."""


@dataclass(frozen=True, slots=True)
class ManifestInfo:
    """A checkpoint: its manifest's name, its step, and the bytes it refers to."""

    name: str
    step: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Newest:
    """The checkpoint to start from (None: from scratch), and what is wrong with newer ones that were passed over."""

    found: ManifestInfo | None
    damaged: tuple[str, ...] = ()


class CheckpointCatalog(Protocol):
    """The checkpoints of jobs below a root. Everything raises CheckpointUnusable."""

    def newest(self, root: Path, job_id: str, generation: int) -> Newest:
        """The checkpoint that a run of `generation` must start from, as far as it can be told without reading it."""
        ...

    def find(self, root: Path, job_id: str, name: str) -> ManifestInfo | None:
        """The named checkpoint, None when it is absent or damaged."""
        ...

    def fence(self, root: Path, job_id: str, generation: int, manifest: str | None) -> bool:
        """Shut out all generations before `generation`, which starts from `manifest`. Idempotent.

        Returns False, and changes nothing, when that generation is void.
        """
        ...

    def void(self, root: Path, job_id: str, generation: int) -> bool:
        """Make sure that `generation` can never take the job over; whoever owns it now goes on. Idempotent.

        Returns False, and changes nothing, when it has taken over. Of fence() and void() the first one wins, whoever
        calls them and however late.
        """
        ...

    def taken(self, root: Path, job_id: str) -> int:
        """The newest generation that was ever fenced or voided; 0 without any. A new one must be newer."""
        ...

    def fenced(self, root: Path, job_id: str) -> int:
        """The newest generation that was fenced in and not made void; 0 without any."""
        ...


class FileCatalog:
    """Checkpoint format v1 on a file system."""

    def newest(self, root: Path, job_id: str, generation: int) -> Newest:
        damaged: list[str] = []
        try:
            found = checkpoint_store.first_usable(
                root,
                job_id,
                generation,
                use=lambda name: _complete(root, job_id, name),
                on_damage=lambda damage: damaged.append(str(damage)),
            )
        except (OSError, CheckpointError) as error:
            raise _unusable(error) from error
        return Newest(found, tuple(damaged))

    def find(self, root: Path, job_id: str, name: str) -> ManifestInfo | None:
        try:
            return _complete(root, job_id, ManifestName.parse(name))
        except DamagedCheckpoint:
            return None
        except (OSError, ValueError, CheckpointError) as error:
            raise _unusable(error) from error

    def fence(self, root: Path, job_id: str, generation: int, manifest: str | None) -> bool:
        try:
            checkpoint_store.prepare(root, job_id)
            checkpoint_store.write_fence(root, job_id, generation, manifest)
        except (OSError, CheckpointError) as error:
            if isinstance(error, FencedError) and _is_void(root, job_id, generation):
                return False
            raise _unusable(error) from error
        return True

    def void(self, root: Path, job_id: str, generation: int) -> bool:
        try:
            checkpoint_store.prepare(root, job_id)
            return checkpoint_store.void_fence(root, job_id, generation)
        except (OSError, CheckpointError) as error:
            raise _unusable(error) from error

    def taken(self, root: Path, job_id: str) -> int:
        try:
            return max(generations(root, job_id), default=0)
        except (OSError, CheckpointError) as error:
            raise _unusable(error) from error

    def fenced(self, root: Path, job_id: str) -> int:
        try:
            fence = checkpoint_store.fence(root, job_id)
        except (OSError, CheckpointError) as error:
            raise _unusable(error) from error
        return 0 if fence is None else fence.generation


def _unusable(error: Exception) -> CheckpointUnusable:
    kind = CheckpointDamaged if isinstance(error, DamagedCheckpoint) else CheckpointUnusable
    if isinstance(error, TrainerError):
        return kind(error.message, hint=error.hint)
    return kind(str(error), hint="make the folder readable, or point checkpoint.to at one that is")


def _is_void(root: Path, job_id: str, generation: int) -> bool:
    found = fence_of(root, job_id, generation)
    return found is not None and found.void


def _complete(root: Path, job_id: str, name: ManifestName) -> ManifestInfo:
    """A checkpoint whose manifest is whole and whose chunks are there and long enough. Raises DamagedCheckpoint."""
    manifest = checkpoint_store.read_manifest(root, job_id, name)
    needed: dict[str, int] = {}
    for tensor in manifest.tensors:
        for piece in tensor.pieces:
            needed[piece.chunk] = max(piece.end, needed.get(piece.chunk, 0))
    for chunk, least_bytes in needed.items():
        present_bytes = checkpoint_store.chunk_bytes(root, job_id, chunk)
        if present_bytes is None:
            raise DamagedCheckpoint(f"checkpoint {name}: the chunk {chunk} is missing")
        if present_bytes < least_bytes:
            raise DamagedCheckpoint(f"checkpoint {name}: the chunk {chunk} is cut")
    return ManifestInfo(str(name), name.step, _size_bytes(manifest))


def _size_bytes(manifest: Manifest) -> int:
    return sum(piece.end - piece.begin for tensor in manifest.tensors for piece in tensor.pieces)
