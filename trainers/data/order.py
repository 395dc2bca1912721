"""The order of an epoch: a pure function of (seed, epoch), for each of torch's samplers whose choice can be recomputed.

Numbers come from Philox keyed with (seed, epoch), so an order does not depend on earlier epochs, on the number of
workers or processes, or on the program's own generators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import numpy
import xxhash
from numpy.typing import NDArray
from torch.utils.data import RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler
from torch.utils.data.distributed import DistributedSampler

from trainers.data.shards import Shards
from trainers.errors import LoaderError

Ints = NDArray[numpy.int64]


@dataclass(frozen=True)
class Order:
    """`length` indexes per epoch, which `draw` chooses. `name` describes the choice, with a hash of its settings; a
    checkpoint can be continued only with the same name. `repeats`: an index may occur several times in an epoch.
    """

    length: int
    draw: Callable[[numpy.random.Generator], Ints]
    name: str = ""
    repeats: bool = False

    def of(self, seed: int, epoch: int) -> list[int]:
        """The indexes of an epoch, in order."""
        key = numpy.array([seed, epoch], numpy.uint64)
        found: list[int] = self.draw(numpy.random.Generator(numpy.random.Philox(key=key))).tolist()
        return found


def whole(dataset: Sized, *, shuffle: bool) -> Order:
    """Every sample once, in order or shuffled; for Shards, always one shard after the other."""
    return _by_shards(dataset.lengths, shuffle) if isinstance(dataset, Shards) else _plain(len(dataset), shuffle)


def _plain(samples: int, shuffle: bool) -> Order:
    return Order(samples, lambda random: random.permutation(samples) if shuffle else numpy.arange(samples))


def _by_shards(lengths: Sequence[int], shuffle: bool) -> Order:
    ends = numpy.cumsum(lengths)

    def draw(random: numpy.random.Generator) -> Ints:
        shards = random.permutation(len(lengths)) if shuffle else numpy.arange(len(lengths))
        return numpy.concatenate([numpy.arange(ends[shard] - lengths[shard], ends[shard]) for shard in shards])

    return Order(int(ends[-1]), draw, f"shards {_hash(lengths)}")


def order_of(sampler: Any, samples: int) -> Order:
    """The order of one of torch's samplers over a data set of this many samples. Raises LoaderError with the reason if
    it cannot be recomputed.
    """
    if type(sampler) is SequentialSampler:
        return _all_of(sampler, samples, shuffle=False)
    if type(sampler) is SubsetRandomSampler:
        return _subset(numpy.asarray(list(sampler.indices), numpy.int64))
    if type(sampler) is WeightedRandomSampler:
        return _weighted(sampler.weights.double().numpy(), sampler.num_samples, sampler.replacement)
    if type(sampler) is RandomSampler:
        count = sampler._num_samples
        if not sampler.replacement and count is None:
            return _all_of(sampler, samples, shuffle=True)
        return _drawn(samples, samples if count is None else count, sampler.replacement)
    if type(sampler) is DistributedSampler:
        return _all_of(sampler, samples, shuffle=sampler.shuffle)
    raise LoaderError(
        f"the order of a {type(sampler).__name__} cannot be resumed exactly",
        hint="use one of torch's samplers, or a loader with state_dict() and load_state_dict()",
    )


def _all_of(sampler: Any, samples: int, *, shuffle: bool) -> Order:
    """Every sample once, if the sampler selects all of them. Raises LoaderError."""
    selected = sampler.dataset if type(sampler) is DistributedSampler else sampler.data_source
    if isinstance(selected, Sized) and len(selected) != samples:
        raise LoaderError(
            f"the loader's sampler selects {len(selected)} of {samples} samples, and it is unknown which",
            hint="use a torch.utils.data.Subset",
        )
    return whole(selected, shuffle=shuffle) if isinstance(selected, Shards) else _plain(samples, shuffle)


def _subset(indexes: Ints) -> Order:
    return Order(len(indexes), lambda random: random.permutation(indexes), f"subset {_hash(indexes)}")


def _weighted(weights: NDArray[numpy.float64], count: int, replacement: bool) -> Order:
    shares = weights / weights.sum()
    kind = "with" if replacement else "without"
    name = f"weighted, {kind} replacement, {_hash(weights)}"
    return Order(
        count, lambda random: random.choice(len(shares), count, replace=replacement, p=shares), name, replacement
    )


def _drawn(samples: int, count: int, replacement: bool) -> Order:
    if replacement:
        return Order(count, lambda random: random.integers(samples, size=count), "with replacement", True)
    passes = -(-count // samples)

    def draw(random: numpy.random.Generator) -> Ints:
        return numpy.concatenate([random.permutation(samples) for _ in range(passes)])[:count]

    return Order(count, draw, "" if passes == 1 else "several passes", passes > 1)


def _hash(values: Sequence[Any] | NDArray[Any]) -> str:
    return str(xxhash.xxh3_64_hexdigest(numpy.ascontiguousarray(values).tobytes()))
