"""Data sets whose samples depend on earlier ones: refused, unless they say what they remember."""

import random

import numpy
import pytest
import torch
from torch.utils.data import (
    DataLoader,
)

from tests.unit.trainers.samples import Noisy, drawn, epochs
from trainers.data.loader import ResumableLoader, resumable
from trainers.errors import LoaderError


class Remembering(Noisy):
    """Something in it changes with every sample."""

    def __init__(self, attribute, change):
        super().__init__()
        self.kept = attribute
        self._change = change

    def __getitem__(self, index):
        self.kept = self._change(self.kept)
        return super().__getitem__(index)


class Transform:
    def __init__(self, numbers):
        self.numbers = numbers
        self.calls = 0

    def __call__(self):
        self.calls += 1
        self.numbers.random()
        return self


@pytest.mark.parametrize(
    ("kept", "change", "where"),
    [
        (0, lambda n: n + 1, "dataset.kept"),
        ("a", lambda text: text + "a", "dataset.kept"),
        (False, lambda flag: not flag, "dataset.kept"),
        (torch.zeros(3), lambda tensor: tensor.add_(1), "dataset.kept"),
        (numpy.zeros(3), lambda array: array + 1, "dataset.kept"),
        (random.Random(1), drawn, "dataset.kept"),
        (numpy.random.default_rng(1), drawn, "dataset.kept"),
        (numpy.random.RandomState(1), lambda numbers: numbers.rand() and numbers, "dataset.kept"),
        (torch.Generator(), drawn, "dataset.kept"),
        (Transform(random.Random(1)), lambda transform: transform(), r"dataset\.kept\.numbers"),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_a_data_set_that_remembers_is_refused_by_the_name_of_what_changed(kept, change, where, nested):
    dataset = Remembering(kept, change)
    wrapped = torch.utils.data.ConcatDataset([dataset, Noisy()]) if nested else dataset
    with pytest.raises(LoaderError, match=where.replace("dataset", r"dataset\.datasets\.0") if nested else where):
        list(ResumableLoader(wrapped, 4, seed=7))


@pytest.mark.parametrize(
    ("kept", "change"),
    [
        ({}, lambda cache: {**cache, len(cache): 1}),  # a cache
        (None, lambda handle: handle or object()),  # opened when it is first needed
        (None, lambda length: 23),
        (float("nan"), lambda missing: missing * 2),
        (random, drawn),  # the global generators are seeded again for each sample
        (numpy.random.mtrand._rand, lambda numbers: numbers.rand() and numbers),
        (torch.default_generator, drawn),
        (torch.zeros(10_000), lambda data: data.add_(1)),  # too large to be watched
    ],
)
def test_caches_and_global_generators_are_no_memory(kept, change):
    assert len(list(ResumableLoader(Remembering(kept, change), 4, seed=7))) == 6


def test_a_data_set_that_remembers_is_refused_in_worker_processes_as_well():
    dataset = Remembering(0, lambda n: n + 1)
    with pytest.raises(LoaderError, match=r"changed dataset\.kept"):
        list(ResumableLoader(dataset, 4, seed=7, workers=1, options={"multiprocessing_context": "fork"}))


class Keeping(Remembering):
    """Says what it remembers."""

    def __init__(self):
        super().__init__(0, lambda n: n + 1)

    def __getitem__(self, index):
        return super().__getitem__(index)[:1] + 100 * self.kept

    def state_dict(self):
        return {"kept": self.kept}

    def load_state_dict(self, state):
        self.kept = state["kept"]


@pytest.mark.parametrize("wrapped", [lambda d: d, lambda d: torch.utils.data.Subset(d, range(11))])
def test_a_data_set_that_says_what_it_remembers_goes_on_where_it_was(wrapped):
    whole = epochs(ResumableLoader(wrapped(Keeping()), 4, seed=7))
    before, after = (ResumableLoader(wrapped(Keeping()), 4, seed=7) for _ in range(2))
    given = [batch.tolist() for _, batch in zip(range(2), before, strict=False)]
    after.load_state_dict(before.state_dict())
    assert given + epochs(after) == whole


def test_what_remembers_cannot_be_read_by_worker_processes():
    with pytest.raises(LoaderError, match="each of 2 workers would have its own"):
        resumable(DataLoader(Keeping(), batch_size=4, num_workers=2), seed=0)


def test_the_state_of_another_data_set_is_refused():
    state = ResumableLoader(Keeping(), 4, seed=7).state_dict()
    with pytest.raises(LoaderError, match="has the state of dataset; data sets with state here: none"):
        ResumableLoader(Noisy(), 4, seed=7).load_state_dict(state)
