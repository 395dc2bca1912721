"""What is taken for training beside the attached parts, and what is not. Whole programs: test_ordinary_programs.py."""

import gc
from contextlib import closing

import pytest
import torch
from torch.optim import optimizer as torch_optimizers
from torch.utils.data import DataLoader, TensorDataset

from trainers.errors import StateError
from trainers.loop.unattached import UnattachedState


class Program:
    """A model and its attached optimizer, and steps in which others are used."""

    def __init__(self, **parts):
        self.model = torch.nn.Linear(2, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        self.unseen = UnattachedState({"model": self.model, "optimizer": self.optimizer, **parts})

    def close(self):
        self.unseen.close()

    def step(self, *others):
        for optimizer in (self.optimizer, *others):
            self.model(torch.ones(2)).sum().backward()
            optimizer.step()
        self.unseen.step_ended(self.model.parameters, lambda: [])


@pytest.fixture
def program():
    with closing(Program()) as made:
        yield made


def test_a_run_that_is_over_leaves_no_hook_in_torch():
    hooks = torch_optimizers._global_optimizer_post_hooks
    before = len(hooks)
    for _ in range(3):
        with closing(Program()) as program:
            program.unseen.begin()
            program.step()
            assert len(hooks) == before + 1
    assert len(hooks) == before


def test_what_an_optimizer_does_between_attach_and_the_loop_is_done_again_by_each_run(program):
    finder = torch.optim.Adam(program.model.parameters(), 0.1)
    finder.step()
    program.unseen.begin()
    program.step()
    with pytest.raises(StateError, match="the optimizer Adam changed attached parameters"):
        program.step(finder)


def test_an_optimizer_that_only_waits_to_be_collected_is_not_in_use(program):
    program.unseen.begin()
    gc.disable()
    try:
        for _ in range(3):
            inner = torch.optim.Adam(program.model.parameters(), 0.1)
            inner.itself = inner  # type: ignore[attr-defined]
            inner.step()
            del inner
            program.step()
    finally:
        gc.enable()


def test_the_remedy_for_an_optimizer_of_one_step_is_to_let_it_go(program):
    program.unseen.begin()
    inner = torch.optim.Adam(program.model.parameters(), 0.1)
    with pytest.raises(StateError, match="create it inside a function, or del it"):
        program.step(inner)


def test_an_iterator_from_before_the_loop_is_refused_only_when_the_loop_reads_it(program):
    batches = iter(DataLoader(TensorDataset(torch.zeros(9, 2)), 2))
    next(batches)
    program.unseen.begin()
    for _ in range(3):
        program.step()
    next(batches)
    with pytest.raises(StateError, match=r"DataLoader over TensorDataset is read from step to step, .*ResumableLoader"):
        program.step()


def test_a_scaler_from_before_the_loop_is_refused_only_when_the_loop_uses_it(program):
    scaler = torch.amp.GradScaler("cpu")

    def use():
        scaler.scale(program.model(torch.ones(2)).sum()).backward()
        scaler.step(program.optimizer)
        scaler.update()

    use()
    program.unseen.begin()
    for _ in range(3):
        program.step()
    use()
    with pytest.raises(StateError, match="the scaler GradScaler is in use"):
        program.step()


def test_objects_that_know_each_other_are_looked_at_once():
    class Known:
        def __init__(self):
            self.others = []

        def state_dict(self):
            return {}

        def load_state_dict(self, state):
            pass

    circle = [Known() for _ in range(60)]
    for each in circle:
        each.others = circle
    with closing(Program(extra={"circle": circle[0]})) as inside:
        assert len(inside.unseen._held()) < 500
