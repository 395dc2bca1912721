"""Staging: memory shared with the writing process, to which a state is copied so that training can continue.

The memory is reused for each checkpoint, because copying to new memory takes several times as long. It has no name in a
file system, so it disappears when both processes end.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from trainers.checkpoint.state import dtype_name

ALIGNED = 64  # bytes: more than any dtype needs, and a cache line


Places = list[tuple[str, str, tuple[int, ...], int, int]]
"""Path, dtype, shape, and the first and last byte of each tensor."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a state in the memory: the tensors, then the JSON that lists them and everything else."""

    tensors: Sequence[torch.Tensor]
    places: Places
    text: bytes
    text_at: int

    @classmethod
    def of(cls, described: Mapping[str, Any], tensors: Sequence[tuple[str, torch.Tensor]]) -> Layout:
        """The layout of a state (JSON, and tensors by path); copies nothing."""
        at, places = 0, Places()
        for path, tensor in tensors:
            places.append((path, dtype_name(tensor), tuple(tensor.shape), at, at + _size(tensor)))
            at += _size(tensor, ALIGNED)
        text = json.dumps({**described, "tensors": places}, separators=(",", ":"), allow_nan=False)
        return cls([tensor for _, tensor in tensors], places, text.encode(), at)

    @property
    def end(self) -> int:
        """The bytes of memory that the state takes."""
        return self.text_at + len(self.text)

    @property
    def room(self) -> int:
        """The same with a reserve, because text and lists of a state grow."""
        return -(-(self.end + self.end // 16 + (1 << 20)) // mmap.PAGESIZE) * mmap.PAGESIZE


class Staging:
    """The memory behind the file descriptor `fd`, which is closed."""

    def __init__(self, fd: int, size: int) -> None:
        self.size = size
        try:
            self._map = mmap.mmap(fd, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        finally:
            os.close(fd)
        self._bytes = torch.frombuffer(self._map, dtype=torch.uint8)

    def hold(self, layout: Layout, at: int) -> None:
        """Copy a state to the memory from byte `at` on, a multiple of ALIGNED; it must fit."""
        with torch.no_grad():
            for tensor, (*_, begin, end) in zip(layout.tensors, layout.places, strict=True):
                if end > begin:
                    room = self._bytes[at + begin : at + end].view(tensor.dtype).view(tensor.shape)
                    room.copy_(tensor.detach().resolve_conj().resolve_neg())
        self._map[at + layout.text_at : at + layout.end] = layout.text


def _size(tensor: torch.Tensor, multiple: int = 1) -> int:
    return -(-tensor.numel() * tensor.element_size() // multiple) * multiple
