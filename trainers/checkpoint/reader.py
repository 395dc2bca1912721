"""Reads the newest valid checkpoint; every chunk is verified as it is read."""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy
import torch
import xxhash

from trainers.checkpoint import store
from trainers.checkpoint.exchange import ALONE, Exchange
from trainers.checkpoint.manifest import Manifest, ManifestName, Part, Piece, TensorEntry
from trainers.checkpoint.state import (
    Encoder,
    capture,
    decode,
    empty_tensor,
    fitting_dtype,
    referred,
    tensor_bytes,
    unfilled,
)
from trainers.checkpoint.views import whole
from trainers.errors import DamagedCheckpoint, PeerLost, StateError, TrainerError
from trainers.objects.opening import Root

_HINT = "an older checkpoint is used if there is one"
_LOG = logging.getLogger(__name__)
Like = Callable[[str, tuple[int, ...]], torch.Tensor | None]
"""The DTensor of the program that shows how to shard a stored tensor of this name and shape; None: not sharded."""
Layout = Callable[[Mapping[str, Any]], Like]
"""A function that returns a Like for the items of a checkpoint (JSON)."""
Places = Mapping[str, torch.Tensor]
"""Memory of the program into which whole tensors may be read, by name, if dtype and shape are equal."""
_NOWHERE: Places = MappingProxyType({})
_Wanted = tuple[TensorEntry, int, int, memoryview]


def whole_on_every_rank(name: str, shape: tuple[int, ...]) -> None:
    """A Like for programs without DTensors."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The state that one rank saved in a checkpoint, in memory. `world_size`: the number of ranks that saved it; `own`:
    this rank was one of them. `differing`: if another number of ranks reads it, those of "rng", "gradients" (not used
    yet) and "position" that were not the same on all ranks that saved it.
    """

    name: ManifestName
    items: dict[str, Any]
    position: Any
    world_size: int = 1
    own: bool = True
    differing: frozenset[str] = frozenset()


def load_newest(
    root: Root,
    job: str,
    generation: int,
    start: str | None = None,
    *,
    peers: Exchange = ALONE,
    layout: Layout = lambda _items: whole_on_every_rank,
    in_place: Places = _NOWHERE,
) -> Loaded | None:
    """The newest valid checkpoint that counts for `generation`, as this rank saved it; None if there is none. Every
    rank must call it: each reads the data that it needs and its share of the rest, so together they verify every byte.

    `start`: the checkpoint to try first (named by a fence or the spec); if it is damaged, older ones are used and the
    damage is logged. Tensors that are `in_place` have the values of the checkpoint afterwards; after an error, they may
    have any values. Raises DamagedCheckpoint if there are checkpoints and all are damaged, because starting from the
    beginning would silently discard data that may be repairable, and PeerLost if another rank cannot restore.
    """
    if peers.rank != 0:
        return _follow(root, job, peers, layout, in_place)
    damages: list[DamagedCheckpoint] = []

    def use(name: ManifestName) -> Loaded:
        peers.exchange(str(name).encode())
        try:
            return _read_by_all(root, job, name, peers, layout, in_place)
        except DamagedCheckpoint as damage:
            damages.append(damage)
            raise

    wanted = ManifestName.parse(start) if start is not None else None
    found = store.first_usable(root, job, generation, use, lambda damage: _LOG.warning("%s", damage), wanted)
    if found is None:
        peers.exchange(b"")
    if found is None and damages:
        raise damages[0]
    return found


def _follow(root: Root, job: str, peers: Exchange, layout: Layout, in_place: Places) -> Loaded | None:
    """Read the checkpoints that rank 0 proposes until one is valid on all ranks."""
    while proposed := peers.exchange(b"")[0]:
        with suppress(DamagedCheckpoint):  # rank 0 proposes another one
            return _read_by_all(root, job, ManifestName.parse(proposed.decode()), peers, layout, in_place)
    return None


