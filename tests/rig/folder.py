"""Folder: checkpoints without tensors, in the real checkpoint store.

The product's own functions (trainers.checkpoint.store) save, verify and collect them; their chunks are a few bytes. It
also records what only an observer knows: when each fence was made, and which manifests a fenced writer still committed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from providers.clock import Clock
from tests.rig.file_edges import Look, unwatched, watching
from trainers.checkpoint import store
from trainers.checkpoint.manifest import Manifest, ManifestName, Piece, TensorEntry
from trainers.checkpoint.retention import collect
from trainers.errors import DamagedCheckpoint

OLD_STEPS = 10  # a part of the state changes only every so many steps, so that checkpoints share chunks


def _flipped(data: bytes) -> bytes:
    """The data with another digit in its generation."""
    return data.replace(b'"generation":', b'"generation":9', 1)


class Folder:
    """The checkpoints of all jobs below `root`.

    `fenced_s` is the wall time of each fence by job and generation, `slipped` the manifests of each job that were made
    when a newer generation owned it, `spoilt` the jobs whose newest fence is currently damaged.
    """

    def __init__(self, root: Path, clock: Clock) -> None:
        self.root = root
        self.fenced_s: dict[tuple[str, int], float] = {}
        self.slipped: dict[str, set[str]] = {}
        self.spoilt: set[str] = set()
        self._clock = clock

    # -- operations of trainers ---------------------------------------------------------------------------------------
    def save(
        self,
        job_id: str,
        generation: int,
        step: int,
        *,
        keep: int,
        before_commit: Callable[[], None],
        look: Look | None = None,
    ) -> str:
        """Like trainers.checkpoint.writer.save: chunks, manifest, collection. Returns the name. Raises FencedError."""

        def witness(operation: str, path: Path) -> None:
            if look is not None:
                look(operation, path)
            if operation == "link manifest" and self._newest(job_id) > generation:
                self.slipped.setdefault(job_id, set()).add(path.stem)

        with watching(witness):
            tensors = tuple(self._stored(job_id, generation, *part) for part in _state(job_id, step))
            name = ManifestName(generation, step, 1)
            manifest = Manifest(job_id, name, 1, {"steps_done": step}, {}, tensors, {"simulated": "1"})
            before_commit()
            committed = store.commit(self.root, manifest)
            collect(self.root, job_id, generation, keep)
        return str(committed)

    def restored(self, job_id: str, generation: int, start: str | None) -> str | None:
        """Like trainers.checkpoint.reader.load_newest; reads every byte. Raises DamagedCheckpoint."""
        damages: list[DamagedCheckpoint] = []
        wanted = ManifestName.parse(start) if start is not None else None
        with unwatched():
            found = store.first_usable(
                self.root,
                job_id,
                generation,
                lambda name: store.verify(self.root, job_id, name),
                damages.append,
                wanted,
            )
        if found is None and damages:
            raise damages[0]
        return None if found is None else str(found.name)

    def void(self, job_id: str, generation: int, *, look: Look | None = None) -> bool:
        """Prevents a generation from taking the job over; False if it already has."""
        with unwatched() if look is None else watching(look):
            return store.void_fence(self.root, job_id, generation)

    # -- knowledge of the observer ------------------------------------------------------------------------------------
    def fences(self, job_id: str) -> dict[int, str | None]:
        """The manifest from which each generation started, in the order of the fences."""
        with unwatched():
            found = {fence.generation: fence.manifest for fence in store.fences(self.root, job_id)}
        return dict(sorted(found.items(), key=lambda each: self.fenced_s.get((job_id, each[0]), 0.0)))

    def size_bytes(self, job_id: str) -> int:
        """The size of each of the job's checkpoints; all have the same."""
        return sum(len(data) for _, data in _state(job_id, 0))

    def fence_made(self, job_id: str, generation: int) -> None:
        """Records the time of a fence, once."""
        self.fenced_s.setdefault((job_id, generation), self._clock.monotonic_s())

    def shut_out_s(self, job_id: str, generation: int) -> float | None:
        """The wall time at which a newer generation fenced this one; None if none has."""
        newer = (at for (job, g), at in self.fenced_s.items() if job == job_id and g > generation)
        return min(newer, default=None)

    def rot(self, job_id: str, name: str) -> None:
        """Alters a byte of this checkpoint that only a full read notices."""
        newest = store.read_manifest(self.root, job_id, ManifestName.parse(name)).tensors[-1]
        path = self.root / job_id / "chunks" / newest.pieces[0].chunk
        data = bytearray(path.read_bytes())
        data[0] ^= 1
        path.write_bytes(data)

    def fences_made(self, job_id: str) -> bool:
        """True if the job has any fence."""
        return self._newest(job_id) > 0

    def newest_fence(self, job_id: str) -> bytes:
        """The content of the newest fence's file."""
        return (self.root / job_id / "fence" / str(self._newest(job_id))).read_bytes()

    def spoil_fence(self, job_id: str, alter: Callable[[bytes], bytes] = _flipped) -> Callable[[], object]:
        """Damages the newest fence of a job; returns a function that repairs it."""
        path = self.root / job_id / "fence" / str(self._newest(job_id))
        data = path.read_bytes()
        path.write_bytes(alter(data))
        self.spoilt.add(job_id)

        def mend() -> None:
            path.write_bytes(data)
            self.spoilt.discard(job_id)

        return mend

    def _stored(self, job_id: str, generation: int, name: str, data: bytes) -> TensorEntry:
        chunk = store.write_chunk(self.root, job_id, data, generation)
        return TensorEntry(name, "uint8", (len(data),), (Piece(chunk, 0, len(data)),))

    def _newest(self, job_id: str) -> int:
        return max((g for job, g in self.fenced_s if job == job_id), default=0)


def _state(job_id: str, step: int) -> list[tuple[str, bytes]]:
    """A job's state: a constant part, a rarely changed part, and one that changes with each step."""
    return [
        ("frozen", f"{job_id} frozen".encode()),
        ("seldom", f"{job_id} {step // OLD_STEPS:09}".encode()),
        ("often", f"{job_id} at {step:09}".encode()),
    ]
