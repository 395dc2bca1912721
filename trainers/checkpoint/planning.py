"""Which rank writes what, decided by torch's distributed-checkpoint planner (DefaultSavePlanner).

The planner sees a flat state: each tensor under a key. Ranks that hold equal tensors use the same key, so that one of
them writes it; the work is balanced by size. A DTensor has one key on all ranks, and each rank writes the box that it
holds; one rank writes a box that is repeated on several.

Plain tensors are compared by their hashes: nothing is assumed about what ranks have in common.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import xxhash
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType

from trainers.checkpoint.exchange import Exchange
from trainers.checkpoint.manifest import Box
from trainers.checkpoint.parts import Shares
from trainers.checkpoint.state import tensor_bytes
from trainers.checkpoint.views import is_sharded, local


class Slot(NamedTuple):
    """A tensor of a rank: its path, dtype, whole shape, and the hash of its values, or "" for a DTensor. `box` is the
    part that this rank holds, None if nothing.
    """

    path: str
    dtype: str
    shape: tuple[int, ...]
    digest: str
    box: Box | None

    def to_json(self) -> list[Any]:
        """For from_json."""
        return [*self[:4], self.box and [self.box.begin, self.box.lengths]]

    @classmethod
    def from_json(cls, body: list[Any]) -> Slot:
        """The slot that another rank described."""
        path, dtype, shape, digest, box = body
        return cls(path, dtype, tuple(shape), digest, box and Box(tuple(box[0]), tuple(box[1])))


def agreed_shares(peers: Exchange, tensors: Sequence[tuple[str, torch.Tensor]], word: str = "") -> tuple[Shares, str]:
    """Who writes what, and the `word` of rank 0. Every rank must call it."""
    said = {"slots": [slot.to_json() for slot in slots_of(tensors)], "word": word}
    heard = [json.loads(each) for each in peers.exchange(json.dumps(said, separators=(",", ":")).encode())]
    return shares([[Slot.from_json(slot) for slot in each["slots"]] for each in heard]), heard[0]["word"]


def slots_of(tensors: Sequence[tuple[str, torch.Tensor]]) -> list[Slot]:
    """The tensors of this rank; reads every byte of the tensors that are not sharded."""
    planner = _planner({str(number): tensor for number, (_, tensor) in enumerate(tensors)})
    boxes: dict[str, Box] = {}
    for item in planner.create_local_plan().items:
        box = _box(item)
        if math.prod(box.lengths) or not math.prod(tensors[int(item.index.fqn)][1].shape):
            boxes[item.index.fqn] = box
    found = []
    for number, (path, tensor) in enumerate(tensors):
        digest = "" if is_sharded(tensor) else str(xxhash.xxh3_128_hexdigest(tensor_bytes(tensor)))
        dtype = str(tensor.dtype).removeprefix("torch.")
        found.append(Slot(path, dtype, tuple(tensor.shape), digest, boxes.get(str(number))))
    return found


def shares(slots: Sequence[Sequence[Slot]]) -> Shares:
    """Assign every box to a rank that has it. `slots`: the tensors of each rank.

    Two equal tensors of one rank keep separate entries, because a resume would otherwise make them one tensor. The
    writing rank depends on sizes, not on values, so most tensors keep their writer from one checkpoint to the next.
    """
    known: dict[tuple[object, ...], str] = {}
    keys = []
    for of_rank in slots:
        again = Counter[Slot]()
        here = []
        for slot in of_rank:
            value = slot._replace(box=None)
            here.append(known.setdefault((value, again[value]), f"{slot.path}#{len(known)}"))
            again[value] += 1
        keys.append(here)
    plans = [
        SavePlan([_item(key, slot) for key, slot in zip(here, of_rank, strict=True) if slot.box is not None])
        for here, of_rank in zip(keys, slots, strict=True)
    ]
    planned, _ = _planner({}).create_global_plan(plans)
    entries = {
        key: (slot.path, slot.dtype, slot.shape)
        for here, of_rank in zip(keys, slots, strict=True)
        for key, slot in zip(here, of_rank, strict=True)
    }
    numbers = {key: number for number, key in enumerate(entries)}
    places = [[numbers[key] for key in here] for here in keys]
    writes = [[(numbers[item.index.fqn], _box(item)) for item in plan.items] for plan in planned]
    return Shares([*entries.values()], places, writes)


def written(tensors: Sequence[tuple[str, torch.Tensor]], plan: Shares, rank: int) -> list[tuple[str, torch.Tensor]]:
    """The tensors, or parts of them, that `rank` has to write, each with its name, in the order of the plan."""
    of_entry = {entry: number for number, entry in enumerate(plan.places[rank])}
    held = [tensors[of_entry[entry]] for entry, _ in plan.writes[rank]]
    return [(path, local(tensor)) for path, tensor in held]


def _planner(state: dict[str, Any]) -> DefaultSavePlanner:
    planner = DefaultSavePlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    planner.set_up_planner(state, is_coordinator=True)
    return planner


def _box(item: WriteItem) -> Box:
    assert item.tensor_data is not None
    return Box(tuple(item.tensor_data.chunk.offsets), tuple(item.tensor_data.chunk.sizes))


def _item(key: str, slot: Slot) -> WriteItem:
    assert slot.box is not None
    begin, lengths = torch.Size(slot.box.begin), torch.Size(slot.box.lengths)
    properties = TensorProperties(dtype=getattr(torch, slot.dtype))
    data = TensorWriteData(ChunkStorageMetadata(begin, lengths), properties, torch.Size(slot.shape))
    return WriteItem(MetadataIndex(key, begin), WriteItemType.SHARD, tensor_data=data)
