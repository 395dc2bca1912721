"""ResumableLoader: batches whose order and random augmentation are a pure function of (seed, epoch, position).

The order of an epoch is a permutation by Philox keyed with (seed, epoch). Before a sample is fetched, the generators of
python, numpy and torch are seeded with a hash of (seed, epoch, index); they are restored after the batch. So workers
have no state, their number may differ between runs, and the position is two integers. A data set with its own state
must be able to save it and is read in this process; otherwise it is rejected.

In a run of several processes (ranks), each reads its share of every batch of the run, which is `batch_size` samples per
rank: together they read each sample once per epoch, and the position is the same for all.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from typing import Any

import numpy
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
)
from torch.utils.data.distributed import DistributedSampler

from trainers.data.memory import keepers, memory, memory_of, require_unchanged
from trainers.errors import LoaderError
from trainers.loop.rng import seed_host, untouched_rng

_TAKEN_OVER = ("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context")
_HINT = "use trainers.data.ResumableLoader, or a loader with state_dict() and load_state_dict()"


class ResumableLoader:
    """Iterating returns the rest of the current epoch; iterating again, the next one.

    `options` are passed to torch's DataLoader (collate_fn, pin_memory, worker_init_fn ...). Raises LoaderError for data
    whose position cannot be resumed exactly.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        batch_size: int,
        seed: int,
        workers: int = 0,
        *,
        shuffle: bool = True,
        drop_last: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__"):
            raise LoaderError(
                f"{type(dataset).__name__} cannot be read by index, so its position cannot be resumed",
                hint="give it __len__ and __getitem__",
            )
        if not isinstance(dataset, Sized):
            raise LoaderError(f"{type(dataset).__name__} has no length", hint="give it __len__")
        if batch_size < 1:
            raise LoaderError(f"batch_size is {batch_size}", hint="it must be 1 or more")
        self._keepers = dict(keepers(dataset))
        if self._keepers and workers:
            raise LoaderError(
                f"{type(dataset).__name__} has state (state_dict), and each of {workers} workers would have its own",
                hint="use no workers, or remove the state",
            )
        self.dataset = dataset
        self.batch_size = batch_size
        self.seed = seed
        self.workers = workers
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.epoch = 0
        self.batch = 0  # batches of this epoch that were returned
        self._rank, self._ranks = 0, 1
        self._samples = len(dataset)
        self._options = dict(options or {})

    def shard(self, rank: int, ranks: int) -> None:
        """Read the share of `rank` (from 0) of every batch; `attach` calls this for its loader.

        If the last batch of an epoch has fewer samples, the shares differ by at most one; samples too few to give every
        rank one join the batch before. Raises LoaderError if the data set has fewer samples than there are ranks.
        """
        if self._samples < ranks:
            raise LoaderError(
                f"the data set has {self._samples} samples for {ranks} ranks", hint="use fewer processes or more data"
            )
        self._rank, self._ranks = rank, ranks

    @classmethod
    def take_over(cls, loader: DataLoader[Any], seed: int) -> ResumableLoader:
        """A loader with the same batches as `loader`, except for the order of a shuffle.

        Raises LoaderError, with the reason, if its position cannot be resumed exactly.
        """
        if isinstance(loader.dataset, IterableDataset):
            raise LoaderError(
                f"the loader's dataset {type(loader.dataset).__name__} is iterable: its position cannot be saved",
                hint=f"make it a map-style dataset (__len__, __getitem__), or {_HINT}",
            )
        sampler = loader.sampler
        if loader.batch_size is None or type(loader.batch_sampler) is not BatchSampler:
            raise LoaderError("the loader has a custom batch sampler", hint=_HINT)
        plain_shuffle = type(sampler) is RandomSampler and not sampler.replacement and sampler._num_samples is None
        of_rank = type(sampler) is DistributedSampler
        if not plain_shuffle and not of_rank and type(sampler) is not SequentialSampler:
            raise LoaderError(f"the order of a {type(sampler).__name__} cannot be resumed exactly", hint=_HINT)
        selected = sampler.dataset if of_rank else sampler  # type: ignore[attr-defined]
        samples = [len(each) for each in (selected, loader.dataset) if isinstance(each, Sized)]
        if len(set(samples)) > 1:
            raise LoaderError(
                f"the loader's sampler selects {samples[0]} of {samples[1]} samples, and it is unknown which",
                hint="use a torch.utils.data.Subset",
            )
        options = {name: getattr(loader, name) for name in _TAKEN_OVER}
        if loader.num_workers:
            options["prefetch_factor"] = loader.prefetch_factor
        workers = options.pop("num_workers")
        return cls(
            loader.dataset,
            loader.batch_size,
            seed,
            workers,
            shuffle=sampler.shuffle if of_rank else plain_shuffle,  # type: ignore[attr-defined]
            drop_last=loader.drop_last,
            options=options,
        )

    def __len__(self) -> int:
        """Batches per epoch."""
        whole, rest = divmod(self._samples, self.batch_size * self._ranks)
        return whole + (1 if rest >= self._ranks and not self.drop_last else 0)

    def __iter__(self) -> Iterator[Any]:
        batches = self._remaining()
        # A separate generator: creating an iterator draws a seed, which must not change the program's generators.
        fetched = iter(
            DataLoader(
                KeyedDataset(self.dataset, self.seed, self.epoch, self.batch_size),
                batch_sampler=batches,
                num_workers=self.workers,
                generator=torch.Generator(),
                **{**self._options, "collate_fn": self._watched_collate()},
            )
        )
        for _ in batches:
            with untouched_rng():
                batch = next(fetched)
            self.batch += 1
            yield batch
        self.epoch, self.batch = self.epoch + 1, 0

    def state_dict(self) -> dict[str, Any]:
        """The position and what it depends on."""
        kept = {"kept": {path: part.state_dict() for path, part in self._keepers.items()}} if self._keepers else {}
        return {
            **kept,
            "epoch": self.epoch,
            "batch": self.batch,
            "seed": self.seed,
            "samples": self._samples,
            "batch_size": self.batch_size * self._ranks,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the position. Raises LoaderError if the data or batch size have changed, because it has no meaning
        then.
        """
        kept = state.get("kept", {})
        if kept.keys() != self._keepers.keys():
            raise LoaderError(
                f"the checkpoint has the state of {', '.join(kept) or 'no data set'}; data sets with state here: "
                f"{', '.join(self._keepers) or 'none'}",
                hint="resume with the same data, or submit a new job",
            )
        for name, present in (("samples", self._samples), ("batch_size", self.batch_size * self._ranks)):
            if state[name] != present:
                raise LoaderError(
                    f"the checkpoint was saved with {name} = {state[name]}, but it is {present} now",
                    hint="resume with the same data and batch size, or submit a new job",
                )
        for path, part in self._keepers.items():
            part.load_state_dict(kept[path])
        self.seed, self.epoch, self.batch = state["seed"], state["epoch"], state["batch"]

    def _watched_collate(self) -> Callable[[Any], Any] | None:
        collate = self._options.get("collate_fn")
        owner = getattr(collate, "__self__", collate)
        kept = any(owner is keeper for keeper in self._keepers.values())
        return collate if collate is None or kept else _WatchedCollate(collate, owner)

    def _remaining(self) -> list[list[int]]:
        order: Sequence[int] = range(self._samples)
        if self.shuffle:
            key = numpy.array([self.seed, self.epoch], numpy.uint64)
            order = numpy.random.Generator(numpy.random.Philox(key=key)).permutation(self._samples).tolist()
        return [list(order[slice(*self._share(batch))]) for batch in range(self.batch, len(self))]

    def _share(self, batch: int) -> tuple[int, int]:
        """Where the share of this rank of a batch begins and ends in the order of the epoch."""
        begin, size = batch * self.batch_size * self._ranks, self.batch_size * self._ranks
        if batch == len(self) - 1 and not self.drop_last:
            size = self._samples - begin
        least, more = divmod(size, self._ranks)
        begin += self._rank * least + min(self._rank, more)
        return begin, begin + least + (1 if self._rank < more else 0)


class KeyedDataset(Dataset[Any]):
    """`dataset` with every random draw of a sample keyed by (seed, epoch, index).

    For the first `watched` samples (per worker), checks that fetching them does not change the data set.
    """

    def __init__(self, dataset: Dataset[Any], seed: int, epoch: int, watched: int) -> None:
        self.dataset = dataset
        self.seed = seed
        self.epoch = epoch
        self._left = watched

    def __getitem__(self, index: int) -> Any:
        before = memory(self.dataset) if self._left else {}
        key = struct.pack("<QQQ", self.seed, self.epoch, index)
        seed_host(hashlib.blake2b(key, digest_size=16).digest())
        sample = self.dataset[index]
        if self._left:
            self._left -= 1
            require_unchanged(before, memory(self.dataset))
        return sample


class _WatchedCollate:
    """`collate`, with a check at its first batch (per worker) that it does not change its `owner`."""

    def __init__(self, collate: Callable[[Any], Any], owner: Any) -> None:
        self._collate = collate
        self._owner = owner
        self._watched = False

    def __call__(self, samples: Any) -> Any:
        if self._watched:
            return self._collate(samples)
        self._watched = True
        before = memory_of(self._owner, "collate_fn")
        batch = self._collate(samples)
        require_unchanged(before, memory_of(self._owner, "collate_fn"))
        return batch


def resumable(loader: Any, seed: int, rank: int = 0, ranks: int = 1) -> Any:
    """A loader with an exact position, from what `attach` was given, for one of `ranks`. Raises LoaderError with the
    reason if there is none.
    """
    if isinstance(loader, DataLoader) and not _has_position(loader):
        _require_sampler_of(loader, rank, ranks)
        loader = ResumableLoader.take_over(loader, seed)
    if ranks > 1 and isinstance(loader, ResumableLoader):
        loader.shard(rank, ranks)
    if _has_position(loader):
        return loader
    raise LoaderError(f"a {type(loader).__name__} has no position that can be saved", hint=_HINT)


def _has_position(loader: Any) -> bool:
    return hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")


def _require_sampler_of(loader: DataLoader[Any], rank: int, ranks: int) -> None:
    """Raises LoaderError for a DistributedSampler of another process."""
    sampler = loader.sampler
    if isinstance(sampler, DistributedSampler) and (sampler.rank, sampler.num_replicas) != (rank, ranks):
        raise LoaderError(
            f"the loader's DistributedSampler is that of rank {sampler.rank} of {sampler.num_replicas}, not of rank "
            f"{rank} of {ranks}",
            hint="leave the sampler out: the loader is divided among the ranks",
        )
