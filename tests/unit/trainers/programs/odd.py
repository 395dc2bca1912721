"""Programs that do something unusual."""

import sys

import torch

import trainers

data = [1, 2, 3]


def needs(learning_rate):
    pass


def interrupted():
    raise KeyboardInterrupt


def leaves():
    sys.exit(0)


def never_attaches():
    pass


def stops_early():
    run = trainers.attach(model=torch.nn.Linear(1, 1), optimizer={})
    for number in run.batches():
        run.step(float(number))
        if number == 2:
            break
