"""ResumableLoader: batches whose order and random augmentation are a pure function of (seed, epoch, position).

The order of an epoch is a permutation by Philox keyed with (seed, epoch). Before a sample is fetched, the generators of
python, numpy and torch are seeded with a hash of (seed, epoch, index); they are restored after the batch. So workers
have no state, their number may differ between runs, and the position is two integers. A data set with state must be
able to save it and is read in this process; otherwise it is rejected.

In a run of several processes (ranks), each reads its share of every batch of the run, which has `batch_size` samples
per rank: together they read each sample once per epoch, and the position is the same for all.

With `global_batch`, a step has this number of samples, for any number of ranks and any batch size that they can hold:
each rank gets its share of a step in batches of at most `batch_size`, and `weight` is the factor for the loss of a
batch, so that the sum of the gradients is the gradient of the mean over the whole step.
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from typing import Any, NamedTuple

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
)
from torch.utils.data.distributed import DistributedSampler

from trainers.data.memory import keepers, memory, memory_of, require_unchanged
from trainers.data.order import Order, order_of, whole
from trainers.errors import LoaderError
from trainers.loop.rng import seed_host, untouched_rng

_TAKEN_OVER = ("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context")
_BATCH_SIZE = (
    "keep the number of samples per step: pass it as global_batch to attach(), or resume with the same batch_size and "
    "number of processes"
)
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
        global_batch: int | None = None,
        order: Order | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """`order`: the samples of an epoch and their order; None: all samples, shuffled if `shuffle`."""
        if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__"):
            raise LoaderError(
                f"{type(dataset).__name__} cannot be read by index, so its position cannot be resumed",
                hint="give it __len__ and __getitem__",
            )
        if not isinstance(dataset, Sized):
            raise LoaderError(f"{type(dataset).__name__} has no length", hint="give it __len__")
        if batch_size < 1:
            raise LoaderError(f"batch_size is {batch_size}", hint="it must be 1 or more")
        if global_batch is not None and global_batch < 1:
            raise LoaderError(f"global_batch is {global_batch}", hint="it must be 1 or more")
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
        self.drop_last = drop_last
        self.global_batch = global_batch
        self.epoch = 0
        self.batch = 0  # returned batches of the run in this epoch
        self.weight = 1.0
        """The factor for the loss of the current batch in the sum of a step."""
        self._returned = 0  # parts of the next batch of the run
        self._rank, self._ranks = 0, 1
        self._order = order or whole(dataset, shuffle=shuffle)
        self._samples = self._order.length
        self._options = dict(options or {})

    def shard(self, rank: int, ranks: int) -> None:
        """Read the share of `rank` (from 0) of every batch; `attach` calls this for its loader.

        If the last batch of an epoch has fewer samples, the shares differ by at most one; if there are fewer than
        ranks, they are added to the previous batch. Raises LoaderError if the data set has fewer samples than there are
        ranks.
        """
        if self._samples < ranks:
            raise LoaderError(
                f"the data set has {self._samples} samples for {ranks} ranks", hint="use fewer processes or more data"
            )
        self._rank, self._ranks = rank, ranks

    @classmethod
    def take_over(cls, loader: DataLoader[Any], seed: int, global_batch: int | None = None) -> ResumableLoader:
        """A loader with the same batches as `loader`, except for the order of a shuffle.

        Raises LoaderError, with the reason, if its position cannot be resumed exactly.
        """
        if isinstance(loader.dataset, IterableDataset):
            raise LoaderError(
                f"the loader's dataset {type(loader.dataset).__name__} is iterable: its position cannot be saved",
                hint="use trainers.data.Shards for samples in files, a map-style dataset (__len__, __getitem__), or "
                "torchdata's StatefulDataLoader",
            )
        if loader.batch_size is None or type(loader.batch_sampler) is not BatchSampler:
            raise LoaderError("the loader has a custom batch sampler", hint=_HINT)
        if not isinstance(loader.dataset, Sized):
            raise LoaderError(f"{type(loader.dataset).__name__} has no length", hint="give it __len__")
        order = order_of(loader.sampler, len(loader.dataset))
        options = {name: getattr(loader, name) for name in _TAKEN_OVER}
        if loader.num_workers:
            options["prefetch_factor"] = loader.prefetch_factor
        workers = options.pop("num_workers")
        return cls(
            loader.dataset,
            loader.batch_size,
            seed,
            workers,
            drop_last=loader.drop_last,
            global_batch=global_batch,
            order=order,
            options=options,
        )

    @property
    def per_step(self) -> int:
        """The number of samples in a batch of the run."""
        return self.global_batch or self.batch_size * self._ranks

    @property
    def accumulating(self) -> bool:
        """Whether the step of the current batch has more batches on this rank."""
        return self._returned > 0

    def __len__(self) -> int:
        """The number of batches of the run (with `global_batch`: steps) per epoch."""
        whole, rest = divmod(self._samples, self.per_step)
        least = self._ranks if self.global_batch is None else 1
        return whole + (1 if rest >= least and not self.drop_last else 0)

    def __iter__(self) -> Iterator[Any]:
        parts = self._remaining()
        # A separate generator: creating an iterator draws a seed, which must not change the program's generators.
        fetched = iter(
            DataLoader(
                KeyedDataset(self.dataset, self.seed, self.epoch, self.batch_size),
                batch_sampler=[part.draws for part in parts],
                num_workers=self.workers,
                generator=torch.Generator(),
                **{**self._options, "collate_fn": self._watched_collate()},
            )
        )
        for part in parts:
            with untouched_rng():
                batch = next(fetched)
            self.batch, self._returned = part.then
            self.weight = part.weight
            yield batch
        self.epoch, self.batch, self._returned = self.epoch + 1, 0, 0

    def state_dict(self) -> dict[str, Any]:
        """The position and the settings on which it depends."""
        kept = {"kept": {path: part.state_dict() for path, part in self._keepers.items()}} if self._keepers else {}
        return {
            **kept,
            **({"part": [self._returned, len(self._parts(self.batch))]} if self._returned else {}),
            **({"order": self._order.name} if self._order.name else {}),
            "epoch": self.epoch,
            "batch": self.batch,
            "done": self._bounds(self.batch - 1)[1] if self.batch else 0,
            "seed": self.seed,
            "samples": self._samples,
            "batch_size": self.per_step,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the position. Raises LoaderError if the data or batch size have changed, because the position would
        then have no meaning.
        """
        kept = state.get("kept", {})
        if kept.keys() != self._keepers.keys():
            raise LoaderError(
                f"the checkpoint has the state of {', '.join(kept) or 'no data set'}; data sets with state here: "
                f"{', '.join(self._keepers) or 'none'}",
                hint="resume with the same data, or submit a new job",
            )
        same = {"samples": self._samples, "batch_size": self.per_step, "order": self._order.name}
        for name, present in same.items():
            if state.get(name, "") != present:
                raise LoaderError(
                    f"the checkpoint was saved with {name} = {state.get(name, '')}, but it is {present} now",
                    hint=_BATCH_SIZE if name == "batch_size" else "resume with the same data, or submit a new job",
                )
        batch, (returned, of) = state["batch"], state.get("part", (0, 0))
        if returned and of != len(self._parts(batch)):
            raise LoaderError(
                f"the checkpoint was saved after {returned} of {of} batches of a step, which now has "
                f"{len(self._parts(batch))}",
                hint="resume with the same batch_size and number of processes",
            )
        if state.get("done") == self._samples:  # in batches of another number of ranks
            batch = len(self)
        elif batch >= len(self) and not self.drop_last and state.get("done", self._samples) < self._samples:
            raise LoaderError(
                f"{self._samples - state['done']} samples of the epoch are left for {self._ranks} processes",
                hint="resume with fewer processes, or use global_batch in attach()",
            )
        for path, part in self._keepers.items():
            part.load_state_dict(kept[path])
        self.seed, self.epoch, self.batch, self._returned = state["seed"], state["epoch"], batch, returned

    def _watched_collate(self) -> Callable[[Any], Any] | None:
        collate = self._options.get("collate_fn")
        owner = getattr(collate, "__self__", collate)
        kept = any(owner is keeper for keeper in self._keepers.values())
        return collate if collate is None or kept else _WatchedCollate(collate, owner)

    def _remaining(self) -> list[_Part]:
        """The rest of the epoch for this rank."""
        order: Sequence[Draw] = self._order.of(self.seed, self.epoch)
        if self._order.repeats:
            order = _counted(order)
        found = []
        for batch in range(self.batch, len(self)):
            begin, end = self._bounds(batch)
            parts = self._parts(batch)
            for number, (first, last) in enumerate(parts):
                draws = list(
                    order[first:last] or order[begin : begin + 1]
                )  # every rank has a batch; this one has weight 0
                weight = (last - first) * self._ranks / (end - begin) if self.global_batch else 1.0
                then = (batch + 1, 0) if number + 1 == len(parts) else (batch, number + 1)
                found.append(_Part(draws, weight, then))
        return found[self._returned :]

    def _bounds(self, batch: int) -> tuple[int, int]:
        """The start and end of a batch of the run in the order of the epoch."""
        begin = batch * self.per_step
        ends = batch == len(self) - 1 and not self.drop_last
        return begin, self._samples if ends else begin + self.per_step

    def _parts(self, batch: int) -> list[tuple[int, int]]:
        """The same for the batches of this rank; their number is equal on all ranks."""
        begin, end = self._bounds(batch)
        first, last = _share(begin, end, self._rank, self._ranks)
        if self.global_batch is None:
            return [(first, last)]
        most = -(-(end - begin) // self._ranks)
        count = -(-most // self.batch_size)
        return [_share(first, last, number, count) for number in range(count)]


Draw = int | tuple[int, int]
"""The index of a sample, with the number of its earlier occurrences in the epoch, if any."""


class _Part(NamedTuple):
    """A batch of one rank. `then`: the position after it."""

    draws: list[Draw]
    weight: float
    then: tuple[int, int]


def _share(begin: int, end: int, number: int, of: int) -> tuple[int, int]:
    """One of `of` parts of a range; their lengths differ by at most one."""
    least, more = divmod(end - begin, of)
    first = begin + number * least + min(number, more)
    return first, first + least + (1 if number < more else 0)


def _counted(order: Sequence[Draw]) -> list[Draw]:
    seen: Counter[Draw] = Counter()
    found: list[Draw] = []
    for draw in order:
        found.append((draw, seen[draw]) if seen[draw] and isinstance(draw, int) else draw)
        seen[draw] += 1
    return found


class KeyedDataset(Dataset[Any]):
    """`dataset` with every random draw of a sample keyed by (seed, epoch, index); if a sample occurs again in an epoch,
    also by the number of its earlier occurrences.

    For the first `watched` samples (per worker), checks that fetching them does not change the data set.
    """

    def __init__(self, dataset: Dataset[Any], seed: int, epoch: int, watched: int) -> None:
        self.dataset = dataset
        self.seed = seed
        self.epoch = epoch
        self._left = watched

    def __getitem__(self, draw: Draw) -> Any:
        index, *earlier = (draw,) if isinstance(draw, int) else draw
        before = memory(self.dataset) if self._left else {}
        key = struct.pack(f"<QQQ{len(earlier)}Q", self.seed, self.epoch, index, *earlier)
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


def resumable(loader: Any, seed: int, rank: int = 0, ranks: int = 1, global_batch: int | None = None) -> Any:
    """A loader with an exact position, from the loader given to `attach`, for one of `ranks`. Raises LoaderError with
    the reason if this is not possible.
    """
    if isinstance(loader, DataLoader) and not _has_position(loader):
        _require_sampler_of(loader, rank, ranks)
        loader = ResumableLoader.take_over(loader, seed, global_batch)
    if global_batch is not None and getattr(loader, "global_batch", None) != global_batch:
        raise LoaderError(
            f"a {type(loader).__name__} does not divide a global batch",
            hint="use a DataLoader over a map-style data set, or give global_batch to trainers.ResumableLoader",
        )
    if ranks > 1 and isinstance(loader, ResumableLoader):
        loader.shard(rank, ranks)
    if _has_position(loader):
        return loader
    raise LoaderError(f"a {type(loader).__name__} has no position that can be saved", hint=_HINT)


def _has_position(loader: Any) -> bool:
    return hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")


def _require_sampler_of(loader: DataLoader[Any], rank: int, ranks: int) -> None:
    """Raises LoaderError for another process's DistributedSampler."""
    sampler = loader.sampler
    if isinstance(sampler, DistributedSampler) and (sampler.rank, sampler.num_replicas) != (rank, ranks):
        raise LoaderError(
            f"the loader's DistributedSampler is for rank {sampler.rank} of {sampler.num_replicas}, not for rank "
            f"{rank} of {ranks}",
            hint="leave the sampler out: Tradewind divides the loader among the ranks",
        )
