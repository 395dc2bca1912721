"""Gradients and buffers that no state_dict holds: what is saved of them, what is left out, and what is refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from trainers.checkpoint.attached import AttachedObjects
from trainers.checkpoint.state import Encoder, decode
from trainers.errors import StateError
from trainers.loop.transient import _ENOUGH_STEPS, Transient


class Loop:
    """Two layers with an optimizer each."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.models = {"a": nn.Linear(2, 2), "b": nn.Linear(2, 1)}
        self.loose = nn.Parameter(torch.ones(1))
        self.optimizers = {
            "a": torch.optim.SGD([*self.models["a"].parameters(), self.loose], lr=0.1),
            "b": torch.optim.SGD(self.models["b"].parameters(), lr=0.1),
        }
        self.transient = Transient({"model": self.models, "optimizer": self.optimizers})

    def backward(self) -> None:
        (self.models["b"](self.models["a"](torch.ones(1, 2))).sum() * self.loose.sum()).backward()

    def step(self, *, clear: bool = True, used: str = "ab", between: Callable[[], object] = lambda: None) -> bool:
        if clear:
            self.zero_grad()
        self.backward()
        between()
        for name in used:
            self.optimizers[name].step()
        return self.transient.step_ended()

    def convince(self, used: str = "ab") -> None:
        """That it drops spent gradients."""
        for _ in range(1 + _ENOUGH_STEPS):
            self.step(used=used)

    def zero_grad(self) -> None:
        for optimizer in self.optimizers.values():
            optimizer.zero_grad()

    def parameters(self) -> list[torch.Tensor]:
        return [*self.models["a"].parameters(), *self.models["b"].parameters(), self.loose]


NOTHING: dict[str, Any] = {"gradients": {}, "spent": [], "dropped": 0, "buffers": {}, "loose": {}, "groups": {}}
NOTHING |= {"frozen": [], "wanting": [], "evaluating": []}
LOOSE = {"optimizer.a.0.2": torch.ones(1)}
NAMES = ["model.a.weight", "model.a.bias", "model.b.weight", "model.b.bias", "optimizer.a.0.2"]
GROUPS = {"optimizer.a": [[NAMES[0], NAMES[1], NAMES[4]]], "optimizer.b": [[NAMES[2], NAMES[3]]]}


def test_until_the_program_has_dropped_used_gradients_they_are_saved() -> None:
    loop = Loop()
    for _ in range(_ENOUGH_STEPS):
        loop.step()
        assert list(loop.transient.capture()["gradients"]) == NAMES
    loop.step()
    assert loop.transient.capture()["spent"] == NAMES


@pytest.mark.parametrize("every", [2, 3, 5])
@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("killed_after", [1, 2, 3, 10, 11, 17, 18, 19, 20])
def test_a_program_that_clears_every_few_steps_is_resumed_with_the_gradients_that_it_adds_to(
    every: int, where: str, killed_after: int
) -> None:
    """run.step() and optimizer.step() in every step, zero_grad() in every few: the steps between add to used ones."""

    def step(loop: Loop, number: int) -> dict[str, Any]:
        """One step as a program makes it: what follows the optimizer's step belongs to it, too."""
        if where == "before" and number % every == 0:
            loop.zero_grad()
        loop.backward()
        for optimizer in loop.optimizers.values():
            optimizer.step()
        if where == "after" and number % every == every - 1:
            loop.zero_grad()
        loop.transient.step_ended()
        return {"transient": loop.transient.capture(), "weights": [p.detach().clone() for p in loop.parameters()]}

    loop, again = Loop(), Loop()
    for number in range(killed_after):
        saved = copy.deepcopy(step(loop, number))
    for parameter, value in zip(again.parameters(), saved["weights"], strict=True):
        parameter.data.copy_(value)
    again.transient.restore(saved["transient"])
    for number in range(killed_after, 24):
        wanted, found = step(loop, number)["weights"], step(again, number)["weights"]
        assert all(map(torch.equal, wanted, found))


