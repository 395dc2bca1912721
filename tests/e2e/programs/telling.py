"""tiny:main as it runs on other machines: it tells each loss in its log, the only thing that this host sees of it."""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import trainers

DAWDLE_S = 0.1
LINGERS_AFTER = 40  # steps, so that no job ends before its test is through with it, however busy the machine
LINGER_S = 1.0


def main(hurry: str, frozen_mb: int = 0) -> None:
    """`frozen_mb`: the size of a layer that is not trained, and changes nothing."""
    generator = torch.Generator().manual_seed(7)
    inputs = torch.randn(96, 8, generator=generator)
    model: torch.nn.Module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 8))
    model.register_buffer("frozen", torch.arange(frozen_mb << 18, dtype=torch.float32))
    rank = os.environ.get("RANK")
    if rank is not None:
        dist.init_process_group("gloo")
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(inputs), batch_size=16, shuffle=True)
    run = trainers.attach(model=model, optimizer=optimizer, loader=loader)
    for (batch,) in run.batches():
        loss = (model(batch) - batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.step(loss)
        print(f"loss {run.steps_done} {loss.item().hex()}", flush=True)  # noqa: T201
        if not Path(hurry).exists():
            time.sleep(DAWDLE_S if run.steps_done < LINGERS_AFTER else LINGER_S)
    (run.output_dir / "notes.txt").write_text("trained\n")
    if rank is not None:
        (run.output_dir / f"notes-{rank}.txt").write_text(f"trained as {rank}\n")
        dist.destroy_process_group()
