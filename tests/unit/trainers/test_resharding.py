"""What one process, DistributedDataParallel or FSDP2 has saved is continued by any other. Real processes, gloo.

benchmarks/resharding.py does this for every pair.
"""

import pytest
import torch

from tests.unit.trainers.gang import Gang
from trainers.checkpoint import store

LEG = 20
WAYS = [("single", 1), ("fsdp", 2), ("ddp", 2), ("fsdp", 4), ("single", 1)]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, nursery):
    gang = Gang(tmp_path_factory.mktemp("whole"), nursery, "resharded:main", LEG * len(WAYS), nodes=1, processes=1)
    (machine,) = gang.launch(way="single")
    assert machine.status == "finished", machine.log
    return losses(machine)


def losses(machine):
    return {step: float.fromhex(value) for step, value in machine.losses[0].items()}


def test_a_job_moves_between_kinds_and_numbers_of_ranks(tmp_path, nursery, uninterrupted):
    gang = Gang(tmp_path, nursery, "resharded:main", LEG, nodes=1)
    trained, before = {}, None
    for number, (way, ranks) in enumerate(WAYS):
        gang.processes, gang.steps = ranks, LEG * (number + 1)
        (machine,) = gang.launch(way=way)
        assert machine.status == "finished", machine.log
        assert machine.progress.start_step == LEG * number
        trained |= losses(machine)
        if before is not None:
            after = torch.load(tmp_path / "outputs" / f"begin-{way}-{ranks}-{LEG * number}.pt")
            assert after.keys() == before.keys()
            assert all(torch.equal(after[name], value) for name, value in before.items())
        before = torch.load(tmp_path / "outputs" / f"end-{way}-{ranks}-{gang.steps}.pt")
    assert trained.keys() == uninterrupted.keys()
    assert max(abs(trained[step] - loss) for step, loss in uninterrupted.items()) < 1e-5
    stored = {manifest.name.step: manifest for manifest in manifests(gang)}
    sizes = {step: sizes_of(manifest) for step, manifest in stored.items()}
    assert {"model.words.weight", "model.seen", "optimizer.state.0.exp_avg"} <= sizes[LEG].keys()
    assert all(of_step == sizes[LEG] for of_step in sizes.values()), "each tensor is stored once, whoever saves it"
    (words,) = [entry for entry in stored[2 * LEG].tensors if entry.name == "model.words.weight"]
    assert [box.begin for box in words.boxes] == [(0, 0), (4, 0)]


def manifests(gang):
    return [store.verify(gang.root, gang.job_id, name) for name in store.manifests(gang.root, gang.job_id)]


def sizes_of(manifest):
    stored = [(entry.name, entry.size_bytes) for entry in manifest.tensors if entry.name.startswith(("model", "opt"))]
    assert len({name for name, _ in stored}) == len(stored)
    return dict(stored)
