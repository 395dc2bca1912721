"""Batches are a function of (seed, epoch, position): exactly once, whatever the workers and interruptions."""

import random

import numpy
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, WeightedRandomSampler

from trainers.data.loader import ResumableLoader, resumable
from trainers.errors import LoaderError


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


def test_every_sample_comes_exactly_once_an_epoch_in_an_order_of_its_own():
    batches = epochs(ResumableLoader(Noisy(), 4, seed=7))
    first, second = batches[:6], batches[6:]
    assert sorted(indexes(first)) == sorted(indexes(second)) == list(range(23))
    assert indexes(first) != indexes(second)
    assert epochs(ResumableLoader(Noisy(), 4, seed=8)) != batches


def test_augmentation_differs_between_epochs_and_samples():
    batches = epochs(ResumableLoader(Noisy(), 4, seed=7))
    assert len({tuple(sample[1:]) for batch in batches for sample in batch}) == 46


@pytest.mark.parametrize("stop", [0, 1, 5, 6, 7, 11, 12])
def test_a_resumed_loader_gives_exactly_the_rest(stop):
    whole = epochs(ResumableLoader(Noisy(), 4, seed=7), 3)
    before = ResumableLoader(Noisy(), 4, seed=7)
    given = []
    while len(given) < stop:
        for batch in before:
            given.append(batch.tolist())
            if len(given) == stop:
                break
    after = ResumableLoader(Noisy(), 4, seed=0)
    random.seed(99)
    after.load_state_dict(before.state_dict())
    passes = 3 - after.epoch
    assert given + epochs(after, passes) == whole


def test_workers_change_nothing():
    assert epochs(ResumableLoader(Noisy(), 4, 7, workers=2), 1) == epochs(ResumableLoader(Noisy(), 4, 7), 1)


def test_the_programs_own_random_numbers_are_not_touched():
    def draw():
        return random.random(), numpy.random.rand(), torch.rand(2).tolist()

    random.seed(1)
    numpy.random.seed(1)
    torch.manual_seed(1)
    wanted = [draw() for _ in range(6)]
    random.seed(1)
    numpy.random.seed(1)
    torch.manual_seed(1)
    assert [draw() for _ in ResumableLoader(Noisy(), 4, seed=7)] == wanted


def test_a_torch_loader_is_taken_over_with_its_settings():
    plain = DataLoader(Noisy(), batch_size=4, shuffle=True, drop_last=True, collate_fn=lambda samples: len(samples))
    taken = resumable(plain, seed=3)
    assert len(taken) == len(plain) == 5
    assert list(taken) == [4] * 5
    assert taken.shuffle


def test_a_loader_without_shuffle_keeps_its_order():
    taken = resumable(DataLoader(Noisy(), batch_size=4), seed=3)
    assert indexes(epochs(taken, 1)) == list(range(23))


class Positioned:
    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def test_a_loader_with_a_position_of_its_own_is_left_alone():
    loader = Positioned()
    assert resumable(loader, seed=0) is loader


@pytest.mark.parametrize(
    ("loader", "why"),
    [
        (lambda: DataLoader(Stream()), "Stream is iterable"),
        (lambda: DataLoader(Noisy(), sampler=WeightedRandomSampler([1.0] * 23, 5)), "WeightedRandomSampler"),
        (lambda: DataLoader(Noisy(), batch_sampler=[[0, 1]]), "batches in a way of its own"),
        (lambda: DataLoader(Noisy(), batch_size=None), "batches in a way of its own"),
        (lambda: [1, 2, 3], "a list has no position"),
        (lambda: ResumableLoader(Stream(), 4, 0), "cannot be read by index"),
        (lambda: ResumableLoader(Noisy(), 0, 0), "batch_size is 0"),
    ],
)
def test_what_cannot_be_resumed_exactly_is_refused_with_the_reason(loader, why):
    with pytest.raises(LoaderError, match=why):
        resumable(loader(), seed=0)


def test_other_data_than_the_checkpoints_is_refused():
    state = ResumableLoader(Noisy(), 4, seed=7).state_dict()
    with pytest.raises(LoaderError, match="samples = 23, now it is 24"):
        ResumableLoader(Noisy(24), 4, seed=7).load_state_dict(state)
    with pytest.raises(LoaderError, match="batch_size = 4, now it is 5"):
        ResumableLoader(Noisy(), 5, seed=7).load_state_dict(state)
