"""A small training program for benchmarks.live_turns. Each step waits for a while, so two cores are enough for four
programs. At its end it writes the hash of its whole state: parameters, optimizer and random number generators."""

import hashlib
import json
import random
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import trainers


def main(seed: int, step_s: float) -> None:
    data = torch.randn(256, 16, generator=torch.Generator().manual_seed(seed))
    model = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.Dropout(0.1), nn.Linear(64, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(data), batch_size=16, shuffle=True)
    run = trainers.attach(model=model, optimizer=optimizer, loader=loader)
    for (batch,) in run.batches():
        noise = random.random() * np.random.rand()
        loss = (model(batch) - batch * (1 + 0.1 * noise)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.step(loss)
        time.sleep(step_s)
    found = hashlib.sha256()
    _add(found, [model.state_dict(), optimizer.state_dict()])
    _add(found, [torch.get_rng_state(), random.getstate(), np.random.get_state()])
    (run.output_dir / "state").write_text(found.hexdigest())


def _add(to: Any, value: Any) -> None:
    """All bits of a value, with its type and shape."""
    if isinstance(value, Mapping):
        value = sorted(value.items(), key=repr)
    if isinstance(value, list | tuple):
        to.update(f"{len(value)} values".encode())
        for each in value:
            _add(to, each)
    elif isinstance(value, torch.Tensor | np.ndarray):
        array = np.asarray(value)
        to.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
    else:
        to.update((value.hex() if isinstance(value, float) else json.dumps(value)).encode())
