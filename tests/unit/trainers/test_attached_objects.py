"""What attach() was given, restored into the very objects that the program holds, or refused before a step is made."""

from __future__ import annotations

import json
import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch

from trainers.checkpoint.attached import AttachedObjects
from trainers.checkpoint.state import Encoder, decode
from trainers.errors import StateError


def through_json(value: Any) -> Any:
    encoder = Encoder()
    node = json.loads(json.dumps(encoder.encode(value, "x"), allow_nan=False))
    return decode(node, [tensor for _, tensor in encoder.tensors])


def saved(given: AttachedObjects) -> Any:
    return through_json([given.same(), given.capture()])


def resume(given: AttachedObjects, state: Any) -> None:
    same, items = state
    given.restore(items, same)


def given_extra(extra: dict[Any, Any]) -> AttachedObjects:
    return AttachedObjects({"extra": extra})


KINDS: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "list": (lambda: [1, 2], lambda held: held.append(3)),
    "list of lists": (lambda: [[1], [2]], lambda held: held[1].append(3)),
    "list of tensors": (lambda: [torch.zeros(2), torch.ones(2)], lambda held: held[1].add_(1)),
    "tuple of tensors": (lambda: (torch.zeros(2), 7), lambda held: held[0].add_(1)),
    "dict": (lambda: {"a": 1}, lambda held: held.update(a=2, b=3)),
    "dict of tensors": (lambda: {"w": torch.zeros(3)}, lambda held: held["w"].add_(1)),
    "ordered": (lambda: OrderedDict(a=1, b=2), lambda held: held.move_to_end("a")),
    "defaultdict": (lambda: defaultdict(list), lambda held: held["a"].append(1)),
    "counter": (lambda: Counter("a"), lambda held: held.update("b")),
    "set": (lambda: {1}, lambda held: held.add(2)),
    "deque": (lambda: deque([1, 2], maxlen=2), lambda held: held.append(3)),
    "bytearray": (lambda: bytearray(b"ab"), lambda held: held.extend(b"c")),
    "tensor": (lambda: torch.zeros(2), lambda held: held.add_(1)),
    "scalar tensor": (lambda: torch.tensor(0.0), lambda held: held.add_(1)),
    "turned tensor": (lambda: torch.zeros(2, 3).t(), lambda held: held[1].add_(1)),
    "parameter": (lambda: torch.nn.Parameter(torch.zeros(2)), lambda held: held.data.add_(1)),
    "array": (lambda: numpy.zeros(2), lambda held: numpy.add(held, 1, out=held)),
    "scalar array": (lambda: numpy.array(1.0), lambda held: held.fill(2)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_object_that_the_program_knows_by_another_name_is_filled(kind: str) -> None:
    make, change = KINDS[kind]
    held, again = make(), make()
    given, other = given_extra({"it": held}), given_extra({"it": again})
    change(held)
    resume(other, saved(given))
    assert repr(again) == repr(held)
    assert other._parts["extra"]["it"] is again
    change(held)
    change(again)
    assert repr(again) == repr(held), "it goes on like the other"


def test_an_object_that_took_the_place_of_another_does_not_change_the_other() -> None:
    def begun() -> tuple[dict[str, Any], torch.Tensor]:
        initial = torch.zeros(2)
        return {"now": initial, "log": [1]}, initial

    extra, initial = begun()
    given = given_extra(extra)
    extra["now"], extra["log"] = extra["now"] + 1, [*extra["log"], 2]
    again, initial_again = begun()
    log_again = again["log"]
    resume(given_extra(again), saved(given))
    assert again["now"].tolist() == [1, 1]
    assert (again["log"], log_again) == ([1, 2], [1])
    assert torch.equal(initial, initial_again)


def test_objects_that_changed_places_are_each_found() -> None:
    extra: dict[str, Any] = {"a": [1], "b": [2], "more": {"c": torch.zeros(1)}}
    given = given_extra(extra)
    extra["a"], extra["b"] = extra["b"], extra["a"]
    extra["a"].append(3)
    again: dict[str, Any] = {"a": [1], "b": [2], "more": {"c": torch.zeros(1)}}
    a, b = again["a"], again["b"]
    resume(given_extra(again), saved(given))
    assert (a, b) == ([1], [2, 3])
    assert again["a"] is b
    assert again["b"] is a


def test_one_object_by_two_names_stays_one() -> None:
    def begun() -> dict[str, Any]:
        shared = [1]
        return {"a": shared, "b": {"c": shared}}

    extra, again = begun(), begun()
    given = given_extra(extra)
    extra["a"].append(2)
    resume(given_extra(again), saved(given))
    assert again["a"] is again["b"]["c"]
    assert again["a"] == [1, 2]


def test_numbers_come_back_in_the_dict_and_keys_that_went_or_came_do_so_again() -> None:
    extra: dict[str, Any] = {"best": 0.5, "history": {"losses": [1, 2], "old": 1}, "gone": 3}
    given = given_extra(extra)
    history = extra["history"]
    del extra["gone"], history["old"]
    extra["best"], extra["late"], history["losses"][:] = float("inf"), {"x": (1,)}, [3]
    again: dict[str, Any] = {"best": 0.5, "history": {"losses": [1, 2], "old": 1}, "gone": 3}
    held = again["history"]
    resume(given_extra(again), saved(given))
    assert again == {"best": float("inf"), "history": {"losses": [3]}, "late": {"x": (1,)}}
    assert again["history"] is held


def test_a_dict_whose_order_changed_keeps_its_parts() -> None:
    def begun() -> dict[str, Any]:
        return {"first": 1, "net": torch.nn.Linear(1, 1), "list": [1]}

    extra, again = begun(), begun()
    given = given_extra(extra)
    del extra["first"]
    extra["list"].append(2)
    net, held = again["net"], again["list"]
    resume(given_extra(again), saved(given))
    assert again["net"] is net
    assert torch.equal(net.weight, extra["net"].weight)
    assert held == [1, 2]


def test_what_was_made_later_keeps_its_kind_and_the_versions_of_modules() -> None:
    extra: dict[str, Any] = {}
    given = given_extra(extra)
    extra["best"] = torch.nn.BatchNorm1d(2).state_dict()
    extra["seen"] = Counter("ab")
    again: dict[str, Any] = {}
    resume(given_extra(again), saved(given))
    torch.nn.BatchNorm1d(2).load_state_dict(again["best"])
    assert again["best"]._metadata == extra["best"]._metadata
    assert type(again["seen"]) is Counter


def test_after_a_resume_all_can_be_saved_and_resumed_again() -> None:
    extra: dict[str, Any] = {"log": [1]}
    given = given_extra(extra)
    extra["late"] = [2]
    for _ in range(3):
        extra["log"].append(3)
        extra["late"].append(4)
        again: dict[str, Any] = {"log": [1]}
        held = again["log"]
        other = given_extra(again)
        resume(other, saved(given))
        resume(other, saved(given))  # the fence may name another checkpoint than the one that was foreseen
        assert held == extra["log"]
        assert again["late"] == extra["late"]
        extra, given = again, other


# What cannot be brought back is refused, before it could be lost


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        (torch.zeros(1).expand(3), "pass its clone() instead"),
        (numpy.broadcast_to(numpy.zeros(1), 3), "pass its copy() instead"),
    ],
)
def test_what_cannot_be_written_to_is_refused_at_attach(value: Any, remedy: str) -> None:
    with pytest.raises(StateError, match=r"extra\.more\.0 .* which cannot be restored in place") as refused:
        given_extra({"more": [value]})
    assert refused.value.hint == remedy


