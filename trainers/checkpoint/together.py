"""Writes one checkpoint of a run with several ranks, in two phases.

First each rank makes its tensors durable; then rank 0, once it has heard that from all, commits the one manifest that
names everything. If a rank dies or cannot write, nothing is committed.

Each rank's state is saved completely, and what is equal on several ranks is stored once: under DistributedDataParallel,
the model and the optimizer. So nothing is assumed about what ranks have in common. Equal tensors are found by their
hashes and are shared out among the ranks that have them, so that they write together.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import xxhash

from trainers.checkpoint import store
from trainers.checkpoint.manifest import Manifest, ManifestName, Piece, TensorEntry
from trainers.checkpoint.packing import store_tensors
from trainers.checkpoint.retention import collect
from trainers.checkpoint.state import Encoder, tensor_bytes
from trainers.checkpoint.writer import dtype_name, values, versions
from trainers.errors import (
    FencedError,
    PeerLost,
    StateError,
    StoreThrottled,
    StoreUnavailable,
    TrainerError,
    message_of,
)
from trainers.objects.opening import Root

Slot = tuple[str, str, tuple[int, ...], str]
"""A tensor of a rank: its path, dtype, shape and hash."""
_SURVIVED = {kind.__name__: kind for kind in (FencedError, StoreThrottled, StoreUnavailable)}  # raised on every rank


class Exchange(Protocol):
    """The connection among the ranks."""

    rank: int
    size: int

    def exchange(self, data: bytes) -> list[bytes]:
        """What every rank passed, by rank; each must call it. Raises PeerLost."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Who writes what. `entries`: the manifest's tensors, each with its writer and the number of its tensor there;
    `places`: for each rank, the entries of its tensors.
    """

    entries: list[tuple[int, int]]
    places: list[list[int]]


def shares(slots: Sequence[Sequence[Slot]]) -> Shares:
    """Assign every tensor to a rank that has it. `slots`: the tensors of each rank.

    Two tensors of one rank keep their own entries even if they are equal, because a resume would make them one. Which
    rank writes depends on sizes, not on values, so that most tensors keep their writer from one checkpoint to the next.
    """
    holders = [[(0, number)] for number in range(len(slots[0]))]
    places = [list(range(len(slots[0])))]
    for rank in range(1, len(slots)):
        unused: dict[Slot, list[int]] = {}
        for entry in reversed(range(len(holders))):
            first, number = holders[entry][0]
            unused.setdefault(slots[first][number], []).append(entry)
        here = []
        for number, slot in enumerate(slots[rank]):
            if found := unused.get(slot):
                here.append(found.pop())
                holders[here[-1]].append((rank, number))
            else:
                here.append(len(holders))
                holders.append([(rank, number)])
        places.append(here)
    load = [0] * len(slots)
    entries = []
    for candidates in holders:
        rank, number = min(candidates, key=lambda each: load[each[0]])
        load[rank] += _size(slots[rank][number])
        entries.append((rank, number))
    return Shares(entries, places)


def save_together(
    root: Root,
    job: str,
    name: ManifestName,
    *,
    peers: Exchange,
    items: Mapping[str, Any],
    position: Any,
    keep: int,
    before_commit: Callable[[], None],
) -> ManifestName:
    """Like trainers.checkpoint.writer.save, called by every rank with its own state. All return the same name.

    If one rank cannot reach the store, StoreUnavailable or StoreThrottled is raised on all, and the run may go on. For
    other errors of one rank, the others raise PeerLost.
    """
    encoder = Encoder()
    nodes = {key: encoder.encode(value, key) for key, value in items.items()}
    where = encoder.encode(position, "position")
    mine = [_slot(path, tensor) for path, tensor in encoder.tensors]
    slots = [_slots(data) for data in peers.exchange(_json(mine))]
    plan = shares(slots)

    def write() -> dict[str, Any]:
        assigned = [encoder.tensors[number] for rank, number in plan.entries if rank == peers.rank]
        entries = store_tensors(root, job, name.generation, values(assigned))
        pieces = [[(piece.chunk, piece.begin, piece.end) for piece in entry.pieces] for entry in entries]
        if peers.rank != 0:
            store.settle_chunks(root, job)  # rank 0 does that when it commits
        before_commit()
        return {"items": nodes, "position": where, "pieces": pieces}

    parts = _on_every_rank(peers, write)

    def commit() -> dict[str, Any]:
        if peers.rank != 0:
            return {}
        committed = store.commit(root, _manifest(job, name, slots, plan, parts))
        collect(root, job, name.generation, keep)  # the others wait for the answer: nobody writes
        return {"name": str(committed)}

    return ManifestName.parse(_on_every_rank(peers, commit)[0]["name"])


def _on_every_rank(peers: Exchange, work: Callable[[], dict[str, Any]]) -> list[dict[str, Any]]:
    """What `work` returned on each rank. An error on one of them is raised on all."""
    try:
        done = work()
    except BaseException as error:
        said = {"message": error.message, "hint": error.hint} if isinstance(error, TrainerError) else {}
        with suppress(PeerLost):
            peers.exchange(_json({"error": type(error).__name__, "message": message_of(error), **said}))
        raise
    answers = [json.loads(data) for data in peers.exchange(_json(done))]
    for rank, answer in enumerate(answers):
        if "error" in answer:
            kind = _SURVIVED.get(answer["error"])
            if kind is not None:
                raise kind(answer["message"], hint=answer["hint"])
            raise PeerLost(f"rank {rank} could not save: {answer['error']}: {answer['message']}")
    return answers


def _manifest(
    job: str,
    name: ManifestName,
    slots: Sequence[Sequence[Slot]],
    plan: Shares,
    parts: Sequence[Mapping[str, Any]],
) -> Manifest:
    first = parts[0]
    pieces = [iter(part["pieces"]) for part in parts]
    tensors = []
    for rank, number in plan.entries:
        path, dtype, shape, _ = slots[rank][number]
        held = tuple(Piece(*piece) for piece in next(pieces[rank]))
        tensors.append(TensorEntry(path, dtype, shape, held))
    return Manifest(
        job=job,
        name=name,
        world_size=len(parts),
        position=first["position"],
        items=first["items"],
        tensors=tuple(tensors),
        versions=versions(),
        parts=tuple(_differing(first, part, places) for part, places in zip(parts[1:], plan.places[1:], strict=True)),
    )


def _differing(first: Mapping[str, Any], part: Mapping[str, Any], places: list[int]) -> dict[str, Any]:
    """The part of a rank in the manifest."""
    if part["items"].keys() != first["items"].keys():
        raise StateError(
            "not all ranks attached the same parts", hint="call attach() with the same arguments on every rank"
        )
    differs: dict[str, Any] = {}
    if items := {key: node for key, node in part["items"].items() if node != first["items"][key]}:
        differs["items"] = items
    if part["position"] != first["position"]:
        differs["position"] = part["position"]
    if places != list(range(len(places))):
        differs["tensors"] = places
    return differs


def _slot(path: str, tensor: torch.Tensor) -> Slot:
    return path, dtype_name(tensor), tuple(tensor.shape), str(xxhash.xxh3_128_hexdigest(tensor_bytes(tensor)))


def _slots(data: bytes) -> list[Slot]:
    return [(path, dtype, tuple(shape), digest) for path, dtype, shape, digest in json.loads(data)]


def _size(slot: Slot) -> int:
    return math.prod(slot[2]) * int(getattr(torch, slot[1]).itemsize)


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
