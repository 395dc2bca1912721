"""A torch DataLoader whose batches are a pure function of (seed, epoch, place), for a framework that iterates it.

The framework skips trained batches by leaving them out of the batch sampler. Random draws of samples and of
`collate_fn` are keyed and do not change the program's generators, so they are the same after a resume, with any number
of workers.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, Sampler, default_collate

from trainers.data.loader import KeyedDataset
from trainers.data.order import Order, order_of
from trainers.errors import LoaderError
from trainers.loop.rng import seed_host, untouched_rng

Place = tuple[int, int]
"""An epoch and the index of a sample."""


def keyed(loader: DataLoader[Any], sampler: Any, seed: int) -> DataLoader[Any]:
    """A loader of the same data set with the same settings and the order of `sampler`. Raises LoaderError if the order
    cannot be recomputed.
    """
    batches = loader.batch_sampler
    if loader.batch_size is None and not isinstance(batches, BatchSampler):
        raise LoaderError("the loader has a custom batch sampler", hint="use a batch size")
    size = loader.batch_size or batches.batch_size  # type: ignore[union-attr]
    order = order_of(sampler, len(loader.dataset))  # type: ignore[arg-type]
    workers: dict[str, Any] = {}
    if loader.num_workers:
        workers = {"prefetch_factor": loader.prefetch_factor, "persistent_workers": loader.persistent_workers}
    return DataLoader(
        _Places(loader.dataset, seed),
        batch_sampler=EpochBatches(order, size, seed, drop_last=loader.drop_last),
        collate_fn=_KeyedCollate(loader.collate_fn or default_collate, seed),
        num_workers=loader.num_workers,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        generator=torch.Generator(),
        **workers,
    )


class EpochBatches(Sampler[list[Place]]):
    """The places of each batch of the current epoch, which `set_epoch` sets."""

    def __init__(self, order: Order, batch_size: int, seed: int, *, drop_last: bool) -> None:
        self._order, self._seed = order, seed
        self.batch_size, self.drop_last, self.epoch = batch_size, drop_last, 0

    def set_epoch(self, epoch: int) -> None:
        """The next iteration has the order of this epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        whole, rest = divmod(self._order.length, self.batch_size)
        return whole + (1 if rest and not self.drop_last else 0)

    def __iter__(self) -> Iterator[list[Place]]:
        order = self._order.of(self._seed, self.epoch)
        for batch in range(len(self)):
            yield [(self.epoch, index) for index in order[batch * self.batch_size : (batch + 1) * self.batch_size]]


class _Places(KeyedDataset):
    """Samples by place, each returned with its place."""

    def __init__(self, dataset: Dataset[Any], seed: int) -> None:
        super().__init__(dataset, seed, epoch=0, watched=0)

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def __getitem__(self, place: Any) -> tuple[Place, Any]:
        with untouched_rng():
            self.epoch = place[0]
            return place, super().__getitem__(place[1])


class _KeyedCollate:
    """`collate`, whose random draws are keyed by the places of its samples."""

    def __init__(self, collate: Callable[[list[Any]], Any], seed: int) -> None:
        self._collate, self._seed = collate, seed

    def __call__(self, found: list[tuple[Place, Any]]) -> Any:
        key = struct.pack("<Q", self._seed) + b"".join(struct.pack("<QQ", *place) for place, _ in found)
        with untouched_rng():
            seed_host(hashlib.blake2b(key, digest_size=16).digest())
            return self._collate([sample for _, sample in found])
