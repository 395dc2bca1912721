"""Batches are a function of (seed, epoch, position): exactly once, whatever the workers and interruptions."""

import json
import random

import numpy
import pytest
import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    get_worker_info,
)
from torch.utils.data.distributed import DistributedSampler

from trainers.checkpoint.state import Encoder, decode
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
    assert list(resumable(plain, seed=3)) == list(taken)


def test_a_loader_without_shuffle_keeps_its_order():
    taken = resumable(DataLoader(Noisy(), batch_size=4), seed=3)
    assert indexes(epochs(taken, 1)) == list(range(23))


class Backwards(SequentialSampler):
    def __iter__(self):
        return reversed(range(23))


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


# Data sets that remember


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


def drawn(numbers):
    torch.rand(1, generator=numbers) if isinstance(numbers, torch.Generator) else numbers.random()
    return numbers


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
        (random, drawn),  # the global generators are seeded anew for each sample
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


# Several ranks


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("samples", [4, 9, 24, 25, 26, 47])
@pytest.mark.parametrize("drop_last", [False, True])
def test_ranks_read_each_sample_once_and_are_never_without_a_batch(samples, ranks, drop_last):
    loaders = [ResumableLoader(Noisy(samples), 4, seed=7, drop_last=drop_last) for _ in range(ranks)]
    for rank, loader in enumerate(loaders):
        loader.shard(rank, ranks)
    for _ in range(2):
        shares = [epochs(loader, 1) for loader in loaders]
        assert {len(share) for share in shares} == {len(loaders[0])}
        assert all(len(batch) for share in shares for batch in share)
        together = [sample for batch in zip(*shares, strict=True) for part in batch for sample in part]
        if drop_last:
            assert len(together) == samples // (4 * ranks) * 4 * ranks
        else:
            assert sorted(indexes([together])) == list(range(samples))


def test_the_samples_of_a_batch_and_their_augmentation_do_not_depend_on_the_number_of_ranks():
    alone = epochs(ResumableLoader(Noisy(24), 12, seed=7), 1)
    loaders = [ResumableLoader(Noisy(24), 4, seed=7) for _ in range(3)]
    for rank, loader in enumerate(loaders):
        loader.shard(rank, 3)
    batches = zip(*(epochs(loader, 1) for loader in loaders), strict=True)
    assert [[sample for part in parts for sample in part] for parts in batches] == alone


def test_the_position_is_that_of_the_run_and_resumes_every_rank():
    def sharded(rank):
        loader = ResumableLoader(Noisy(), 4, seed=7)
        loader.shard(rank, 2)
        return loader

    first, second = sharded(0), sharded(1)
    whole = epochs(sharded(1), 1)
    next(iter(first))
    assert first.state_dict() == {
        "epoch": 0,
        "batch": 1,
        "done": 8,
        "seed": 7,
        "samples": 23,
        "batch_size": 8,
    }
    second.load_state_dict(first.state_dict())
    assert epochs(second, 1) == whole[1:]
    with pytest.raises(LoaderError, match="batch_size"):
        ResumableLoader(Noisy(), 4, seed=7).load_state_dict(first.state_dict())


def test_a_distributed_sampler_is_replaced_and_that_of_another_rank_refused():
    sampler = DistributedSampler(Noisy(), num_replicas=2, rank=1, shuffle=False)
    loader = DataLoader(Noisy(), batch_size=4, sampler=sampler)
    taken = resumable(loader, 7, 1, 2)
    assert indexes(epochs(taken, 1)) == [4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22]
    with pytest.raises(LoaderError, match="rank 1 of 2, not for rank 0 of 2"):
        resumable(loader, 7, 0, 2)


def test_fewer_samples_than_ranks_are_refused():
    with pytest.raises(LoaderError, match="2 samples for 3 ranks"):
        resumable(DataLoader(Noisy(2), batch_size=1), 7, 0, 3)


# Samplers with an order of their own


def taken(sampler, count=23, **options):
    return resumable(DataLoader(Noisy(count), batch_size=4, sampler=sampler, **options), seed=5)


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


def test_a_weighted_sampler_draws_by_its_weights_and_each_draw_of_a_sample_is_augmented_anew():
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


# A global batch


def step_of(loaders):
    """The parts of the next step, by rank: (weight, samples), and whether more parts follow."""
    found = [[] for _ in loaders]
    for rank, (loader, batches) in enumerate(loaders):
        while True:
            batch = next(batches, None)
            if batch is None:
                assert [next(other, None) for _, other in loaders] == [None] * len(loaders)
                return None
            found[rank].append((loader.weight, [tuple(sample) for sample in batch.tolist()]))
            if not loader.accumulating:
                break
    return found


def world(ranks, batch_size, workers=0, state=None, count=103, global_batch=24):
    found = []
    for rank in range(ranks):
        loader = ResumableLoader(Noisy(count), batch_size, 7, workers, global_batch=global_batch)
        loader.shard(rank, ranks)
        if state is not None:
            loader.load_state_dict(state)
        found.append((loader, iter(loader)))
    return found


