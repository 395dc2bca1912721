"""Writes one checkpoint: packs tensors into chunks, commits the manifest, then deletes old checkpoints.

The format is described in trainers.checkpoint.store.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy
import torch

from trainers.checkpoint import store
from trainers.checkpoint.manifest import Manifest, ManifestName, Piece, TensorEntry
from trainers.checkpoint.retention import collect
from trainers.checkpoint.state import Encoder, tensor_bytes
from trainers.objects.opening import Root


def save(
    root: Root,
    job: str,
    name: ManifestName,
    *,
    items: Mapping[str, Any],
    position: Any,
    keep: int,
    before_commit: Callable[[], None] = lambda: None,
) -> ManifestName:
    """Write a checkpoint of `items` (by component) and the data `position`; durable on return.

    `before_commit` may raise to prevent the commit. Returns the name of the committed checkpoint. Raises StateError,
    CheckpointFull, CheckpointReadOnly and FencedError; then nothing is committed.
    """
    encoder = Encoder()
    nodes = {key: encoder.encode(value, key) for key, value in items.items()}
    where = encoder.encode(position, "position")
    manifest = Manifest(
        job=job,
        name=name,
        world_size=1,
        position=where,
        items=nodes,
        tensors=tuple(store_tensors(root, job, name.generation, encoder.tensors)),
        versions=versions(),
    )
    before_commit()
    committed = store.commit(root, manifest)
    collect(root, job, name.generation, keep)
    return committed


def versions() -> dict[str, str]:
    """What a manifest says about the software that wrote it."""
    return {"python": platform.python_version(), "torch": str(torch.__version__), "numpy": numpy.__version__}


def dtype_name(tensor: torch.Tensor) -> str:
    """As in the manifest."""
    return str(tensor.dtype).removeprefix("torch.")


def store_tensors(
    root: Root, job: str, generation: int, tensors: Iterable[tuple[str, torch.Tensor]]
) -> Iterator[TensorEntry]:
    """Write tensors as chunks; returns their entries in this order.

    Small tensors share a chunk (separate files would each cost a sync); one that does not fit starts a new chunk."""
    pending: list[tuple[str, torch.Tensor, int]] = []
    buffer = bytearray()

    def flush() -> Iterator[TensorEntry]:
        chunk = store.write_chunk(root, job, buffer, generation) if buffer else ""
        for path, tensor, begin in pending:
            end = begin + tensor.numel() * tensor.element_size()
            yield _entry(path, tensor, [Piece(chunk, begin, end)] if end > begin else [])
        pending.clear()
        buffer.clear()

    for path, tensor in tensors:
        data = tensor_bytes(tensor)
        if len(buffer) + len(data) > store.CHUNK_BYTES:
            yield from flush()
        if len(data) <= store.CHUNK_BYTES:
            pending.append((path, tensor, len(buffer)))
            buffer += data
        else:
            pieces = []
            for begin in range(0, len(data), store.CHUNK_BYTES):
                part = data[begin : begin + store.CHUNK_BYTES]
                pieces.append(Piece(store.write_chunk(root, job, part, generation), 0, len(part)))
            yield _entry(path, tensor, pieces)
    yield from flush()


def _entry(path: str, tensor: torch.Tensor, pieces: Iterable[Piece]) -> TensorEntry:
    return TensorEntry(path, dtype_name(tensor), tuple(tensor.shape), tuple(pieces))
