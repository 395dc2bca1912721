"""Data sets and loaders whose batches show which samples came, in which order and with which draws."""

import random

import numpy
import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
)

from trainers.data.loader import resumable


class Noisy(Dataset):
    """Each sample: its index and a draw of every generator."""

    def __init__(self, count=23):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.tensor([index, random.random(), numpy.random.rand(), torch.rand(()).item()], dtype=torch.float64)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(3))


def epochs(loader, count=2):
    return [batch.tolist() for _ in range(count) for batch in loader]


def indexes(batches):
    return [int(sample[0]) for batch in batches for sample in batch]


class Positioned:
    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def drawn(numbers):
    torch.rand(1, generator=numbers) if isinstance(numbers, torch.Generator) else numbers.random()
    return numbers


def taken(sampler, count=23, **options):
    return resumable(DataLoader(Noisy(count), batch_size=4, sampler=sampler, **options), seed=5)
