"""Dataclasses as JSON and back: exact, and strict about everything else."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Literal

import numpy
import pytest

from orchestrator.formats.codec import Codec, CodecError, decode, encode
from orchestrator.model import Estimate


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Part:
    size: int = 1


@dataclass(frozen=True)
class Whole:
    name: str
    parts: tuple[Part, ...] = ()
    pair: tuple[int, str] = (0, "")
    ratio: float = 0.0
    colour: Colour = Colour.RED
    mode: Literal["fast", "slow"] = "fast"
    extra: Mapping[str, int | None] | None = None
    tags: list[str] | None = None
    named: Mapping[str, Part] | None = None

    def __post_init__(self) -> None:
        if self.name == "nobody":
            raise ValueError("that is no name")


WHOLE = Codec(Whole, "whole/3")


def test_a_missing_field_takes_its_default_so_that_old_documents_stay_readable() -> None:
    assert decode(Whole, {"name": "x"}) == Whole("x")


@pytest.mark.parametrize(
    ("document", "path", "words"),
    [
        ({}, "", "missing required field `name`"),
        ([], "", "got `array`"),
        ({"name": 1}, "name", "expected `str`, got `int`"),
        ({"name": None}, "name", "got `null`"),
        ({"name": "nobody"}, "", "that is no name"),
        ({"name": "x", "ratio": "\ud800"}, "", "surrogates not allowed"),
        ({"name": "x", "colour": "\ud800"}, "", "surrogates not allowed"),
        ({"name": "x", "nmae": 1}, "nmae", "unknown field"),
        ({"name": "x", "parts": [{}, {"siez": 1}]}, "parts[1].siez", "unknown field"),
        ({"name": "x", "named": {"a": {"siez": 1}}}, "named.a.siez", "unknown field"),
        ({"name": "x", "parts": [{}, {"size": "big"}]}, "parts[1].size", "expected `int`, got `str`"),
        ({"name": "x", "parts": [{"size": "7"}]}, "parts[0].size", "expected `int`, got `str`"),
        ({"name": "x", "parts": [{"size": True}]}, "parts[0].size", "expected `int`, got `bool`"),
        ({"name": "x", "parts": [{"size": 1.0}]}, "parts[0].size", "expected `int`, got `float`"),
        ({"name": "x", "pair": [1]}, "pair", "length 2"),
        ({"name": "x", "pair": [1, 2]}, "pair[1]", "expected `str`, got `int`"),
        ({"name": "x", "ratio": "1"}, "ratio", "expected `float`, got `str`"),
        ({"name": "x", "ratio": True}, "ratio", "got `bool`"),
        ({"name": "x", "colour": "blue"}, "colour", "'blue'"),
        ({"name": "x", "mode": "medium"}, "mode", "'medium'"),
        ({"name": "x", "extra": {"a": "b"}}, "extra[...]", "expected `int | null`, got `str`"),
        ({"name": "x", "tags": "no"}, "tags", "got `str`"),
    ],
)
def test_whatever_does_not_fit_is_refused_with_its_place(document: Any, path: str, words: str) -> None:
    with pytest.raises(CodecError) as caught:
        decode(Whole, document)
    assert caught.value.path == path
    assert words in str(caught.value)


@pytest.mark.parametrize("value", [object(), {1, 2}.__iter__(), numpy.int64(3), {("a", "b"): 1}, b"\xff".__iter__()])
def test_what_json_cannot_carry_is_refused(value: Any) -> None:
    with pytest.raises(CodecError, match="has no JSON form"):
        WHOLE.dumps(Whole("x", extra={"a": value}))


def test_a_float_of_numpy_is_a_float_and_a_mapping_that_cannot_be_changed_is_a_mapping() -> None:
    value = Whole("x", ratio=numpy.float64(0.1), extra=MappingProxyType({"a": 1}))
    assert WHOLE.loads(WHOLE.dumps(value)) == Whole("x", ratio=0.1, extra={"a": 1})


def test_an_int_in_the_place_of_a_float_comes_back_as_the_equal_float() -> None:
    again = WHOLE.loads(WHOLE.dumps(Whole("x", ratio=3600)))
    assert again == Whole("x", ratio=3600)
    assert type(again.ratio) is float


def test_what_is_not_a_number_stays_so() -> None:
    codec = Codec(Estimate, "estimate/1")
    assert math.isnan(codec.loads(codec.dumps(Estimate(math.nan, 0, 1, ""))).value)


def test_a_document_says_what_it_is() -> None:
    text = WHOLE.dumps(Whole("x"))
    assert json.loads(text)["schema"] == "whole/3"
    assert Codec(Whole, "whole/4").loads(text) == Whole("x")
    for other in ("part/3", "hole/3", "whole/v3"):
        with pytest.raises(CodecError, match=f"not a {other} document"):
            Codec(Whole, other).loads(text)
    with pytest.raises(CodecError, match="newer version"):
        Codec(Whole, "whole/2").loads(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "garbage",
        "[]",
        "{}",
        b"\xff",
        None,
        '{"schema":"whole/x"}',
        '{"schema":"whole/"}',
        '{"schema":"whole/' + "9" * 5000 + '","name":"x"}',
        '{"schema":3,"name":"x"}',
        '{"schema":"whole/1","name":1}',
        '{"schema":"whole/1","name":"x","tags":' + "[" * 10_000 + "]" * 10_000 + "}",
        '{"schema":"whole/1","name":"x","parts":[{"size":' + "9" * 5000 + "}]}",
    ],
    ids=range(13),
)
def test_a_text_of_another_form_is_refused(text: Any) -> None:
    with pytest.raises(CodecError):
        WHOLE.loads(text)


def test_encoding_leaves_plain_values() -> None:
    assert json.loads(json.dumps(encode(Whole("x", parts=(Part(2),), colour=Colour.RED))))["parts"] == [{"size": 2}]