def test_gradients_that_were_not_used_since_they_changed_are_always_saved() -> None:
    loop = Loop()
    loop.convince()
    loop.step(used="b")
    captured = loop.transient.capture()
    assert list(captured["gradients"]) == ["model.a.weight", "model.a.bias", "optimizer.a.0.2"]
    assert captured["spent"] == ["model.b.weight", "model.b.bias"]


def test_gradients_that_were_left_out_and_are_used_after_all_call_for_another_checkpoint() -> None:
    loop = Loop()
    loop.convince()
    assert loop.transient.capture()["spent"] == NAMES
    assert not loop.step(clear=False)
    assert list(loop.transient.capture()["gradients"]) == NAMES
    assert loop.step(), "once is enough: from now on all are saved"
    assert list(loop.transient.capture()["gradients"]) == NAMES


def test_without_gradients_nothing_is_saved() -> None:
    loop = Loop()
    assert loop.transient.capture() == {**NOTHING, "loose": LOOSE, "groups": GROUPS}


def resumed(*, spent: bool) -> Loop:
    """A new loop, with the state of one that has done three steps."""
    loop = Loop()
    loop.convince(used="ab" if spent else "")
    state = loop.transient.capture()
    after = Loop()
    after.transient.restore(state)
    if not spent:
        for mine, theirs in zip(after.parameters(), loop.parameters(), strict=True):
            assert mine.grad is not None
            assert theirs.grad is not None
            assert torch.equal(mine.grad, theirs.grad)
    return after


def test_gradients_in_flight_come_back_for_every_parameter() -> None:
    assert resumed(spent=False).step(clear=False)


def test_a_program_that_goes_on_as_before_never_meets_a_stand_in() -> None:
    loop = resumed(spent=True)
    for _ in range(3):
        assert loop.step()
    assert all(torch.isfinite(parameter).all() for parameter in loop.parameters())


@pytest.mark.parametrize(
    "change",
    [
        lambda loop: loop.step(clear=False),
        lambda loop: loop.optimizers["a"].step() or loop.step(),
        lambda loop: nn.utils.clip_grad_norm_(loop.parameters(), 1.0) and loop.transient.step_ended(),
        lambda loop: [p.grad.zero_() for p in loop.parameters()] and loop.step(clear=False),
    ],
    ids=["added to", "used again", "clipped", "cleared in place"],
)
def test_touching_what_the_checkpoint_left_out_is_refused(change: Callable[[Loop], object]) -> None:
    with pytest.raises(StateError, match="reuses gradients that its optimizer has used"):
        change(resumed(spent=True))


def test_a_stand_in_that_nobody_touches_does_no_harm_and_is_saved_as_what_it_is() -> None:
    loop = resumed(spent=True)
    for parameter in loop.models["b"].parameters():
        parameter.requires_grad_(False)
    loop.optimizers["a"].zero_grad()
    loop.backward()
    loop.optimizers["a"].step()
    assert loop.transient.step_ended()
    assert loop.transient.capture()["spent"] == NAMES


def test_sparse_gradients_are_saved_like_others() -> None:
    embedding = nn.Embedding(4, 2, sparse=True)
    optimizer = torch.optim.SGD(embedding.parameters(), lr=0.1)
    transient = Transient({"model": embedding, "optimizer": optimizer})
    embedding(torch.tensor([1])).sum().backward()
    other = nn.Embedding(4, 2, sparse=True)
    Transient({"model": other}).restore({**transient.capture(), "groups": {}})
    assert other.weight.grad is not None
    assert embedding.weight.grad is not None
    assert other.weight.grad.is_sparse
    assert torch.equal(other.weight.grad.to_dense(), embedding.weight.grad.to_dense())


def test_a_gradient_of_an_unknown_parameter_or_another_shape_is_refused() -> None:
    for gradients, why in (
        ({"model.c.weight": torch.ones(1)}, r"model\.c\.weight, which does not exist here"),
        ({"model.a.weight": torch.ones(3)}, r"model\.a\.weight has a different shape"),
    ):
        with pytest.raises(StateError, match=why):
            Loop().transient.restore({**NOTHING, "gradients": gradients})


# Buffers


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("same", torch.ones(2), persistent=False)
        self.register_buffer("changed", torch.zeros(2), persistent=False)
        self.register_buffer("none", None, persistent=False)
        self.register_buffer("kept", torch.zeros(2))