def _read_by_all(root: Root, job: str, name: ManifestName, peers: Exchange, layout: Layout, in_place: Places) -> Loaded:
    """The result of `load`, if no rank finds damage. Raises DamagedCheckpoint on all ranks if one does."""
    found: Loaded | TrainerError
    try:
        found = load(root, job, name, peers.rank, peers.size, layout, in_place)
    except DamagedCheckpoint as damage:
        found = damage
    except TrainerError as error:
        with suppress(PeerLost):
            peers.exchange(json.dumps({"other": str(error)}).encode())
        raise
    said = {"damage": found.message, "hint": found.hint} if isinstance(found, DamagedCheckpoint) else {}
    for rank, answer in enumerate(map(json.loads, peers.exchange(json.dumps(said).encode()))):
        if "other" in answer:
            raise PeerLost(f"rank {rank} could not restore checkpoint {name}: {answer['other']}")
        if "damage" in answer:
            raise DamagedCheckpoint(answer["damage"], hint=answer["hint"])
    assert isinstance(found, Loaded)
    return found


def load(
    root: Root,
    job: str,
    name: ManifestName,
    rank: int = 0,
    ranks: int | None = None,
    layout: Layout = lambda _items: whole_on_every_rank,
    in_place: Places = _NOWHERE,
) -> Loaded:
    """Read the state that a rank saved in a checkpoint; rank 0's state, if fewer ranks saved it. Tensors are whole,
    except tensors that the program shards (`layout`), and tensors in the program's memory (`in_place`).

    Raises DamagedCheckpoint even if only one byte differs. `ranks`: this number of ranks reads it together; each also
    verifies a share of the data that it does not need. None: a single reader, and rank 0 verifies everything.
    """
    manifest = store.read_manifest(root, job, name)
    own = rank < manifest.world_size
    part = manifest.part(rank if own else 0)
    reading = _Reading(root, manifest, in_place)
    try:
        like = layout(part.items)
        entries = _at(manifest, _first(part) if part.tensors is None else part.tensors)
    except (AttributeError, LookupError, TypeError) as error:
        raise _invalid(name, error) from error
    tensors = reading.tensors(entries, like)
    if ranks is not None:
        reading.verify_rest(rank, ranks)
    elif rank == 0:
        reading.verify_rest(0, 1)
    alike = manifest.world_size == (ranks or manifest.world_size)
    try:
        items = {key: decode(node, tensors) for key, node in part.items.items()}
        position = decode(part.position, tensors)
        differing = frozenset[str]() if alike else _differing(manifest)
    except (ArithmeticError, LookupError, RecursionError, RuntimeError, TypeError, ValueError, struct.error) as error:
        raise _invalid(name, error) from error
    return Loaded(name, items, position, manifest.world_size, own, differing)


def _first(part: Part) -> Sequence[int]:
    """The places of a rank's tensors, with its own tensors first. Others may have the same names and the values of
    other ranks: if they were read into the same memory, they would replace this rank's values."""
    nodes = [*part.items.values(), part.position]
    return range(1 + max((place for node in nodes for place in referred(node)), default=-1))


def _at(manifest: Manifest, places: Sequence[int]) -> list[TensorEntry]:
    return [manifest.tensors[place] for place in places]


def _invalid(name: ManifestName, error: Exception) -> DamagedCheckpoint:
    return DamagedCheckpoint(f"checkpoint {name} has invalid content although its hash matches: {error}", hint=_HINT)


def _differing(manifest: Manifest) -> frozenset[str]:
    """Those of "rng", "gradients" and "position" that are not the same on all ranks that saved the checkpoint."""
    found: dict[str, list[object]] = {}
    for rank in range(manifest.world_size):
        part = manifest.part(rank)
        transient = part.items.get("transient", {})
        nodes = {"rng": part.items.get("rng"), "gradients": transient.get("gradients"), "position": part.position}
        for name, node in nodes.items():
            numbers = referred(node)
            entries = numbers if part.tensors is None else [part.tensors[number] for number in numbers]
            found.setdefault(name, []).append((node, entries))
    return frozenset(name for name, values in found.items() if any(value != values[0] for value in values))


def weights_hash(model: Any) -> str:
    """xxh3-128 over name, dtype, shape and bytes of each tensor of `model.state_dict()`, in the order of their names.

    Tied tensors count once. `model` may also be a mapping of models. DTensors are gathered first, so all ranks must
    call this; the hash does not depend on how they are sharded.
    """
    encoder = Encoder()
    encoder.encode(capture(model), "model")
    digest = xxhash.xxh3_128()
    for name, tensor in sorted(encoder.tensors, key=lambda named: named[0]):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor_bytes(whole(tensor)))
    return str(digest.hexdigest())


