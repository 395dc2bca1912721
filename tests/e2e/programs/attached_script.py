"""A script with the lines that `attach` needs."""

import os

import torch

import trainers

assert not {"E2E_SECRET", "E2E_UNSET"} & os.environ.keys(), "these are secrets of another job"

model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
run = trainers.attach(model=model, optimizer=optimizer)
for _ in run.batches():
    loss = model(torch.randn(2, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    run.step(loss)
