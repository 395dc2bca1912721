"""Reads the newest valid checkpoint; every chunk is verified as it is read."""

from __future__ import annotations

import logging
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import xxhash

from trainers.checkpoint import store
from trainers.checkpoint.manifest import Manifest, ManifestName, Part, TensorEntry
from trainers.checkpoint.state import Encoder, capture, decode, empty_tensor, tensor_bytes
from trainers.errors import DamagedCheckpoint, StateError
from trainers.objects.opening import Root

_HINT = "an older checkpoint is used if there is one"
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What one rank saved in a checkpoint, in memory. `world_size`: the number of ranks that saved it."""

    name: ManifestName
    items: dict[str, Any]
    position: Any
    world_size: int = 1


def load_newest(root: Root, job: str, generation: int, start: str | None = None) -> Loaded | None:
    """The newest checkpoint that counts for `generation` and verifies, as rank 0 saved it; None if there is none.

    `start`: the one to try first (named by a fence or the spec); if it is damaged, older ones are used and the damage
    is logged. Raises DamagedCheckpoint if there are checkpoints and all are damaged, because starting from scratch
    would silently discard what may be repairable.
    """
    damages: list[DamagedCheckpoint] = []

    def on_damage(damage: DamagedCheckpoint) -> None:
        _LOG.warning("%s", damage)
        damages.append(damage)

    wanted = ManifestName.parse(start) if start is not None else None
    found = store.first_usable(root, job, generation, lambda name: _load_first(root, job, name), on_damage, wanted)
    if found is None and damages:
        raise damages[0]
    return found


def load(root: Root, job: str, name: ManifestName, rank: int = 0) -> Loaded:
    """Read what a rank saved in a checkpoint. Raises DamagedCheckpoint even if only one byte of it differs, and
    StateError if fewer ranks saved it.
    """
    manifest = store.read_manifest(root, job, name)
    if rank >= manifest.world_size:
        raise StateError(f"checkpoint {name} has no rank {rank}: {manifest.world_size} saved it")
    part = manifest.part(rank)
    entries = manifest.tensors if part.tensors is None else [manifest.tensors[place] for place in part.tensors]
    return _decoded(manifest, part, _tensors(root, manifest, entries))


def _load_first(root: Root, job: str, name: ManifestName) -> Loaded:
    """What rank 0 saved, after every byte of the other ranks was verified, too."""
    manifest = store.read_manifest(root, job, name)
    tensors = _tensors(root, manifest, manifest.tensors)
    return _decoded(manifest, manifest.part(0), tensors)


def _decoded(manifest: Manifest, part: Part, tensors: list[torch.Tensor]) -> Loaded:
    name = manifest.name
    try:
        items = {key: decode(node, tensors) for key, node in part.items.items()}
        return Loaded(name, items, decode(part.position, tensors), manifest.world_size)
    except (ArithmeticError, LookupError, RecursionError, RuntimeError, TypeError, ValueError, struct.error) as error:
        raise DamagedCheckpoint(
            f"checkpoint {name} has invalid content although its hash matches: {error}", hint=_HINT
        ) from error


def weights_hash(model: Any) -> str:
    """xxh3-128 over name, dtype, shape and bytes of each tensor of `model.state_dict()`, in the order of their names.

    Tied tensors count once. `model` may also be a mapping of models.
    """
    encoder = Encoder()
    encoder.encode(capture(model), "model")
    digest = xxhash.xxh3_128()
    for name, tensor in sorted(encoder.tensors, key=lambda named: named[0]):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor_bytes(tensor))
    return str(digest.hexdigest())


def _tensors(root: Root, manifest: Manifest, entries: Sequence[TensorEntry]) -> list[torch.Tensor]:
    tensors: dict[int, torch.Tensor] = {}
    chunk, data = "", b""  # those that share a chunk are read one after the other, and the chunk once
    for place in sorted(range(len(entries)), key=lambda each: [piece.chunk for piece in entries[each].pieces[:1]]):
        entry = entries[place]
        holder = f"{manifest.name}: {entry.name}"
        try:
            tensor = empty_tensor(entry.dtype, entry.shape, sum(piece.end - piece.begin for piece in entry.pieces))
        except StateError as error:
            raise DamagedCheckpoint(f"checkpoint {holder}: {error}", hint=_HINT) from error
        target, at = tensor_bytes(tensor), 0
        for piece in entry.pieces:
            if piece.chunk != chunk:
                chunk, data = piece.chunk, store.read_chunk(root, manifest.job, piece.chunk, holder)
            store.require_inside(piece, len(data), holder)
            target[at : at + piece.end - piece.begin] = data[piece.begin : piece.end]
            at += piece.end - piece.begin
        tensors[place] = tensor
    return [tensors[place] for place in range(len(entries))]
