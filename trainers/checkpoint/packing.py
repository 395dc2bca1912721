"""Writes a state as chunks and commits its manifest, then deletes old checkpoints. Needs neither torch nor numpy, so
that a small process can do it (trainers.checkpoint.background).

The format is described in trainers.checkpoint.store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
    """The content of a manifest besides the tensors: the JSON of the items and the position, which refers to tensors by
    number, the versions of the software, and numbers about the checkpoint. `frozen` (not in the manifest): the paths of
    tensors that training does not change."""

    items: Mapping[str, Any]
    position: Any
    versions: Mapping[str, str]
    about: Mapping[str, float] = field(default_factory=dict)
    frozen: Collection[str] = ()


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
    """Write the checkpoint of one process; durable on return. `before_chunk`, called with the size of each chunk before
    it is written, and `before_commit` may raise an error to prevent the commit.

    Returns the name of the committed checkpoint. Raises StateError, CheckpointFull, CheckpointReadOnly and FencedError;
    then nothing is committed.
    """
    manifest = Manifest(
        job=job,
        name=name,
        world_size=1,
        position=described.position,
        items=described.items,
        tensors=tuple(store_tensors(root, job, name.generation, tensors, before_chunk, described.frozen)),
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
    frozen: Collection[str] = (),
) -> list[TensorEntry]:
    """Write tensors as chunks; returns their entries in this order.

    Small tensors share a chunk (separate files would each cost a sync); a tensor that does not fit starts a new chunk.
    `frozen` tensors do not share chunks with others, so that their chunks are the same in the next checkpoint."""

    def written(data: Bytes) -> str:
        before_chunk(len(data))
        return store.write_chunk(root, job, data, generation)

    entries, unchanging = dict[int, TensorEntry](), frozenset(frozen)
    packs = {is_frozen: _Pack(written, entries) for is_frozen in (False, True)}
    for number, values in enumerate(tensors):
        if len(values.data) <= store.CHUNK_BYTES:
            packs[values.path in unchanging].add(number, values)
        else:
            pieces, data = [], memoryview(values.data)
            for begin in range(0, len(data), store.CHUNK_BYTES):
                part = data[begin : begin + store.CHUNK_BYTES]
                pieces.append(Piece(written(part), 0, len(part)))
            entries[number] = _entry(values, pieces)
    for pack in packs.values():
        pack.flush()
    return [entries[number] for number in sorted(entries)]


class _Pack:
    """Small tensors that will share a chunk. Their entries are put into `entries`, by number, when the chunk is
    written."""

    def __init__(self, written: Callable[[Bytes], str], entries: dict[int, TensorEntry]) -> None:
        self._written, self._entries = written, entries
        self._pending: list[tuple[int, Values, int, int]] = []
        self._buffer = bytearray()

    def add(self, number: int, values: Values) -> None:
        size, begin = len(values.data), len(self._buffer)
        if begin + size > store.CHUNK_BYTES:
            self.flush()
            begin = 0
        # The bytes are copied here: nothing refers to the tensor after that.
        self._pending.append((number, Values(values.path, values.dtype, values.shape, b""), begin, begin + size))
        self._buffer += values.data

    def flush(self) -> None:
        chunk = self._written(self._buffer) if self._buffer else ""
        for number, values, begin, end in self._pending:
            self._entries[number] = _entry(values, [Piece(chunk, begin, end)] if end > begin else [])
        self._pending.clear()
        self._buffer.clear()


def _entry(values: Values, pieces: Sequence[Piece]) -> TensorEntry:
    return TensorEntry(values.path, values.dtype, values.shape, tuple(pieces))
