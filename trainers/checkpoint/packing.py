"""Writes a state as chunks and commits its manifest, then deletes old checkpoints. Needs neither torch nor numpy, so
that a small process can do it (trainers.checkpoint.background).

The format is described in trainers.checkpoint.store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainers.checkpoint import store
from trainers.checkpoint.manifest import Manifest, ManifestName, Piece, TensorEntry
from trainers.checkpoint.retention import Keep, collect
from trainers.objects.base import Bytes
from trainers.objects.opening import Root


@dataclass(frozen=True, slots=True)
class Values:
    """A tensor's name and the bytes of its values, row-major and little-endian."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    data: Bytes


@dataclass(frozen=True, slots=True)
class Described:
    """What a manifest says besides the tensors: the JSON of the items and the position, which refers to them by number,
    the versions of the software, and numbers about the checkpoint."""

    items: Mapping[str, Any]
    position: Any
    versions: Mapping[str, str]
    about: Mapping[str, float] = field(default_factory=dict)


def write_checkpoint(
    root: Root,
    job: str,
    name: ManifestName,
    described: Described,
    tensors: Iterable[Values],
    *,
    keep: Keep | int,
    before_chunk: Callable[[int], None] = lambda _bytes: None,
    before_commit: Callable[[], None] = lambda: None,
) -> ManifestName:
    """Write the checkpoint of one process; durable on return. `before_chunk`, called with the size
    of each chunk before it is written, and `before_commit` may raise to prevent the commit.

    Returns the name of the committed checkpoint. Raises StateError, CheckpointFull, CheckpointReadOnly and FencedError;
    then nothing is committed.
    """
    manifest = Manifest(
        job=job,
        name=name,
        world_size=1,
        position=described.position,
        items=described.items,
        tensors=tuple(store_tensors(root, job, name.generation, tensors, before_chunk)),
        versions=described.versions,
        about=described.about,
    )
    before_commit()
    committed = store.commit(root, manifest)
    collect(root, job, name.generation, keep)
    return committed


def store_tensors(
    root: Root,
    job: str,
    generation: int,
    tensors: Iterable[Values],
    before_chunk: Callable[[int], None] = lambda _bytes: None,
) -> Iterator[TensorEntry]:
    """Write tensors as chunks; returns their entries in this order.

    Small tensors share a chunk (separate files would each cost a sync); one that does not fit starts a new chunk."""
    pending: list[tuple[Values, int, int]] = []
    buffer = bytearray()

    def written(data: Bytes) -> str:
        before_chunk(len(data))
        return store.write_chunk(root, job, data, generation)

    def flush() -> Iterator[TensorEntry]:
        chunk = written(buffer) if buffer else ""
        for values, begin, end in pending:
            yield _entry(values, [Piece(chunk, begin, end)] if end > begin else [])
        pending.clear()
        buffer.clear()

    for values in tensors:
        size = len(values.data)
        if len(buffer) + size > store.CHUNK_BYTES:
            yield from flush()
        if size <= store.CHUNK_BYTES:
            # The bytes are copied here: nothing refers to the tensor any more.
            pending.append((Values(values.path, values.dtype, values.shape, b""), len(buffer), len(buffer) + size))
            buffer += values.data
        else:
            pieces, data = [], memoryview(values.data)
            for begin in range(0, size, store.CHUNK_BYTES):
                part = data[begin : begin + store.CHUNK_BYTES]
                pieces.append(Piece(written(part), 0, len(part)))
            yield _entry(values, pieces)
    yield from flush()


def _entry(values: Values, pieces: Sequence[Piece]) -> TensorEntry:
    return TensorEntry(values.path, values.dtype, values.shape, tuple(pieces))
