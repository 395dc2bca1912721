"""What a program may attach, and what it gets outside Tradewind; mistakes are refused before training."""

import dataclasses
import random
import re
from contextlib import closing

import pytest
import torch

import trainers
from tests.unit.trainers.simulated_run import JOB, SimulatedRun
from trainers.checkpoint import store
from trainers.errors import CheckpointReadOnly, StateError, TrainerError
from trainers.journal import Journal
from trainers.loop.session import attach
from trainers.process.run_context import RunContext, Timers, opened
from trainers.spec import SPEC_VARIABLE


def test_other_parts_than_the_checkpoint_holds_are_named(run):
    run.train(scheduler=torch.nn.Linear(1, 1))
    again = SimulatedRun(run.root.parent, generation=2)
    store.write_fence(again.root, JOB, 2, "1-30-0")
    with pytest.raises(StateError, match=r"has extra, model, optimizer, scheduler; the program attached extra"):
        again.train()


def test_a_checkpoint_folder_that_is_a_file_is_found_before_training(run):
    blocked = SimulatedRun(run.root.parent)
    (run.root.parent / "file").touch()
    blocked.spec = dataclasses.replace(blocked.spec, checkpoint_root=str(run.root.parent / "file"))
    with pytest.raises(CheckpointReadOnly):
        blocked.train()
    assert blocked.trained == []


def test_a_part_that_could_not_be_restored_is_refused_before_training(run):
    with pytest.raises(StateError, match="is a list, which cannot be saved"):
        run.train(scheduler=[1, 2])
    assert run.trained == []


def test_what_extra_cannot_hold_is_refused_at_attach(run):
    with pytest.raises(StateError, match=r"extra\.more\.numbers\.0 is a torch.*Generator"):
        attach_with(run, {"more": {"numbers": [torch.Generator()]}})
    with pytest.raises(StateError, match=r"extra\.secret is a random\.SystemRandom"):
        attach_with(run, {"secret": random.SystemRandom()})
    assert run.trained == []


def test_numbers_that_the_program_could_not_read_back_are_refused_before_the_first_step(run):
    timers = Timers(monotonic=lambda: run.now, sleep=run.sleep, cpu=lambda: run.cpu)
    for keeps in (False, True):
        journal = Journal(run.control, timers.monotonic)
        with closing(journal), opened(RunContext(run.spec, run.control, journal, timers)):
            kept = {"best": 0.5}
            attached = attach(model=run.model, optimizer=run, extra=kept if keeps else {"best": 0.5})
            if keeps:
                assert next(attached.batches()) == 0
            else:
                with pytest.raises(StateError, match="keeps no reference to the dict"):
                    next(attached.batches())


def attach_with(run, extra):
    timers = Timers(monotonic=lambda: run.now, sleep=run.sleep, cpu=lambda: run.cpu)
    journal = Journal(run.control, timers.monotonic)
    with closing(journal), opened(RunContext(run.spec, run.control, journal, timers)):
        attach(model=run.model, optimizer=run, extra=extra)


def test_attaching_twice_is_a_mistake(run):
    with pytest.raises(TrainerError, match="called twice"):
        run.train(lambda step: attach(model=run.model, optimizer=run))


# Outside Tradewind


def test_outside_tradewind_the_same_program_is_a_plain_loop(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = trainers.attach(model=torch.nn.Linear(1, 1), optimizer={}, steps=4)
    seen = []
    for number in run.batches():
        seen.append(number)
        run.step(0.5)
    assert seen == [0, 1, 2, 3]
    assert list(tmp_path.iterdir()) == []


def test_epochs_count_passes_and_the_last_batch_may_be_smaller(tmp_path):
    loader = torch.utils.data.DataLoader(list(range(10)), batch_size=4)
    run = trainers.attach(model=None, optimizer=None, loader=loader, epochs=2)
    sizes = []
    for batch in run.batches():
        sizes.append(len(batch))
        run.step(0.0)
    assert sizes == [4, 4, 2] * 2
    assert run.total_steps == 6


def test_several_batches_may_make_one_step():
    loader = torch.utils.data.DataLoader(list(range(12)), batch_size=1)
    run = trainers.attach(model=None, optimizer=None, loader=loader, steps=5)
    batches = 0
    for _ in run.batches():
        batches += 1
        if batches % 3 == 0:
            run.step(0.0)
    assert batches == 15


def test_a_loop_that_never_steps_gets_an_error_that_says_so():
    loader = torch.utils.data.DataLoader(list(range(3)))
    run = trainers.attach(model=None, optimizer=None, loader=loader, steps=5)
    with pytest.raises(TrainerError, match=r"call run\.step\(loss\)"):
        list(run.batches())


@pytest.mark.parametrize(("ends", "message"), [({}, "length of the training"), ({"epochs": 2}, "need a loader")])
def test_a_loop_without_an_end_is_refused(ends, message):
    with pytest.raises(TrainerError, match=message):
        trainers.attach(model=None, optimizer=None, **ends)


def test_another_process_of_the_job_cannot_attach(monkeypatch):
    monkeypatch.setenv(SPEC_VARIABLE, "spec.json")
    with pytest.raises(TrainerError, match="a process other than"):
        trainers.attach(model=None, optimizer=None, steps=1)


@pytest.mark.parametrize(
    ("saved", "built", "message"),
    [
        (
            lambda: torch.nn.Linear(2, 3),
            lambda: torch.nn.Linear(2, 4),
            r"model\.0\.weight has the shape \(3, 2\) in the checkpoint, but \(4, 2\) in the program",
        ),
        (
            lambda: torch.nn.BatchNorm1d(2),
            lambda: torch.nn.BatchNorm1d(2, track_running_stats=False),
            r"has 0\.num_batches_tracked, 0\.running_mean, 0\.running_var, which the program lacks",
        ),
        (
            lambda: torch.nn.Sequential(torch.nn.Linear(2, 2)),
            lambda: torch.nn.Linear(2, 2),
            r"has 0\.0\.bias, 0\.0\.weight, which the program lacks; the program has 0\.bias, 0\.weight",
        ),
    ],
)
def test_a_model_that_has_changed_is_refused_with_what_differs_on_both_sides(tmp_path, saved, built, message):
    def trained(generation, part):
        run = SimulatedRun(tmp_path, generation=generation, steps=2 * generation)
        run.model = torch.nn.Sequential(part)
        run.model.register_parameter("weight", torch.nn.Parameter(torch.zeros(1)))
        return run.train()

    store.write_fence(tmp_path / "checkpoints", JOB, 1, None)
    assert trained(1, saved()) == "finished"
    store.write_fence(tmp_path / "checkpoints", JOB, 2, "1-2-0")
    with pytest.raises(StateError, match=message) as refused:
        trained(2, built())
    assert "submit a new job" in refused.value.hint


@pytest.mark.parametrize(
    ("loss", "kind"),
    [(torch.zeros(32, 4), "Tensor of shape (32, 4)"), ([0.5], "list"), ("low", "str")],
)
def test_a_loss_that_is_not_one_number_is_refused_with_its_shape(loss, kind):
    loop = trainers.attach(model=None, optimizer=None, steps=4)
    with pytest.raises(TrainerError, match=re.escape(f"a number or a one-element tensor, not a {kind}")) as refused:
        loop.step(loss)
    assert refused.value.hint == "reduce it first: run.step(loss.mean())"
    assert loop.steps_done == 0
