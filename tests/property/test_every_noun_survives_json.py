"""Every public frozen dataclass of values is itself again after a way through JSON: found by walking the packages."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import json
import pkgutil
import types
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import orchestrator
from orchestrator.formats.codec import Codec, CodecError, decode, encode
from orchestrator.formats.documents import codec_of, to_json
from orchestrator.perf import PairMisfit, PairObservation, Work
from orchestrator.perf.pairings import Pairing
from orchestrator.services.caller import Caller
from providers.offer import Offer

ROOMS = ("orchestrator.model.", "orchestrator.ledger.", "orchestrator.store.market.", "orchestrator.store.queries.")
"""What these hold, what a module `views` holds, and whatever has a `kind` is all of values and must have a JSON form.
Elsewhere a dataclass can hold arrays, clocks or functions; one that does not is tested just as well."""
FEW = settings(max_examples=8, suppress_health_check=list(HealthCheck))
TEXT = st.text(st.characters(exclude_categories=()), max_size=5)  # with the lone surrogates that file names can have
INTS = st.integers(-(2**70), 2**70) | st.sampled_from([2**53 + 1, -(2**63), 0, 1])
FLOATS = st.floats() | st.sampled_from([0.1 + 0.2, -0.0, 5e-324, 1e16, 3.0])
SCALARS = st.none() | st.booleans() | INTS | FLOATS | TEXT
JSON = SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(TEXT, SCALARS, max_size=2)
MIDDLING = {int: st.integers(1, 2**60), float: st.floats(0.5, 1e6), str: st.sampled_from(["a", "ada", "vision-2"])}
"""For a dataclass that checks itself: what its fields mostly hold. One that wants more has a strategy in OF_TYPE."""
GPUS = st.tuples(st.sampled_from(["T4", "V100"]), st.integers(1, 8))
OF_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    int: INTS,
    float: FLOATS,
    bool: st.booleans(),
    type(None): st.none(),
    Any: JSON,
    object: JSON,
    Caller: st.builds(Caller, *[st.from_regex(r"[a-z][a-z0-9-]{0,9}", fullmatch=True)] * 2),
    Pairing: st.builds(Pairing, *[MIDDLING[str]] * 4, GPUS, *[MIDDLING[float]] * 3),
    PairObservation: st.builds(
        PairObservation, st.just("a"), st.just("b"), *map(MIDDLING.get, (str, int, float, float, int, int, int))
    ),
    PairMisfit: st.builds(PairMisfit, st.just("a"), st.just("b"), *map(MIDDLING.get, (str, int, int))),
    Work: st.builds(Work, st.floats(1e6, 1e18), *map(MIDDLING.get, (float, float, int, int, int, int, float))),
}


class NoValueError(Exception):
    """A type that holds something else than values."""


@cache
def values(type_: Any) -> st.SearchStrategy[Any]:
    """Anything of a type. Raises NoValueError."""
    if type_ in OF_TYPE:
        return OF_TYPE[type_]
    origin, args = typing.get_origin(type_), typing.get_args(type_)
    if origin in (typing.Union, types.UnionType):
        return st.one_of([values(each) for each in args])
    if origin is typing.Literal:
        return st.sampled_from(args)
    if origin is tuple:
        if args[1:] == (...,):
            return st.lists(values(args[0]), max_size=2).map(tuple)
        return st.tuples(*map(values, args))
    if origin is list:  # a set has no order, so its text would differ from process to process
        return st.lists(values(args[0]), max_size=2)
    if isinstance(origin, type) and issubclass(origin, Mapping) and typing.get_origin(args[0]) is not tuple:
        return st.dictionaries(values(args[0]), values(args[1]), max_size=2)
    if isinstance(type_, type) and issubclass(type_, enum.Enum):
        return st.sampled_from(type_)
    if isinstance(type_, type) and dataclasses.is_dataclass(type_):
        try:
            hints = typing.get_type_hints(type_)
        except NameError as error:  # a type that is imported for the type checker only
            raise NoValueError(f"{type_}: {error}") from error
        known = MIDDLING if hasattr(type_, "__post_init__") else {}
        of_fields = {each.name: hints[each.name] for each in dataclasses.fields(type_)}
        return st.builds(type_, **{name: known[of] if of in known else values(of) for name, of in of_fields.items()})
    raise NoValueError(f"{type_} is no type of values")


def dataclasses_of(package: types.ModuleType) -> Iterator[type]:
    """All public frozen ones, each where it is defined."""
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if ".revisions." in found.name:
            continue
        module = importlib.import_module(found.name)
        for name, value in vars(module).items():
            if isinstance(value, type) and value.__module__ == found.name and not name.startswith("_"):
                parameters = getattr(value, "__dataclass_params__", None)
                if parameters is not None and parameters.frozen:
                    yield value


def must_be_of_values(type_: type) -> bool:
    return type_.__module__.startswith(ROOMS) or type_.__module__.endswith(".views") or is_a_view(type_)


def is_a_view(type_: type) -> bool:
    """A field of that name is no word on the class."""
    return isinstance(getattr(type_, "kind", None), str)


def nouns() -> Iterator[type]:
    for each in dataclasses_of(orchestrator):
        try:
            values(each)
        except NoValueError:
            if must_be_of_values(each):
                raise
        else:
            yield each


NOUNS = sorted(nouns(), key=lambda each: f"{each.__module__}.{each.__qualname__}")
VIEWS = [each for each in NOUNS if is_a_view(each)]


def test_the_nouns_are_found() -> None:
    assert {
        "Job",
        "Plan",
        "Run",
        "Entry",
        "Event",
        "Comparison",
        "ReportView",
        "PlanView",
        "Command",
        "Claim",
        "Demand",
    } <= {each.__name__ for each in NOUNS}


@pytest.mark.parametrize("noun", [*NOUNS, Offer], ids=lambda each: f"{each.__module__}.{each.__qualname__}")
def test_every_noun_is_itself_again(noun: type) -> None:
    codec: Codec[Any] = Codec(noun, "noun/1")

    @FEW
    @given(values(noun))
    def is_itself_again(value: Any) -> None:
        text = codec.dumps(value)
        again = codec.loads(text)
        assert type(again) is noun
        assert codec.dumps(again) == text  # so also 1 and 1.0 and True, -0.0, NaN, and the order of a mapping
        assert repr(again) == repr(value)  # and tuples and lists, enums and text

    is_itself_again()


@pytest.mark.parametrize("view", VIEWS, ids=lambda each: each.kind)
def test_every_view_is_read_back_from_its_document(view: Any) -> None:
    @FEW
    @given(values(view))
    def is_read_back(value: Any) -> None:
        document = to_json(value)
        assert document["schema"] == f"tradewind/{view.kind}/v1"
        assert repr(codec_of(view).loads(json.dumps(document))) == repr(value)

    is_read_back()


@FEW
@given(st.data())
def test_an_unknown_field_is_refused_wherever_it_is(data: st.DataObject) -> None:
    noun = data.draw(st.sampled_from(NOUNS))
    document = json.loads(json.dumps(encode(data.draw(values(noun)))))
    document["zzz"] = 1
    with pytest.raises(CodecError, match="zzz"):
        decode(noun, document)
