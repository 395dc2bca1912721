"""Shards are read with a cursor: each sample once per epoch, for any number of readers, which may change at a
restart."""

import gzip
import json
import random

import pytest
import torch
from torch.utils.data import DataLoader

from trainers.data.loader import resumable
from trainers.data.shards import Shards
from trainers.errors import LoaderError

LENGTHS = [7, 1, 12, 0, 5, 9]
SAMPLES = sum(LENGTHS)


def lines(path):
    with gzip.open(path, "rt") as file:
        yield from file


@pytest.fixture
def paths(tmp_path):
    numbers = iter(range(SAMPLES))
    found = []
    for shard, length in enumerate(LENGTHS):
        found.append(tmp_path / f"{shard}.jsonl.gz")
        with gzip.open(found[-1], "wt") as file:
            file.writelines(f"{json.dumps({'number': next(numbers)})}\n" for _ in range(length))
    return found


def numbered(line):
    return torch.tensor([json.loads(line)["number"], torch.rand(()).item()], dtype=torch.float64)


def loader(paths, *, batch_size, workers=0, world=(0, 1), shuffle=True, **options):
    shards = Shards(paths, lines, numbered)
    return resumable(
        DataLoader(shards, batch_size=batch_size, num_workers=workers, shuffle=shuffle), 7, *world, **options
    )


def rows(batches):
    return [tuple(row) for batch in batches for row in batch.tolist()]


def shards_of(numbers):
    """The shard of each number, without repetitions in a row."""
    ends = [sum(LENGTHS[: shard + 1]) for shard in range(len(LENGTHS))]
    found = [next(shard for shard, end in enumerate(ends) if number < end) for number in numbers]
    return [shard for place, shard in enumerate(found) if place == 0 or found[place - 1] != shard]


def test_one_shard_is_read_after_the_other_in_an_order_of_each_epoch(paths):
    whole = loader(paths, batch_size=4)
    orders = []
    for _ in range(3):
        numbers = [int(number) for number, _ in rows(whole)]
        assert sorted(numbers) == list(range(SAMPLES))
        orders.append(shards_of(numbers))
    assert all(len(order) == len(set(order)) == 5 for order in orders)  # one shard is empty
    assert orders[0] != orders[1]
    assert [int(number) for number, _ in rows(loader(paths, batch_size=4, shuffle=False))] == list(range(SAMPLES))


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_no_sample_is_repeated_or_missed_while_ranks_and_workers_change(paths):
    """Each sample has the same random numbers, too."""
    reference = loader(paths, batch_size=SAMPLES)
    wanted = [sorted(rows(reference)) for _ in range(2)]
    for seed in range(4):
        chance, state, trained = random.Random(seed), None, [[], []]
        while state is None or state["epoch"] < 2:
            ranks = chance.randint(1, 3)
            options = {"batch_size": chance.randint(1, 6), "workers": chance.choice([0, 0, 2]), "global_batch": 6}
            loaders = [loader(paths, world=(rank, ranks), **options) for rank in range(ranks)]
            for each in loaders:
                if state is not None:
                    each.load_state_dict(state)
            iterators = [iter(each) for each in loaders]
            epoch = loaders[0].epoch
            for _ in range(chance.randint(1, 4)):
                for each, iterator in zip(loaders, iterators, strict=True):
                    for batch in iterator:
                        trained[epoch] += rows([batch]) if each.weight else []
                        if not each.accumulating:
                            break
                if loaders[0].epoch != epoch:
                    break
            for each, iterator in zip(loaders, iterators, strict=True):
                if each.epoch == epoch and each.batch == len(each):
                    assert next(iterator, None) is None
            state = loaders[0].state_dict()
            assert all(each.state_dict() == state for each in loaders)
        assert [sorted(each) for each in trained] == wanted


def test_what_was_trained_is_passed_over_without_being_decoded(paths):
    decoded = []

    def noted(line):
        decoded.append(line)
        return numbered(line)

    shards = Shards(paths, lines, noted)
    again = resumable(DataLoader(shards, batch_size=4, shuffle=True), 7)
    first = loader(paths, batch_size=4)
    iterator = iter(first)
    for _ in range(5):
        next(iterator)
    again.load_state_dict(first.state_dict())
    assert rows(again) == rows(iterator)
    assert len(decoded) == SAMPLES - 20


def test_shards_of_other_lengths_than_the_checkpoints_are_refused(paths):
    state = loader(paths, batch_size=4).state_dict()
    moved = Shards(paths, lines, lengths=[8, 0, *LENGTHS[2:]])
    with pytest.raises(LoaderError, match="order = shards"):
        resumable(DataLoader(moved, batch_size=4), 7).load_state_dict(state)
    with pytest.raises(LoaderError, match="samples = 34, but it is 27"):
        loader(paths[1:], batch_size=4).load_state_dict(state)


def test_a_shard_that_ends_too_early_is_named(paths):
    shards = Shards(paths, lines, lengths=[9, *LENGTHS[1:]])
    with pytest.raises(LoaderError, match=r"0\.jsonl\.gz has 7 samples; sample 9 was expected"):
        _ = shards[8]


def test_shards_without_samples_and_a_wrong_number_of_lengths_are_refused(paths):
    with pytest.raises(LoaderError, match="0 shards have no samples"):
        Shards([], lines)
    with pytest.raises(LoaderError, match="6 shards and 1 lengths"):
        Shards(paths, lines, lengths=[7])
