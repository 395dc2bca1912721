"""Programs as users write them, tiny: a step takes a millisecond, and dawdles until the file `hurry` exists."""

import subprocess
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

import trainers

DAWDLE_S = 0.1
LINGERS_AFTER = 250  # steps, so that no job ends before its test is through with it, however busy the machine
LINGER_S = 1.0


class Momentum:
    """An optimizer of one's own: the first of torch.optim imports torch._dynamo, two CPU-seconds on every machine."""

    def __init__(self, parameters: list[torch.nn.Parameter]) -> None:
        self.parameters = parameters
        self.velocity = [torch.zeros_like(parameter) for parameter in parameters]

    @torch.no_grad()
    def step(self) -> None:
        for parameter, velocity in zip(self.parameters, self.velocity, strict=True):
            assert parameter.grad is not None
            velocity.mul_(0.9).add_(parameter.grad)
            parameter.sub_(velocity, alpha=1e-2)
            parameter.grad = None

    def state_dict(self) -> dict[str, list[torch.Tensor]]:
        return {"velocity": self.velocity}

    def load_state_dict(self, state: dict[str, list[torch.Tensor]]) -> None:
        for velocity, stored in zip(self.velocity, state["velocity"], strict=True):
            velocity.copy_(stored)


def main(hurry: str, children: bool = False) -> None:
    if children:  # as data loaders and loggers do: in a process group, and even in a session, of their own
        subprocess.Popen(["sleep", "1000"], process_group=0)
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
    generator = torch.Generator().manual_seed(7)
    inputs = torch.randn(96, 8, generator=generator)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 8))
    optimizer = Momentum(list(model.parameters()))
    loader = DataLoader(TensorDataset(inputs), batch_size=16, shuffle=True)
    run = trainers.attach(model=model, optimizer=optimizer, loader=loader)
    for (batch,) in run.batches():
        loss = (model(batch) - batch).square().mean()
        loss.backward()
        optimizer.step()
        run.step(loss)
        if not Path(hurry).exists():
            time.sleep(DAWDLE_S if run.steps_done < LINGERS_AFTER else LINGER_S)
    (run.output_dir / "model").mkdir(exist_ok=True)
    torch.save(model.state_dict(), run.output_dir / "model" / "weights.pt")
    (run.output_dir / "notes.txt").write_text("trained\n")


def raises() -> None:
    raise ZeroDivisionError("the loss is not a number")