LATER: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda extra: extra["tensor"].resize_(3), r"extra\.tensor differs in shape"),
    (lambda extra: extra["array"].resize(3, refcheck=False), r"extra\.array differs in shape"),
    (lambda extra: extra.update(late=torch.nn.Linear(1, 1)), r"extra\.late was added after attach"),
    (lambda extra: extra.pop("net"), r"extra\.net was removed after attach"),
    (lambda extra: extra.update(late=defaultdict(int)), r"extra\.late is a defaultdict that was added after attach"),
]


@pytest.mark.parametrize(("change", "why"), LATER)
def test_a_change_that_a_resume_could_not_make_is_refused_by_the_next_save(
    change: Callable[[dict[str, Any]], object], why: str
) -> None:
    extra = {"tensor": torch.zeros(2), "array": numpy.zeros(2), "net": torch.nn.Linear(1, 1)}
    given = given_extra(extra)
    given.same()
    change(extra)
    with pytest.raises(StateError, match=why):
        given.same()


@pytest.mark.parametrize(
    ("before", "now", "why"),
    [
        ([1], {"a": 1}, "is a list in the checkpoint, but a dict in the program"),
        (torch.zeros(2), torch.zeros(3), r"of torch.float32 and shape \(2,\) in the checkpoint"),
        (deque([1], maxlen=2), deque([1], maxlen=3), "deque"),
    ],
)
def test_a_program_that_hands_over_something_else_gets_an_error_that_names_it(before: Any, now: Any, why: str) -> None:
    with pytest.raises(StateError, match=why):
        resume(given_extra({"it": now}), saved(given_extra({"it": before})))