def change(layer: nn.Module, name: str, value: torch.Tensor | None) -> None:
    layer._buffers[name] = value


CHANGES: list[Callable[[Any], object]] = [
    lambda layer: layer.changed.add_(1),
    lambda layer: layer.changed.data.add_(1),  # the version that torch counts stays
    lambda layer: change(layer, "changed", torch.ones(2)),
    lambda layer: change(layer, "changed", torch.ones(5)),
    lambda layer: change(layer, "changed", torch.ones(2, dtype=torch.int64)),
    lambda layer: change(layer, "changed", None),
    lambda layer: change(layer, "none", torch.ones(3)),
    lambda layer: layer.register_buffer("late", torch.ones(3), persistent=False),
    lambda layer: change(layer, "changed", torch.tensor([float("nan"), -0.0])),
]


@pytest.mark.parametrize("act", CHANGES)
def test_a_buffer_that_changed_is_saved_and_comes_back_and_the_others_are_not(act: Callable[[Layer], object]) -> None:
    def build() -> tuple[Layer, Transient]:
        model = nn.ModuleDict({"layer": Layer()})
        return model["layer"], Transient({"model": {"m": model}})  # type: ignore[return-value]

    layer, transient = build()
    assert transient.capture()["buffers"] == {}
    act(layer)
    state = transient.capture()
    assert len(state["buffers"]) == 1
    assert next(iter(state["buffers"])).startswith("model.m.layer.")
    again, other = build()
    other.restore(state)
    for name, buffer in layer._buffers.items():
        mine = again._buffers[name]
        assert (mine is None) == (buffer is None)
        if mine is not None and buffer is not None:
            assert mine.dtype == buffer.dtype
            assert mine.tolist().__repr__() == buffer.tolist().__repr__()
    assert again._non_persistent_buffers_set == layer._non_persistent_buffers_set
    assert other.capture()["buffers"].keys() == state["buffers"].keys(), "it still differs from that of a new run"


def test_a_buffer_that_is_present_is_filled_in_place() -> None:
    layer = Layer()
    transient = Transient({"model": layer})
    alias = layer.changed
    transient.restore({**NOTHING, "buffers": {"model.changed": torch.ones(2)}})
    assert alias.tolist() == [1, 1]


def test_a_buffer_without_its_module_is_refused() -> None:
    with pytest.raises(StateError, match=r"a buffer model\.gone\.mean, but there is no such module"):
        Transient({"model": Layer()}).restore({**NOTHING, "buffers": {"model.gone.mean": None}})


# Modes


def test_frozen_parameters_and_modules_that_evaluate_stay_so() -> None:
    def build() -> tuple[nn.Sequential, Transient]:
        model = nn.Sequential(nn.Linear(1, 1), nn.Sequential(nn.Dropout(), nn.BatchNorm1d(1)))
        model[0].bias.requires_grad_(False)
        return model, Transient({"model": model})

    model, transient = build()
    model[0].bias.requires_grad_(True)
    model[0].weight.requires_grad_(False)
    model[1][0].eval()
    again, other = build()
    other.restore(transient.capture())
    assert [parameter.requires_grad for parameter in again.parameters()] == [False, True, True, True]
    assert [module.training for module in again.modules()] == [module.training for module in model.modules()]
    assert not again[1][0].training


def test_a_parameter_that_is_in_an_optimizer_alone_is_saved_and_restored_in_place() -> None:
    loop, resumed = Loop(), Loop()
    loop.step()
    state = loop.transient.capture()
    assert list(state["loose"]) == list(LOOSE)
    held = resumed.loose
    resumed.transient.restore(state)
    assert resumed.optimizers["a"].param_groups[0]["params"][2] is held
    assert torch.equal(held, loop.loose)
    assert not torch.equal(held, torch.ones(1))


@pytest.mark.parametrize("loose", [{}, {"optimizer.a.0.2": torch.ones(2)}, {**LOOSE, "optimizer.b.0.2": torch.ones(1)}])
def test_other_parameters_of_the_optimizer_than_in_the_checkpoint_are_refused(loose: dict[str, Any]) -> None:
    with pytest.raises(StateError, match="optimizer"):
        Loop().transient.restore({**NOTHING, "loose": loose})


