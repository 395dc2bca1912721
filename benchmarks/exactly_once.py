"""Runs that end at any step and continue with another number of processes and workers: is each sample used once per
epoch?

    python -m benchmarks.exactly_once [--quick] [--json] [--seed N]

Each history trains 3 epochs of 103 samples in steps of 24 (`global_batch`). It is interrupted after 0 to 6 steps, again
and again, and continues from the loader's state with 1 to 4 ranks, batches of 1 to 24 samples and 0 to 8 workers, drawn
at random. The ranks are loaders in this process, the workers real processes. The benchmark compares with an
uninterrupted loader: the samples of each step, how often each occurs in an epoch, and the bits of their random
augmentation. --quick: 10 histories.
"""

from __future__ import annotations

import argparse
import random
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import benchmarks._one_thread  # noqa: F401  isort: skip
import numpy
import torch
from torch.utils.data import Dataset

from benchmarks._claims import Claim, show
from trainers.data.loader import ResumableLoader

HISTORIES, QUICK_HISTORIES = 200, 10
SAMPLES, GLOBAL_BATCH, EPOCHS, SEED = 103, 24, 3, 7
WORKERS = (0, 0, 1, 2, 4, 8)
Sample = tuple[float, ...]


class Augmented(Dataset[torch.Tensor]):
    """The index of a sample, and a draw of each generator."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        draws = [index, random.random(), numpy.random.rand(), torch.rand(()).item()]
        return torch.tensor(draws, dtype=torch.float64)


def loaders(ranks: int, batch_size: int, workers: int, state: Mapping[str, Any] | None) -> list[ResumableLoader]:
    found = []
    for rank in range(ranks):
        loader = ResumableLoader(Augmented(), batch_size, SEED, workers, global_batch=GLOBAL_BATCH)
        loader.shard(rank, ranks)
        if state is not None:
            loader.load_state_dict(state)
        found.append(loader)
    return found


def steps(ranks: list[ResumableLoader]) -> Iterator[tuple[int, list[Sample]]]:
    """The epoch and the samples of each remaining step, over all epochs."""
    while (epoch := ranks[0].epoch) < EPOCHS:
        batches = [iter(loader) for loader in ranks]
        for _ in range(ranks[0].batch, len(ranks[0])):
            samples: list[Sample] = []
            for loader, of_rank in zip(ranks, batches, strict=True):
                for batch in of_rank:
                    samples += [tuple(sample) for sample in batch.tolist()] if loader.weight else []
                    if not loader.accumulating:
                        break
            yield epoch, samples
        for of_rank in batches:  # at its end, a loader moves to the next epoch
            assert next(of_rank, None) is None


def interrupted(chance: random.Random) -> tuple[list[tuple[int, list[Sample]]], int]:
    """All steps of a history, and the number of interruptions."""
    state, done, restarts = None, list[tuple[int, list[Sample]]](), -1
    while True:
        restarts += 1
        ranks = loaders(chance.randint(1, 4), chance.randint(1, GLOBAL_BATCH), chance.choice(WORKERS), state)
        left = chance.randint(0, 6)
        for each in steps(ranks):
            done.append(each)
            left -= 1
            if left < 0:
                break
        else:
            return done, restarts
        state = ranks[-1].state_dict()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_HISTORIES} histories instead of {HISTORIES}")
    parser.add_argument("--json", action="store_true", help="print only the claims, as JSON")
    parser.add_argument("--seed", type=int, default=1, help="of the histories")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    expected = [(epoch, sorted(samples)) for epoch, samples in steps(loaders(1, GLOBAL_BATCH, 0, None))]
    repeated = missed = differing = restarts = 0
    for number in range(QUICK_HISTORIES if options.quick else HISTORIES):
        done, times = interrupted(random.Random(f"{options.seed}-{number}"))
        restarts += times
        seen = Counter((epoch, sample[0]) for epoch, samples in done for sample in samples)
        repeated += sum(count - 1 for count in seen.values())
        missed += EPOCHS * SAMPLES - len(seen)
        differing += [(epoch, sorted(samples)) for epoch, samples in done] != expected
    claims = [
        Claim("samples that were repeated in an epoch", repeated, "samples", 0),
        Claim("samples that were missed in an epoch", missed, "samples", 0),
        Claim("histories with other steps or augmentation", differing, "histories", 0),
        Claim("restarts with other ranks, batches and workers", restarts, "restarts"),
    ]
    return show("Each sample once per epoch", claims, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
