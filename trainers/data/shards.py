"""Shards: the samples of files that can only be read from the beginning, such as archives and compressed lines.

A loader reads them with a cursor: its position, a number of samples of the epoch, identifies a shard and a sample in
it. The position is saved in checkpoints and does not depend on the reader, so each sample comes exactly once per epoch
with any number of workers and processes, even if the number changes at a restart. To do so, each reader skips the
records of the others: reading a record should be cheap; put expensive work into `decode`.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset

from trainers.errors import LoaderError


class Shards(Dataset[Any]):
    """All samples of `paths`, one shard after the other.

        loader = DataLoader(Shards(sorted(folder.glob("*.jsonl.gz")), lines, json.loads), batch_size=32, shuffle=True)

    `read` returns an iterator of a shard's records, always the same records in the same order; `decode` converts a
    record to a sample. With `shuffle=True`, the order of the shards differs from epoch to epoch; within a shard,
    samples have the order of the file. `lengths`: the number of samples of each shard; None: each shard is read once to
    count them.

    Raises LoaderError if there is no shard or no sample, or if the number of lengths is wrong; when a sample is read,
    also if its shard ends too early.
    """

    def __init__(
        self,
        paths: Sequence[str | Path],
        read: Callable[[str], Iterator[Any]],
        decode: Callable[[Any], Any] | None = None,
        *,
        lengths: Sequence[int] | None = None,
    ) -> None:
        self._paths = list(map(str, paths))
        self._read, self._decode = read, decode
        self.lengths = [sum(1 for _ in read(path)) for path in self._paths] if lengths is None else list(lengths)
        """The number of samples of each shard."""
        if len(self.lengths) != len(self._paths):
            raise LoaderError(
                f"there are {len(self._paths)} shards and {len(self.lengths)} lengths",
                hint="give one length for each shard",
            )
        if sum(self.lengths) < 1:
            raise LoaderError(f"{len(self._paths)} shards have no samples", hint="check the paths")
        self._ends = list(accumulate(self.lengths))
        self._cursor: _Cursor | None = None

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(index)
        shard = bisect_right(self._ends, index)
        offset = index - (self._ends[shard] - self.lengths[shard])
        path, cursor = self._paths[shard], self._cursor
        if cursor is None or not cursor.reaches(path, offset):
            cursor = self._cursor = _Cursor(path, self._read)
        record = cursor.at(offset)
        return record if self._decode is None else self._decode(record)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_cursor": None}  # a worker opens shards itself


class _Cursor:
    """Reads one shard forwards. A forked process does not use it, because both processes would share the file
    position."""

    def __init__(self, path: str, read: Callable[[str], Iterator[Any]]) -> None:
        self._path, self._process = path, os.getpid()
        self._records, self._next = iter(read(path)), 0

    def reaches(self, path: str, offset: int) -> bool:
        """Whether this sample of this shard is still ahead."""
        return path == self._path and offset >= self._next and self._process == os.getpid()

    def at(self, offset: int) -> Any:
        """The record with this number, counted from 0. Raises LoaderError if the shard ends before it."""
        for record in self._records:
            self._next += 1
            if self._next > offset:
                return record
        raise LoaderError(
            f"{self._path} has {self._next} samples; sample {offset + 1} was expected",
            hint="restore the file, or submit a new job for the new data",
        )