# Groups


class Thawing:
    """A model of three layers, of which the optimizer has the last one; others are added on the way."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 1))
        self.optimizer = torch.optim.Adam(self.model[2].parameters(), lr=0.1)
        self.group = self.optimizer.param_groups[0]
        parts = {"model": self.model, "optimizer": self.optimizer}
        self.given, self.transient = AttachedObjects(parts), Transient(parts)

    def thaw(self, layer: int) -> None:
        self.optimizer.add_param_group({"params": self.model[layer].parameters(), "lr": 0.01})

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.model(torch.ones(1, 2)).sum().backward()
        self.optimizer.step()
        self.transient.step_ended()

    def save(self) -> Any:
        return copy.deepcopy([self.given.same(), self.given.capture(), self.transient.capture()])

    def resume(self, saved: Any) -> None:
        same, items, transient = saved
        self.transient.restore_groups(transient)
        self.given.restore(items, same)
        self.transient.restore(transient)


def test_groups_that_were_added_on_the_way_are_there_after_a_resume() -> None:
    loop, again = Thawing(), Thawing()
    loop.step()
    loop.thaw(1)
    loop.step()
    loop.thaw(0)
    loop.step()
    loop.group["lr"] = 0.05
    again.resume(loop.save())
    assert again.optimizer.param_groups[0] is again.group, "what the program holds stays the group"
    assert [group["lr"] for group in again.optimizer.param_groups] == [0.05, 0.01, 0.01]
    for _ in range(3):
        loop.step()
        again.step()
    for mine, theirs in zip(again.model.parameters(), loop.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_resumed_run_that_began_with_more_groups_gets_those_of_the_checkpoint() -> None:
    loop, again = Thawing(), Thawing()
    loop.step()
    again.thaw(1)
    again.resume(loop.save())
    assert len(again.optimizer.param_groups) == 1
    loop.step()
    again.step()
    assert torch.equal(again.model[2].weight, loop.model[2].weight)


def test_a_parameter_that_came_later_and_is_in_no_module_is_refused_at_the_end_of_its_step() -> None:
    loop = Thawing()
    loop.step()
    loop.optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]})
    with pytest.raises(StateError, match=r"parameter 0 of group 1 of optimizer was added after attach\(\)"):
        loop.step()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda model: model.append(nn.Linear(1, 1)), r"model\.3\.bias was added after attach"),
        (lambda model: model.register_buffer("seen", torch.zeros(1)), r"model\.seen was added after attach"),
        (lambda model: model.pop(0), r"model\.2\.bias was removed after attach"),
    ],
)
def test_a_model_that_is_another_one_than_at_attach_is_refused_by_the_next_save(
    change: Callable[[nn.Sequential], object], why: str
) -> None:
    loop = Thawing()
    loop.transient.capture()
    change(loop.model)
    with pytest.raises(StateError, match=why):
        loop.transient.capture()


def test_a_gradient_comes_back_in_the_order_in_memory_that_it_had() -> None:
    def build() -> tuple[nn.Conv2d, Transient]:
        model = nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return model, Transient({"model": model})

    model, transient = build()
    model(torch.rand(2, 3, 5, 5).to(memory_format=torch.channels_last)).sum().backward()
    again, other = build()
    state = transient.capture()
    encoder = Encoder()
    node = encoder.encode(state, "transient")
    state = decode(node, [tensor.contiguous() for _, tensor in encoder.tensors])  # as they are stored
    other.restore(state)
    assert model.weight.grad is not None
    assert again.weight.grad is not None
    assert again.weight.grad.stride() == model.weight.grad.stride()
    assert torch.equal(again.weight.grad, model.weight.grad)


def test_the_groups_of_another_program_are_refused() -> None:
    with pytest.raises(StateError, match=r"has the parameter model\.9\.weight"):
        Thawing().transient.restore_groups({"groups": {"optimizer": [["model.9.weight"]]}})
    with pytest.raises(StateError, match="has the optimizers adam; the program attached optimizer"):
        Thawing().transient.restore_groups({"groups": {"adam": []}})
