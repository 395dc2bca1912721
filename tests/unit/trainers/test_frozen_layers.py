"""Fine-tuning: what is frozen is stored once for all checkpoints of a run, and stays while one of them needs it."""

import torch
from torch import nn

from trainers.checkpoint import store
from trainers.checkpoint.frozen import frozen
from trainers.checkpoint.manifest import CHUNK_BYTES, ManifestName
from trainers.checkpoint.reader import load
from trainers.checkpoint.writer import save

JOB, LAYERS, WIDTH, STEPS = "job", 6, 1100, 3


def test_frozen_layers_are_stored_once_and_stay_while_they_are_needed(tmp_path):
    store.prepare(tmp_path, JOB)
    store.write_fence(tmp_path, JOB, 1, None)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    for layer in list(model)[:-1]:
        layer.requires_grad_(False)
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


class Adapted(nn.Module):
    """A small frozen layer with a smaller one beside it that is trained, as in LoRA."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.adapter = nn.Linear(300, 300).requires_grad_(False), nn.Linear(300, 300, bias=False)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.base(batch) + self.adapter(batch)


def test_small_frozen_layers_between_trained_ones_are_stored_once_as_well(tmp_path):
    """They share chunks, but not with what is trained. Entries stay in their order."""
    store.prepare(tmp_path, JOB)
    store.write_fence(tmp_path, JOB, 1, None)
    models = {"one": nn.Sequential(*(Adapted() for _ in range(20)))}
    names = list(frozen(models, "model"))
    assert names[:2] == ["model.one.0.base.weight", "model.one.0.base.bias"]
    assert len(names) == 40
    manifests = []
    for step in (1, 2):
        for parameter in models["one"].parameters():
            if parameter.requires_grad:
                nn.init.constant_(parameter, step)
        items = {"model": {key: each.state_dict() for key, each in models.items()}}
        save(tmp_path, JOB, ManifestName(1, step, 1), items=items, position=None, keep=2, frozen=names)
        manifests.append(store.read_manifest(tmp_path, JOB, ManifestName(1, step, 1)))
    of_frozen = sum(4 * each.numel() for each in models["one"].parameters() if not each.requires_grad)
    common = manifests[0].chunks() & manifests[1].chunks()
    assert sum(store.chunk_sizes(tmp_path, JOB, common).values()) == of_frozen
    state = models["one"].state_dict()
    assert [entry.name for entry in manifests[1].tensors] == [f"model.one.{name}" for name in state]
    found = load(tmp_path, JOB, ManifestName(1, 2, 1)).items["model"]["one"]
    assert all(torch.equal(found[name], value) for name, value in state.items())
