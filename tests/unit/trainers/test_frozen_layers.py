"""Fine-tuning: what is frozen is stored once for all checkpoints of a run, and stays while one of them needs it."""

import torch
from torch import nn

from trainers.checkpoint import store
from trainers.checkpoint.manifest import CHUNK_BYTES, ManifestName
from trainers.checkpoint.reader import load
from trainers.checkpoint.writer import save

JOB, LAYERS, WIDTH, STEPS = "job", 6, 1100, 3


def test_frozen_layers_are_stored_once_and_stay_while_they_are_needed(tmp_path):
    store.prepare(tmp_path, JOB)
    store.write_fence(tmp_path, JOB, 1, None)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    for frozen in list(model)[:-1]:
        frozen.requires_grad_(False)
    optimizer = torch.optim.AdamW(model[-1].parameters())
    stored = []
    for step in range(1, STEPS + 1):
        model(torch.ones(1, WIDTH)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        items = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        save(tmp_path, JOB, ManifestName(1, step, 1), items=items, position=None, keep=2)
        stored.append(sum(file.stat().st_size for file in (tmp_path / JOB / "chunks").iterdir()))
    changed = 3 * sum(4 * parameter.numel() for parameter in model[-1].parameters())  # and both moments of each
    assert stored[1] - stored[0] < changed + CHUNK_BYTES
    assert stored[2] < stored[1] + CHUNK_BYTES, "what only the first one needed is deleted"
    found = load(tmp_path, JOB, ManifestName(1, STEPS, 1)).items["model"]
    assert all(torch.equal(found[name], value) for name, value in model.state_dict().items())
