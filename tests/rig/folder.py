"""Folder: checkpoints of trainers that hold no tensors, in the real checkpoint store.

They are saved, verified and collected as a trainer does it, by the same functions (trainers.checkpoint.store); their
chunks are a few bytes. Beside that, what only an onlooker knows: when each fence was made, and which manifests came
into being although their writer was shut out.
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

OLD_STEPS = 10  # a part of the state changes so seldom, so that checkpoints share chunks


def _flipped(data: bytes) -> bytes:
    """With another digit where its generation is."""
    return data.replace(b'"generation":', b'"generation":9', 1)


class Folder:
    """The jobs' checkpoints below `root`.

    `fenced_s` has the wall instant of each fence by job and generation, `slipped` the names of the manifests of each
    job that were made when a newer generation owned it, `spoilt` the jobs whose newest fence is altered now.
    """

    def __init__(self, root: Path, clock: Clock) -> None:
        self.root = root
        self.fenced_s: dict[tuple[str, int], float] = {}
        self.slipped: dict[str, set[str]] = {}
        self.spoilt: set[str] = set()
        self._clock = clock

    # -- what a trainer does ------------------------------------------------------------------------------------------
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
        """As trainers.checkpoint.writer.save: chunks, manifest, collection. Returns the name; raises FencedError."""

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
        """As trainers.checkpoint.reader.load_newest, every byte of it read. Raises DamagedCheckpoint."""
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
        """Keep a generation from taking the job over; False if it has."""
        with unwatched() if look is None else watching(look):
            return store.void_fence(self.root, job_id, generation)

    # -- what an onlooker knows ---------------------------------------------------------------------------------------
    def fences(self, job_id: str) -> dict[int, str | None]:
        """The manifest that each generation started from, in the order in which they were made."""
        with unwatched():
            found = {fence.generation: fence.manifest for fence in store.fences(self.root, job_id)}
        return dict(sorted(found.items(), key=lambda each: self.fenced_s.get((job_id, each[0]), 0.0)))

    def size_bytes(self, job_id: str) -> int:
        """Of any checkpoint of this job: all are of the same size."""
        return sum(len(data) for _, data in _state(job_id, 0))

    def fence_made(self, job_id: str, generation: int) -> None:
        """Remember the instant, the first time."""
        self.fenced_s.setdefault((job_id, generation), self._clock.monotonic_s())

    def shut_out_s(self, job_id: str, generation: int) -> float | None:
        """When a newer generation first shut this one out; None while it has not."""
        newer = (at for (job, g), at in self.fenced_s.items() if job == job_id and g > generation)
        return min(newer, default=None)

    def rot(self, job_id: str, name: str) -> None:
        """Alter a byte of this checkpoint, such as only a reader of all of it notices."""
        newest = store.read_manifest(self.root, job_id, ManifestName.parse(name)).tensors[-1]
        path = store.job_folder(self.root, job_id) / "chunks" / newest.pieces[0].chunk
        data = bytearray(path.read_bytes())
        data[0] ^= 1
        path.write_bytes(data)

    def fences_made(self, job_id: str) -> bool:
        """Whether the job was ever handed over."""
        return self._newest(job_id) > 0

    def newest_fence(self, job_id: str) -> bytes:
        """As it stands in its file."""
        return (store.job_folder(self.root, job_id) / "fence" / str(self._newest(job_id))).read_bytes()

    def spoil_fence(self, job_id: str, alter: Callable[[bytes], bytes] = _flipped) -> Callable[[], object]:
        """Alter the newest fence of a job; returns what puts it right."""
        path = store.job_folder(self.root, job_id) / "fence" / str(self._newest(job_id))
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
    """What a job's state consists of: frozen, seldom changed, and changed with each step."""
    return [
        ("frozen", f"{job_id} frozen".encode()),
        ("seldom", f"{job_id} {step // OLD_STEPS:09}".encode()),
        ("often", f"{job_id} at {step:09}".encode()),
    ]
