"""A restore reads parameters into the memory that they already have, and fills no memory twice."""

from typing import Any

import pytest
import torch

from trainers.checkpoint import store
from trainers.checkpoint.layouts import Layouts
from trainers.checkpoint.manifest import ManifestName
from trainers.checkpoint.reader import load_newest
from trainers.checkpoint.writer import save
from trainers.errors import DamagedCheckpoint
from trainers.objects.folder import announced

JOB = "job-1"


class Renaming(torch.nn.Module):
    """Shows its two parameters under each other's name, and copies of them."""

    def __init__(self, *, copies):
        super().__init__()
        self.a, self.b = torch.nn.Parameter(torch.zeros(4)), torch.nn.Parameter(torch.ones(4))
        self.copies = copies

    def state_dict(self, **_: Any) -> Any:
        shown = {"a": self.b.detach(), "b": self.a.detach()}
        return {key: tensor.clone() for key, tensor in shown.items()} if self.copies else shown


@pytest.fixture
def model():
    return torch.nn.Linear(3, 4)


@pytest.fixture
def root(tmp_path, model):
    """Checkpoints of steps 1 and 2, whose weights have the value of the step."""
    store.prepare(tmp_path, JOB)
    store.write_fence(tmp_path, JOB, 1, None)
    for step in (1, 2):
        saved = {name: torch.full_like(tensor, step) for name, tensor in model.state_dict().items()}
        save(tmp_path, JOB, ManifestName(1, step, 0), items={"model": saved}, position=None, keep=3)
    return tmp_path


def places(model):
    return Layouts({"model": model}, {f"model.{name}": each for name, each in model.named_parameters()}).in_place


def damage(root, step):
    for chunk in store.read_manifest(root, JOB, ManifestName(1, step, 0)).chunks():
        (root / JOB / "chunks" / chunk).write_bytes(b"damaged")


def test_parameters_are_read_into_their_memory(root, model):
    loaded = load_newest(root, JOB, 1, in_place=places(model))
    assert loaded.items["model"]["weight"].data_ptr() == model.weight.data_ptr()
    assert model.weight.unique().tolist() == model.bias.unique().tolist() == [2]


def test_memory_of_another_form_is_left_alone(root):
    for other in (torch.nn.Linear(4, 3), torch.nn.Linear(3, 4, dtype=torch.float64)):
        before = other.weight.detach().clone()
        loaded = load_newest(root, JOB, 1, in_place=places(other))
        assert torch.equal(other.weight, before)
        assert loaded.items["model"]["weight"].unique().tolist() == [2]


def test_an_older_checkpoint_overwrites_what_a_damaged_one_left(root, model):
    damage(root, 2)
    assert load_newest(root, JOB, 1, in_place=places(model)).name.step == 1
    assert model.weight.unique().tolist() == model.bias.unique().tolist() == [1]


def test_a_checkpoint_that_disappears_while_it_is_read_does_not_start_the_training_over(root, model):
    """The parameters may have lost their first values."""

    def disappear(operation, path):
        if operation == "read" and path.parent.name == "chunks":
            path.unlink(missing_ok=True)
            for manifest in (root / JOB / "manifests").iterdir():
                manifest.unlink()

    with announced(disappear), pytest.raises(DamagedCheckpoint, match="missing"):
        load_newest(root, JOB, 1, in_place=places(model))


def test_only_memory_that_a_state_dict_shows_is_read_into():
    module = Renaming(copies=False)
    assert places(module)["model.a"].data_ptr() == module.b.data_ptr()
    assert places(Renaming(copies=True)) == {}


@pytest.mark.parametrize("damaged", [False, True])
def test_new_memory_is_not_filled_before_it_is_read_into(root, damaged):
    """torch fills it with NaN in deterministic runs, which took as long as the rest of the restore."""
    filling: Any = torch.utils.deterministic
    seen = []
    if damaged:
        damage(root, 1)
        damage(root, 2)
    torch.use_deterministic_algorithms(True)
    try:
        with announced(lambda operation, path: seen.append((path.parent.name, filling.fill_uninitialized_memory))):
            if damaged:
                with pytest.raises(DamagedCheckpoint):
                    load_newest(root, JOB, 1)
            else:
                load_newest(root, JOB, 1)
        assert filling.fill_uninitialized_memory
    finally:
        torch.use_deterministic_algorithms(False)
    assert ("chunks", False) in seen
    assert ("chunks", True) not in seen
