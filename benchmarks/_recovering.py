"""The job that recovery.py saves and restores: as many parameters as GPT-2 small, with AdamW, on one thread."""

import os
import time

import torch

import trainers
from benchmarks.checkpoint_overhead import GPT2_SMALL


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parameters_of_gpt2 = torch.nn.ParameterList(torch.rand(shape) for shape in GPT2_SMALL)


def main(leave: bool) -> None:
    """Writes the seconds from the built model to the first step into the output folder; with `leave`, it ends there."""
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    began_s = time.monotonic()
    run = trainers.attach(model=model, optimizer=optimizer)
    for _ in run.batches():
        took_s = time.monotonic() - began_s
        (run.output_dir / "took").write_text(f"{run.steps_done} {took_s}")
        if leave:
            os._exit(0)
        for parameter in model.parameters():
            parameter.grad = parameter.detach() * 0.1
        optimizer.step()
        optimizer.zero_grad()
        run.step(0.0)