def counted(parts):
    return [sample for of_rank in parts for weight, samples in of_rank if weight for sample in samples]


@pytest.mark.parametrize(("ranks", "batch_size"), [(1, 100), (1, 5), (2, 12), (3, 3), (4, 1), (4, 2)])
def test_a_global_batch_has_the_same_samples_and_weights_however_it_is_divided(ranks, batch_size):
    alone, divided = world(1, 24), world(ranks, batch_size)
    assert len(divided[0][0]) == len(alone[0][0]) == 5
    for _ in range(5):
        whole, parts = step_of(alone), step_of(divided)
        assert sorted(counted(parts)) == sorted(counted(whole))
        assert len({len(of_rank) for of_rank in parts}) == 1, "ranks take their steps together"
        assert all(len(samples) <= batch_size for of_rank in parts for _, samples in of_rank)
        size = len(counted(whole))
        for of_rank in parts:
            for weight, samples in of_rank:
                assert weight == pytest.approx(len(samples) * ranks / size) or (weight == 0 and len(samples) == 1)
        assert sum(weight for of_rank in parts for weight, _ in of_rank) == pytest.approx(ranks)
    assert step_of(divided) is None


def run_with_changing_worlds(seed, epochs_wanted, workers):
    """Samples of each epoch, over runs that end anywhere and go on with another number of ranks and workers."""
    chance, state, steps = random.Random(seed), None, 0
    trained = [[] for _ in range(epochs_wanted)]
    while True:
        ranks, batch_size = chance.randint(1, 4), chance.randint(1, 24)
        loaders = world(ranks, batch_size, chance.choice(workers), state)
        for _ in range(chance.randint(0, 4)):
            epoch = loaders[0][0].epoch
            parts = step_of(loaders)
            if parts is None:
                loaders = [(loader, iter(loader)) for loader, _ in loaders]
                epoch, parts = epoch + 1, step_of(loaders) if epoch + 1 < epochs_wanted else None
                if parts is None:
                    return trained
            trained[epoch] += counted(parts)
            steps += 1
        states = [loader.state_dict() for loader, _ in loaders]
        assert all(each == states[0] for each in states)
        state = states[0]


@pytest.mark.parametrize("seed", range(20))
def test_no_sample_is_repeated_or_missed_while_the_number_of_ranks_changes(seed):
    reference = [sorted(map(tuple, epoch)) for epoch in np_epochs(2)]
    assert [sorted(epoch) for epoch in run_with_changing_worlds(seed, 2, [0])] == reference


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_no_sample_is_repeated_or_missed_while_the_number_of_workers_changes_as_well():
    reference = [sorted(map(tuple, epoch)) for epoch in np_epochs(2)]
    assert [sorted(epoch) for epoch in run_with_changing_worlds(3, 2, [0, 1, 3, 8])] == reference


def np_epochs(count):
    loader = ResumableLoader(Noisy(103), 103, 7)
    return [next(iter(loader)).tolist() if epoch == 0 else rest(loader) for epoch in range(count)]


def rest(loader):
    loader.epoch, loader.batch = loader.epoch + 1, 0
    return next(iter(loader)).tolist()


def test_without_a_global_batch_what_another_number_of_ranks_cannot_divide_is_refused_or_complete():
    """25 samples in batches of 12 for all ranks: two ranks append the last sample to the second batch."""

    def at(ranks, batch, state=None):
        loader = ResumableLoader(Noisy(25), 12 // ranks, 7)
        loader.shard(0, ranks)
        loader.batch = batch
        if state is not None:
            loader.load_state_dict(state)
        return loader

    assert indexes(epochs(at(1, 0, at(2, 2).state_dict()), 1)) == [], "two ranks have read all of it"
    with pytest.raises(LoaderError, match="1 samples of the epoch are left for 2 processes"):
        at(2, 0, at(1, 2).state_dict())
    assert len(indexes(epochs(at(1, 0, at(1, 2).state_dict()), 1))) == 1


def test_a_checkpoint_between_the_batches_of_a_step_needs_the_same_batches():
    (loader, batches) = world(1, 5)[0]
    whole = [(loader.weight, batch.tolist()) for batch in batches]
    (loader, batches) = world(1, 5)[0]
    for _ in range(7):
        next(batches)
    assert loader.accumulating
    (_, batches) = world(1, 5, state=loader.state_dict())[0]
    assert [batch.tolist() for batch in batches] == [batch for _, batch in whole[7:]]
    with pytest.raises(LoaderError, match="after 2 of 5 batches of a step, which now has 3"):
        world(1, 8, state=loader.state_dict())


def test_only_what_divides_a_global_batch_may_have_one():
    with pytest.raises(LoaderError, match="does not divide a global batch"):
        resumable(Positioned(), 7, global_batch=4)
    assert resumable(DataLoader(Noisy(), batch_size=4), 7, global_batch=8).global_batch == 8
    with pytest.raises(LoaderError, match="global_batch is 0"):
        ResumableLoader(Noisy(), 4, 7, global_batch=0)


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
