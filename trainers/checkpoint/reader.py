"""Reading the newest checkpoint that counts and verifies; every chunk is checked as it is read."""

from __future__ import annotations

import logging
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import xxhash

from trainers.checkpoint import store
from trainers.checkpoint.manifest import Manifest, ManifestName
from trainers.checkpoint.state import Encoder, capture, decode, empty_tensor, tensor_bytes
from trainers.errors import DamagedCheckpoint, StateError

_HINT = "an older checkpoint is used when there is one"
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checkpoint in memory."""

    name: ManifestName
    items: dict[str, Any]
    position: Any


def load_newest(root: str | Path, job: str, generation: int, start: str | None = None) -> Loaded | None:
    """The newest checkpoint that counts for `generation` and verifies, or None when there is none to count.

    `start`: the one to begin with (a fence or the spec names it); older ones stand in when it is damaged,
    which is logged. Raises DamagedCheckpoint when there are some and all of them are damaged: training from
    scratch would silently throw away what may yet be repaired.
    """
    damages: list[DamagedCheckpoint] = []

    def reported(damage: DamagedCheckpoint) -> None:
        _LOG.warning("%s", damage)
        damages.append(damage)

    wanted = ManifestName.parse(start) if start is not None else None
    found = store.first_usable(root, job, generation, lambda name: load(root, job, name), reported, wanted)
    if found is None and damages:
        raise damages[0]
    return found


def load(root: str | Path, job: str, name: ManifestName) -> Loaded:
    """Read one checkpoint. Raises DamagedCheckpoint, also when only a byte of it differs."""
    manifest = store.read_manifest(root, job, name)
    tensors = _tensors(root, manifest)
    try:
        items = {key: decode(node, tensors) for key, node in manifest.items.items()}
        return Loaded(name, items, decode(manifest.position, tensors))
    except (ArithmeticError, LookupError, RecursionError, RuntimeError, TypeError, ValueError, struct.error) as error:
        raise DamagedCheckpoint(
            f"checkpoint {name} holds what no checkpoint holds, though its hash is right: {error}", hint=_HINT
        ) from error


def weights_hash(model: Any) -> str:
    """xxh3-128 over name, dtype, shape and bytes of each tensor of `model.state_dict()`, in the order of names.

    Tied tensors count once. `model` may also be a mapping of models.
    """
    encoder = Encoder()
    encoder.encode(capture(model), "model")
    digest = xxhash.xxh3_128()
    for name, tensor in sorted(encoder.tensors, key=lambda named: named[0]):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor_bytes(tensor))
    return str(digest.hexdigest())


def _tensors(root: str | Path, manifest: Manifest) -> list[torch.Tensor]:
    tensors = []
    chunk, data = "", b""  # neighbours share a chunk: remembering one reads each once
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