class _Reading:
    """Reads one checkpoint. `read`: the verified chunks."""

    def __init__(self, root: Root, manifest: Manifest, in_place: Places) -> None:
        self._root, self._manifest, self._in_place = root, manifest, in_place
        self._read: set[str] = set()

    def tensors(self, entries: Sequence[TensorEntry], like: Like) -> list[torch.Tensor]:
        """The tensors of these entries, in this order. Tensors that share a chunk cost one read."""
        with unfilled():
            return self._filled(entries, like)

    def _filled(self, entries: Sequence[TensorEntry], like: Like) -> list[torch.Tensor]:
        tensors, whole_ones, divided = list[torch.Tensor](), list[_Wanted](), dict[str, int]()
        for number, entry in enumerate(entries):
            template = like(entry.name, entry.shape)
            tensors.append(self._target(entry, template))
            if template is not None or entry.boxes:
                divided[str(number)] = number
            else:
                whole_ones.append((entry, 0, entry.size_bytes, tensor_bytes(tensors[-1])))
        if not divided:
            self._fetch(whole_ones)
            return tensors
        from trainers.checkpoint import sharded  # it takes a second to import, and few programs need it

        wanted = {key: entries[number] for key, number in divided.items() if entries[number].size_bytes}
        reader = sharded.ChunkReader(wanted, lambda parts: self._fetch([*whole_ones, *parts]))
        sharded.load_into({key: tensors[divided[key]] for key in wanted}, reader)
        return tensors

    def verify_rest(self, rank: int, ranks: int) -> None:
        """Verify this rank's share of the data that was not read. Raises DamagedCheckpoint."""
        name, pieces = self._manifest.name, list[tuple[Piece, str]]()
        mine = set(sorted(self._manifest.chunks())[rank::ranks]) - self._read
        for entry in self._manifest.tensors:
            pieces += [(piece, f"{name}: {entry.name}") for piece in entry.pieces if piece.chunk in mine]
        store.verify_pieces(self._root, self._manifest.job, pieces)

    def _target(self, entry: TensorEntry, template: torch.Tensor | None) -> torch.Tensor:
        try:
            kind = fitting_dtype(entry.dtype, entry.shape, entry.size_bytes)
            if template is not None:
                return torch.empty_like(template, dtype=kind, requires_grad=False)
            present = self._in_place.get(entry.name)
            if present is not None and (present.dtype, tuple(present.shape)) == (kind, entry.shape):
                return present.detach()
            return empty_tensor(entry.dtype, entry.shape, entry.size_bytes)
        except StateError as error:
            raise DamagedCheckpoint(f"checkpoint {self._manifest.name}: {entry.name}: {error}", hint=_HINT) from error

    def _fetch(self, wanted: Sequence[_Wanted]) -> None:
        """Read a byte range of each entry into the buffer. Raises DamagedCheckpoint."""
        copies: dict[str, list[tuple[Piece, int, memoryview]]] = {}
        holders: dict[str, str] = {}
        for entry, begin, end, buffer in wanted:
            at = -begin
            for piece in entry.pieces:
                size = piece.end - piece.begin
                if at + size > 0 and at < end - begin:
                    copies.setdefault(piece.chunk, []).append((piece, at, buffer))
                    holders.setdefault(piece.chunk, f"{self._manifest.name}: {entry.name}")
                at += size

        def place(chunk: str, data: bytes) -> None:
            for piece, at, buffer in copies.pop(chunk):
                store.require_inside(piece, len(data), holders[chunk])
                first, last = max(-at, 0), min(piece.end - piece.begin, len(buffer) - at)
                source = memoryview(data)[piece.begin + first : piece.begin + last]
                numpy.copyto(numpy.asarray(buffer[at + first : at + last]), source)  # without the interpreter's lock

        for chunk, _ in store.read_chunks(self._root, self._manifest.job, holders, place):
            self._read.add(chunk)
