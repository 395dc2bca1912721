"""CheckpointCatalog: the engine's view of a job's checkpoints, and the fence.

The engine reads manifests, checks that their chunks exist, and writes fences. It never reads tensors: gigabytes of them
would block the control plane. The run that restores a checkpoint verifies every byte and falls back to an older one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from orchestrator.errors import TradewindError
from trainers.checkpoint import store as checkpoint_store
from trainers.checkpoint.fences import fence_of, generations
from trainers.checkpoint.manifest import Manifest, ManifestName
from trainers.errors import DamagedCheckpoint, FencedError, StoreThrottled, StoreUnavailable, TrainerError
from trainers.objects.base import ObjectStore
from trainers.objects.opening import Root, open_store
from trainers.objects.retry import Patience

_HURRIED = Patience(connect_s=2.0, request_s=5.0, tries=2)  # it is queried again later
OUT_OF_REACH_S = 600.0
"""Wall seconds for which a job that has no machine to train on, or has finished, waits for its store."""


class CheckpointUnusable(TradewindError):
    """A job's checkpoints cannot be read or fenced."""


class CheckpointsAwaited(CheckpointUnusable):
    """Their store was queried and has not answered yet (engine.jobs.background_catalog)."""


class CheckpointsOutOfReach(CheckpointUnusable):
    """Their store does not answer now. Neither the job nor the machine is at fault, and the same call may succeed
    later."""


class CheckpointDamaged(CheckpointUnusable):
    """A fence of the job is damaged, so its starting point is unknown. Retrying does not help."""


@dataclass(frozen=True, slots=True)
class ManifestInfo:
    """A checkpoint: its manifest's name, its step, and the bytes it refers to."""

    name: str
    step: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Newest:
    """The checkpoint to start from (None: from scratch), and why newer ones were skipped."""

    found: ManifestInfo | None
    damaged: tuple[str, ...] = ()


class CheckpointCatalog(Protocol):
    """The checkpoints of jobs below `root`, a folder or s3://bucket/prefix. Every method raises CheckpointUnusable."""

    def newest(self, root: Root, job_id: str, generation: int) -> Newest:
        """The checkpoint that a run of `generation` must start from, judged without reading its tensors."""
        ...

    def find(self, root: Root, job_id: str, name: str) -> ManifestInfo | None:
        """The named checkpoint; None if it is absent or damaged."""
        ...

    def fence(self, root: Root, job_id: str, generation: int, manifest: str | None) -> bool:
        """Stop all generations before `generation`, which starts from `manifest`, from saving. Idempotent.

        Returns False and changes nothing if that generation is void.
        """
        ...

    def void(self, root: Root, job_id: str, generation: int) -> bool:
        """Make sure that `generation` can never take over the job; its present owner continues. Idempotent.

        Returns False and changes nothing if it has already taken over. Between fence() and void(), the first call wins,
        no matter which process makes it or how late the other call is.
        """
        ...

    def taken(self, root: Root, job_id: str) -> int:
        """The newest generation that was ever fenced or voided; 0 if there is none. A new generation must be newer.
        Raises CheckpointDamaged if the newest fence cannot be read."""
        ...

    def fenced(self, root: Root, job_id: str) -> int:
        """The newest generation with a fence that is not void; 0 if none."""
        ...


class FileCatalog:
    """CheckpointCatalog for checkpoint format v1, in folders and buckets. Keeps connections to buckets open."""

    def __init__(self) -> None:
        self._opened: dict[str, ObjectStore] = {}

    def _open(self, root: Root) -> ObjectStore:
        """Raises TrainerError."""
        if not isinstance(root, str | Path):
            return root
        if str(root) not in self._opened:
            self._opened[str(root)] = open_store(root, _HURRIED)
        return self._opened[str(root)]

    def newest(self, root: Root, job_id: str, generation: int) -> Newest:
        """See CheckpointCatalog.newest."""
        damaged: list[str] = []
        try:
            opened = self._open(root)
            found = checkpoint_store.first_usable(
                opened,
                job_id,
                generation,
                use=lambda name: _complete(opened, job_id, name),
                on_damage=lambda damage: damaged.append(str(damage)),
            )
        except TrainerError as error:
            raise _unusable(error) from error
        return Newest(found, tuple(damaged))

    def find(self, root: Root, job_id: str, name: str) -> ManifestInfo | None:
        """See CheckpointCatalog.find."""
        try:
            return _complete(self._open(root), job_id, ManifestName.parse(name))
        except DamagedCheckpoint:
            return None
        except (ValueError, TrainerError) as error:
            raise _unusable(error) from error

    def fence(self, root: Root, job_id: str, generation: int, manifest: str | None) -> bool:
        """See CheckpointCatalog.fence."""
        try:
            opened = self._open(root)
            checkpoint_store.prepare(opened, job_id)
            checkpoint_store.write_fence(opened, job_id, generation, manifest)
        except TrainerError as error:
            if isinstance(error, FencedError) and _is_void(opened, job_id, generation):
                return False
            raise _unusable(error) from error
        return True

    def void(self, root: Root, job_id: str, generation: int) -> bool:
        """See CheckpointCatalog.void."""
        try:
            opened = self._open(root)
            checkpoint_store.prepare(opened, job_id)
            return checkpoint_store.void_fence(opened, job_id, generation)
        except TrainerError as error:
            raise _unusable(error) from error

    def taken(self, root: Root, job_id: str) -> int:
        """See CheckpointCatalog.taken."""
        try:
            opened = self._open(root)
            checkpoint_store.fence(opened, job_id)  # raises if it is damaged: such a job should not get a machine
            return max(generations(opened, job_id), default=0)
        except TrainerError as error:
            raise _unusable(error) from error

    def fenced(self, root: Root, job_id: str) -> int:
        """See CheckpointCatalog.fenced."""
        try:
            fence = checkpoint_store.fence(self._open(root), job_id)
        except TrainerError as error:
            raise _unusable(error) from error
        return 0 if fence is None else fence.generation


def _unusable(error: Exception) -> CheckpointUnusable:
    kind: type[CheckpointUnusable] = CheckpointDamaged if isinstance(error, DamagedCheckpoint) else CheckpointUnusable
    if isinstance(error, StoreUnavailable | StoreThrottled):
        kind = CheckpointsOutOfReach
    if isinstance(error, TrainerError):
        return kind(error.message, hint=error.hint)
    return kind(str(error))


def _is_void(root: Root, job_id: str, generation: int) -> bool:
    found = fence_of(root, job_id, generation)
    return found is not None and found.void


def _complete(root: Root, job_id: str, name: ManifestName) -> ManifestInfo:
    """A checkpoint with an intact manifest and all its chunks at full length. Raises DamagedCheckpoint."""
    manifest = checkpoint_store.read_manifest(root, job_id, name)
    needed: dict[str, int] = {}
    for tensor in manifest.tensors:
        for piece in tensor.pieces:
            needed[piece.chunk] = max(piece.end, needed.get(piece.chunk, 0))
    present = checkpoint_store.chunk_sizes(root, job_id, needed)
    for chunk, least_bytes in needed.items():
        if chunk not in present:
            raise DamagedCheckpoint(f"checkpoint {name}: chunk {chunk} is missing")
        if present[chunk] < least_bytes:
            raise DamagedCheckpoint(f"checkpoint {name}: chunk {chunk} is truncated")
    return ManifestInfo(str(name), name.step, _size_bytes(manifest))


def _size_bytes(manifest: Manifest) -> int:
    return sum(piece.end - piece.begin for tensor in manifest.tensors for piece in tensor.pieces)
