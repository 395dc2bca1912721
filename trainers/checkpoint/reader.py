"""Reads the newest valid checkpoint; every chunk is verified as it is read."""

from __future__ import annotations

import logging
import struct
from dataclasses import dataclass
from typing import Any

import torch
import xxhash

from trainers.checkpoint import store
from trainers.checkpoint.manifest import Manifest, ManifestName
from trainers.checkpoint.state import Encoder, capture, decode, empty_tensor, tensor_bytes
from trainers.errors import DamagedCheckpoint, StateError
from trainers.objects.opening import Root

_HINT = "an older checkpoint is used if there is one"
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checkpoint in memory."""

    name: ManifestName
    items: dict[str, Any]
    position: Any


def load_newest(root: Root, job: str, generation: int, start: str | None = None) -> Loaded | None:
    """The newest checkpoint that counts for `generation` and verifies; None if there is none.

    `start`: the one to try first (named by a fence or the spec); if it is damaged, older ones are used and the damage
    is logged. Raises DamagedCheckpoint if there are checkpoints and all are damaged, because starting from scratch
    would silently discard what may be repairable.
    """
    damages: list[DamagedCheckpoint] = []

    def on_damage(damage: DamagedCheckpoint) -> None:
        _LOG.warning("%s", damage)
        damages.append(damage)

    wanted = ManifestName.parse(start) if start is not None else None
    found = store.first_usable(root, job, generation, lambda name: load(root, job, name), on_damage, wanted)
    if found is None and damages:
        raise damages[0]
    return found


def load(root: Root, job: str, name: ManifestName) -> Loaded:
    """Read one checkpoint. Raises DamagedCheckpoint even if only one byte differs."""
    manifest = store.read_manifest(root, job, name)
    tensors = _tensors(root, manifest)
    try:
        items = {key: decode(node, tensors) for key, node in manifest.items.items()}
        return Loaded(name, items, decode(manifest.position, tensors))
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


def _tensors(root: Root, manifest: Manifest) -> list[torch.Tensor]:
    tensors = []
    chunk, data = "", b""  # neighbours share a chunk: keep the last one to read each only once
    for entry in manifest.tensors:
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
        tensors.append(tensor)
    return tensors