def test_a_part_that_the_checkpoint_lacks_is_named() -> None:
    with pytest.raises(StateError, match=r"no extra\.average"):
        resume(given_extra({"average": torch.nn.Linear(1, 1)}), saved(given_extra({})))


def test_numbers_in_a_dict_that_the_program_has_not_kept_are_refused() -> None:
    with pytest.raises(StateError, match="has the value of best, but the program keeps no reference") as refused:
        given_extra({"log": [1], "best": 0.5}).require_kept("extra", besides=0)
    assert 'read and write extra["best"]' in refused.value.hint
    given_extra({"log": [1], "numbers": torch.zeros(1)}).require_kept("extra", besides=0)
    given_extra({}).require_kept("extra", besides=0)


@pytest.mark.parametrize("keep", [lambda extra: extra, lambda extra: [extra], lambda extra: lambda: extra["best"]])
def test_numbers_in_a_dict_that_the_program_has_kept_are_saved(keep: Callable[[Any], Any]) -> None:
    kept = keep({"best": 0.5})
    found = kept[0] if isinstance(kept, list) else kept if isinstance(kept, dict) else kept.__closure__[0].cell_contents
    given = given_extra(found)
    del found
    given.require_kept("extra", besides=0)


# Generators


GENERATORS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "torch": (lambda: torch.Generator().manual_seed(1), lambda g: torch.rand(2, generator=g).tolist()),
    "python": (lambda: random.Random(1), lambda g: [g.random(), g.gauss(0, 1)]),
    "numpy": (lambda: numpy.random.default_rng(1), lambda g: g.normal(size=2).tolist()),
    "old numpy": (lambda: numpy.random.RandomState(1), lambda g: g.normal(size=3).tolist()),
}


@pytest.mark.parametrize("kind", GENERATORS)
def test_a_generator_in_extra_goes_on_where_it_was(kind: str) -> None:
    make, draw = GENERATORS[kind]
    saving, resuming = (
        {"numbers": make(), "more": {"numbers": make()}},
        {"numbers": make(), "more": {"numbers": make()}},
    )
    draw(saving["numbers"])
    state = saved(given_extra(saving))
    wanted = draw(saving["numbers"]), draw(saving["more"]["numbers"])
    numbers = resuming["numbers"]
    resume(given_extra(resuming), state)
    assert resuming["numbers"] is numbers
    assert (draw(numbers), draw(resuming["more"]["numbers"])) == wanted


@pytest.mark.parametrize("kind", GENERATORS)
def test_the_state_of_another_kind_of_generator_is_refused(kind: str) -> None:
    others = [make() for other, (make, _) in GENERATORS.items() if other != kind]
    for other in others:
        with pytest.raises(StateError, match=r"no state for the .* at extra\.numbers"):
            resume(given_extra({"numbers": GENERATORS[kind][0]()}), saved(given_extra({"numbers": other})))
