"""Batches are a function of (seed, epoch, position): exactly once, whatever the workers and interruptions."""

import json
import random

import numpy
import pytest
import torch
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    get_worker_info,
)

from tests.unit.trainers.samples import Noisy, Positioned, Stream, epochs, indexes, taken
from trainers.checkpoint.state import Encoder, decode
from trainers.data.loader import ResumableLoader, resumable
from trainers.errors import LoaderError


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
    assert list(resumable(plain, seed=3)) == list(taken)


def test_a_loader_without_shuffle_keeps_its_order():
    taken = resumable(DataLoader(Noisy(), batch_size=4), seed=3)
    assert indexes(epochs(taken, 1)) == list(range(23))


class Backwards(SequentialSampler):
    def __iter__(self):
        return reversed(range(23))


def test_a_loader_with_a_position_of_its_own_is_left_alone():
    loader = Positioned()
    assert resumable(loader, seed=0) is loader


@pytest.mark.parametrize(
    ("loader", "why"),
    [
        (lambda: DataLoader(Stream()), "Stream is iterable"),
        (lambda: DataLoader(Noisy(), sampler=SequentialSampler(range(5))), "sampler selects 5 of 23 samples"),
        (lambda: DataLoader(Noisy(), sampler=Backwards(range(23))), "the order of a Backwards cannot"),
        (lambda: DataLoader(Noisy(), batch_sampler=[[0, 1]]), "custom batch sampler"),
        (lambda: DataLoader(Noisy(), batch_size=None), "custom batch sampler"),
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
    with pytest.raises(LoaderError, match="samples = 23, but it is 24 now"):
        ResumableLoader(Noisy(24), 4, seed=7).load_state_dict(state)
    with pytest.raises(LoaderError, match="batch_size = 4, but it is 5 now"):
        ResumableLoader(Noisy(), 5, seed=7).load_state_dict(state)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "sampler",
    [
        lambda: WeightedRandomSampler([1.0, 0.0, 5.0] * 7, 18, replacement=True),
        lambda: WeightedRandomSampler([1.0, 0.0, 5.0] * 7, 12, replacement=False),
        lambda: RandomSampler(range(21), replacement=True, num_samples=30),
        lambda: RandomSampler(range(21), num_samples=50),
        lambda: SubsetRandomSampler([3, 5, 7, 11, 13, 17, 19, 20]),
    ],
)
def test_a_sampler_that_chooses_is_resumed_where_it_was(sampler, workers):
    whole = epochs(taken(sampler(), 21))
    half = len(whole) // 2
    before = taken(sampler(), 21)
    given = [next(iter(before)).tolist() for _ in range(1)]
    resumed = taken(sampler(), 21, num_workers=workers)
    resumed.load_state_dict(before.state_dict())
    given += epochs(resumed)
    assert given == whole
    assert whole[:half] != whole[half:], "each epoch is drawn anew"


def test_a_weighted_sampler_draws_by_its_weights_and_each_draw_of_a_sample_is_augmented_again():
    batches = epochs(taken(WeightedRandomSampler([1.0, 0.0, 5.0] * 7, 1200), 21), 1)
    drawn = indexes(batches)
    assert {index % 3 for index in drawn} == {0, 2}
    assert sum(index % 3 == 2 for index in drawn) / len(drawn) == pytest.approx(5 / 6, abs=0.05)
    assert len({tuple(sample) for batch in batches for sample in batch}) == 1200


def test_other_weights_than_the_checkpoints_are_refused():
    state = taken(WeightedRandomSampler([1.0] * 23, 10)).state_dict()
    with pytest.raises(LoaderError, match="order = weighted"):
        taken(WeightedRandomSampler([2.0] * 22 + [1.0], 10)).load_state_dict(state)
    with pytest.raises(LoaderError, match="order = weighted"):
        taken(SequentialSampler(range(23)), drop_last=False).load_state_dict(dict(state, samples=23))


# Iterable data sets, by torchdata's loader


class Counting(IterableDataset):
    """Divides its numbers among the workers, and remembers where it is."""

    def __init__(self):
        self.at = 0

    def __iter__(self):
        info = get_worker_info()
        first, of = (0, 1) if info is None else (info.id, info.num_workers)
        numbers = list(range(first, 40, of))
        while self.at < len(numbers):
            self.at += 1
            yield torch.tensor(numbers[self.at - 1])
        self.at = 0

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


@pytest.mark.filterwarnings("ignore:.*is deprecated")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("taken", [0, 3, 7])
def test_an_iterable_data_set_goes_on_where_it_was_with_torchdatas_loader(workers, taken):
    from torchdata import stateful_dataloader as stateful

    def loader():
        return resumable(stateful.StatefulDataLoader(Counting(), batch_size=4, num_workers=workers), seed=0)

    before, after = loader(), loader()
    batches = iter(before)
    given = [next(batches).tolist() for _ in range(taken)]
    encoder = Encoder()
    node = json.loads(json.dumps(encoder.encode(before.state_dict(), "loader")))
    after.load_state_dict(decode(node, [tensor.clone() for _, tensor in encoder.tensors]))
    given += [batch.tolist() for batch in after]
    assert sorted(number for batch in given for number in batch) == list(range(40))
    assert given == [batch.tolist() for batch in loader()]
