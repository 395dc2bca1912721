"""The job that failover.py moves and kills: a checkpoint of 10 MB, a step every 20 milliseconds."""

import time

import torch

import trainers

STEP_S = 0.02
WIDTH = 645  # two square layers and AdamW's two moments of each: 10 MB


def main() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    run = trainers.attach(model=model, optimizer=optimizer)
    generator = torch.Generator().manual_seed(0)
    due_s = time.monotonic()
    for _ in run.batches():
        batch = torch.randn(4, WIDTH, generator=generator)
        loss = (model(batch) - batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        due_s = max(due_s + STEP_S, time.monotonic())
        time.sleep(due_s - time.monotonic() if due_s > time.monotonic() else 0)
        run.step(loss)
