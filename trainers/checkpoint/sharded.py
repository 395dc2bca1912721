"""Reads tensors into shards that differ from the stored ones. The chunk store is a StorageReader for torch's
DefaultLoadPlanner, which finds the overlaps (torch.distributed.checkpoint).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from trainers.checkpoint.manifest import Box, TensorEntry
from trainers.checkpoint.state import tensor_bytes

Fetch = Callable[[Sequence[tuple[TensorEntry, int, int, memoryview]]], None]
"""Reads a byte range of each of these entries into a buffer."""


class ChunkReader(StorageReader):
    """Reads parts of `entries`, whose keys are their numbers, through `fetch`."""

    def __init__(self, entries: Mapping[str, TensorEntry], fetch: Fetch) -> None:
        self._entries, self._fetch = entries, fetch

    def reset(self, checkpoint_id: object = None) -> None:
        """See StorageReader. A reader reads one checkpoint."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:  # noqa: ARG002
        """See StorageReader."""
        return Metadata(
            {
                key: TensorStorageMetadata(
                    TensorProperties(dtype=getattr(torch, entry.dtype)),
                    torch.Size(entry.shape),
                    [ChunkStorageMetadata(torch.Size(box.begin), torch.Size(box.lengths)) for box in _boxes(entry)],
                )
                for key, entry in self._entries.items()
            }
        )

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """See StorageReader."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """See StorageReader."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """See StorageReader."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """See StorageReader. Data with the same layout in memory as in the store is read in place."""
        wanted: list[tuple[TensorEntry, int, int, memoryview]] = []
        copies: list[Callable[[], object]] = []
        for item in plan.items:
            entry, target = self._entries[item.storage_index.fqn], planner.resolve_tensor(item)
            begin, end, narrow = self._rows(entry, item)
            if narrow is None and target.device.type == "cpu" and target.is_contiguous():
                buffer = tensor_bytes(target)
            else:
                rows, inner = item.lengths[:1], _boxes(entry)[item.storage_index.index or 0].lengths[1:]
                held = torch.empty((*rows, *inner), dtype=target.dtype)
                buffer = tensor_bytes(held)
                found = held if narrow is None else held[narrow]
                copies.append(lambda target=target, found=found: target.copy_(found))  # type: ignore[misc]
            wanted.append((entry, begin, end, buffer))
        self._fetch(wanted)
        with torch.no_grad():
            for copy in copies:
                copy()
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _rows(self, entry: TensorEntry, item: ReadItem) -> tuple[int, int, tuple[slice, ...] | None]:
        """The byte range of the wanted rows of a box, and the wanted slices of these rows; None: all of them."""
        boxes, number = _boxes(entry), item.storage_index.index or 0
        item_bytes = entry.size_bytes // math.prod(entry.shape)
        at = sum(math.prod(box.lengths) for box in boxes[:number]) * item_bytes
        lengths = boxes[number].lengths
        if not lengths:
            return at, at + item_bytes, None
        row_bytes = math.prod(lengths[1:]) * item_bytes
        begin = at + item.storage_offsets[0] * row_bytes
        narrow = None
        if tuple(item.lengths[1:]) != lengths[1:]:
            inner = zip(item.storage_offsets[1:], item.lengths[1:], strict=True)
            narrow = (slice(None), *(slice(first, first + count) for first, count in inner))
        return begin, begin + item.lengths[0] * row_bytes, narrow

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: object) -> bool:
        """See StorageReader."""
        return isinstance(checkpoint_id, str)


def load_into(targets: Mapping[str, torch.Tensor], reader: ChunkReader) -> None:
    """Fill tensors, plain or sharded, by key, from any stored boxes; waits for no other rank."""
    planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    planner.set_up_planner(dict(targets), reader.read_metadata(), is_coordinator=True)
    reader.read_data(planner.finish_plan(reader.prepare_local_plan(planner.create_local_plan())), planner).wait()


def _boxes(entry: TensorEntry) -> Sequence[Box]:
    return entry.boxes or (Box((0,) * len(entry.shape), entry.shape),)
