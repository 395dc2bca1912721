"""Estimates what can still be saved before a machine is taken away, from the durations of saves in this run.

Pieces that have not changed since the last checkpoint of a run are not written again (trainers.checkpoint.chunks). So
if only a part of a model is trained, a run's first checkpoint takes much longer than later ones.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import xxhash

from trainers.checkpoint import store
from trainers.checkpoint.manifest import ManifestName
from trainers.checkpoint.state import tensor_bytes
from trainers.objects.base import ObjectStore


def changed_share(
    root: ObjectStore, job: str, newest: ManifestName, tensors: Iterable[tuple[str, torch.Tensor]]
) -> float:
    """The share of a state's bytes (0 to 1) that a checkpoint of the same run would write: all except the pieces in the
    checkpoint `newest`. Raises DamagedCheckpoint and ObjectStoreError.
    """
    entries = {entry.name: entry.pieces for entry in store.read_manifest(root, job, newest).tensors}
    held: dict[str, dict[int, list[memoryview]]] = {}
    size = kept = 0
    for path, tensor in tensors:
        data, at = tensor_bytes(tensor), 0
        size += len(data)
        for piece in entries.get(path, ()):
            length = piece.end - piece.begin
            held.setdefault(piece.chunk, {}).setdefault(piece.begin, []).append(data[at : at + length])
            at += length
    for chunk, places in held.items():
        digest = xxhash.xxh3_128()
        for _, equal in sorted(places.items()):
            digest.update(equal[0])
        if digest.hexdigest() == chunk.rpartition("-")[2]:
            kept += sum(len(part) for equal in places.values() for part in equal if part == equal[0])
    return 1.0 if size == 0 else 1 - kept / size
