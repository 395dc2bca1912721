"""Batches of several ranks, and global batches that any number of ranks may divide."""

import random

import pytest
from torch.utils.data import (
    DataLoader,
)
from torch.utils.data.distributed import DistributedSampler

from tests.unit.trainers.samples import Noisy, Positioned, epochs, indexes
from trainers.data.loader import ResumableLoader, resumable
from trainers.errors import LoaderError

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
