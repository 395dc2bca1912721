"""Dataclasses as JSON and back: exact, and strict about everything else."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import StoreError, UnreadableRowError
from orchestrator.model import (
    Alternative,
    CheckpointSpec,
    DataSource,
    Estimate,
    GpuRequest,
    JobSpec,
    Objective,
    OutputSpec,
    Placement,
    Plan,
    Reproducible,
    Resources,
    TrainSpec,
    Where,
)
from orchestrator.store import Codec, CodecError, decode, encode
from providers.offer import CapacityType

WORDS = st.text(max_size=8)
INTS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False)
SCALARS = st.none() | st.booleans() | INTS | FLOATS | WORDS
ARGS = st.dictionaries(WORDS, SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(WORDS, SCALARS, max_size=3))
LABELS = st.dictionaries(WORDS, WORDS, max_size=3)


def tuples(of: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(of, max_size=3).map(tuple)


SPECS = st.builds(
    JobSpec,
    name=WORDS,
    train=st.builds(
        TrainSpec,
        entry=st.none() | WORDS,
        script=st.none() | WORDS,
        args=ARGS,
        workdir=WORDS,
        env=LABELS,
        secrets=tuples(WORDS),
        steps=st.none() | INTS,
        epochs=st.none() | INTS,
    ),
    labels=LABELS,
    data=tuples(st.builds(DataSource, WORDS, WORDS, st.none() | INTS)),
    outputs=tuples(st.builds(OutputSpec, WORDS, st.sampled_from(["all", "last", "best"]))),
    resources=st.builds(
        Resources,
        gpus=tuples(st.builds(GpuRequest, WORDS, INTS)),
        gpu_memory_bytes=st.none() | st.tuples(INTS, st.none() | INTS),
        cpu=st.none() | INTS,
    ),
    objective=st.builds(Objective, FLOATS, FLOATS | INTS),
    deadline_s=st.none() | FLOATS | INTS,
    budget_nano_usd=st.none() | INTS,
    capacity=tuples(st.sampled_from(CapacityType)),
    where=st.builds(Where, tuples(WORDS), tuples(WORDS)),
    checkpoint=st.builds(CheckpointSpec, st.none() | WORDS, INTS, FLOATS),
    reproducible=st.builds(Reproducible, INTS, st.booleans(), INTS),
    standby=st.sampled_from(["none", "warm"]),
    probe=st.booleans(),
)
MAYBE_INT, MAYBE_FLOAT = st.none() | INTS, st.none() | FLOATS
ALTERNATIVES = st.builds(
    Alternative,
    WORDS,
    INTS,
    FLOATS,
    MAYBE_FLOAT,
    MAYBE_FLOAT,
    MAYBE_INT,
    MAYBE_INT,
    MAYBE_INT,
    MAYBE_FLOAT,
    st.booleans(),
    WORDS,
)
PLANS = st.builds(
    Plan,
    WORDS,
    INTS,
    WORDS,
    st.booleans(),
    tuples(
        st.builds(
            Placement,
            job_id=WORDS,
            action=st.sampled_from(["place", "stay", "move", "wait", "none"]),
            offer_id=st.none() | WORDS,
            reason=WORDS,
            cost_nano_usd=MAYBE_INT,
            finish_at_ms=MAYBE_INT,
            saving_nano_usd=INTS,
            alternatives=tuples(ALTERNATIVES),
            baseline=st.none() | ALTERNATIVES,
            throughput=st.none() | st.builds(Estimate, FLOATS, FLOATS, FLOATS, WORDS),
        )
    ),
)
SPEC = Codec(JobSpec, "job-spec", 1)
PLAN = Codec(Plan, "plan", 1)


@settings(max_examples=60, deadline=None)
@given(SPECS)
def test_every_spec_survives(spec: JobSpec) -> None:
    again = SPEC.loads(SPEC.dumps(spec))
    assert again == spec
    assert repr(again) == repr(spec)  # also 1 against 1.0 against True, -0.0, tuples against lists


@settings(max_examples=60, deadline=None)
@given(PLANS)
def test_every_plan_survives(plan: Plan) -> None:
    again = PLAN.loads(PLAN.dumps(plan))
    assert again == plan
    assert repr(again) == repr(plan)


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


def test_a_missing_field_takes_its_default_so_that_old_documents_stay_readable() -> None:
    assert decode(Whole, {"name": "x"}) == Whole("x")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "document: missing field 'name'"),
        ([], "document: [] is no dict"),
        ({"name": 1}, "name: 1 is no str"),
        ({"name": "x", "nmae": 1}, "document: unknown field 'nmae'"),
        ({"name": "x", "parts": [{}, {"size": "big"}]}, "parts[1].size: 'big' is no int"),
        ({"name": "x", "parts": [{"size": True}]}, "parts[0].size: True is no int"),
        ({"name": "x", "parts": [{"size": 1.0}]}, "parts[0].size: 1.0 is no int"),
        ({"name": "x", "pair": [1]}, "pair: needs 2 elements, has 1"),
        ({"name": "x", "pair": [1, 2]}, "pair[1]: 2 is no str"),
        ({"name": "x", "ratio": "1"}, "ratio: '1' is no float"),
        ({"name": "x", "colour": "blue"}, "colour: 'blue' is not a valid Colour"),
        ({"name": "x", "mode": "medium"}, "mode: 'medium' is none of fast, slow"),
        ({"name": "x", "extra": {"a": "b"}}, "extra['a']: 'b' is no int | None"),
        ({"name": "x", "tags": "no"}, "tags: 'no' is no list[str] | None"),
    ],
)
def test_whatever_does_not_fit_is_refused_with_its_place(document: Any, message: str) -> None:
    with pytest.raises(CodecError) as caught:
        decode(Whole, document)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Whole("x", extra={"a": object()}), "extra['a']: object has no JSON form"),  # type: ignore[dict-item]
        (Whole("x", parts=(Part(numpy.int64(3)),)), "parts[0].size: int64 has no JSON form"),  # type: ignore[arg-type]
        ({1: "a"}, "document: 1 is no text, so it cannot be a key"),
        ({"a": {1, 2}}, "['a']: set has no JSON form"),
    ],
)
def test_what_json_cannot_carry_is_refused_with_its_place(value: Any, message: str) -> None:
    with pytest.raises(CodecError) as caught:
        encode(value)
    assert str(caught.value) == message


def test_a_float_of_numpy_is_a_float() -> None:
    assert json.dumps(encode(Whole("x", ratio=numpy.float64(0.1)))).count("0.1") == 1


def test_a_type_that_json_cannot_carry_is_a_mistake_of_ours() -> None:
    with pytest.raises(TypeError, match="no codec"):
        decode(set, [])


def test_what_is_not_a_number_stays_so() -> None:
    codec = Codec(Estimate, "estimate", 1)
    assert math.isnan(codec.loads(codec.dumps(Estimate(math.nan, 0, 1, ""))).value)


def test_a_document_says_what_it_is() -> None:
    codec = Codec(Whole, "whole", 3)
    text = codec.dumps(Whole("x"))
    assert json.loads(text)["schema"] == "whole/3"
    with pytest.raises(StoreError, match="is no part"):
        Codec(Part, "part", 3).loads(text)
    with pytest.raises(UnreadableRowError, match="newer version"):
        Codec(Whole, "whole", 2).loads(text)
    assert Codec(Whole, "whole", 4).loads(text) == Whole("x")


@pytest.mark.parametrize("text", ["", "garbage", "[]", "{}", '{"schema":"whole/x"}', '{"schema":"whole/1","name":1}'])
def test_a_document_that_cannot_be_read_is_a_store_error_with_a_remedy(text: str) -> None:
    with pytest.raises(StoreError, match="cannot be read") as caught:
        Codec(Whole, "whole", 1).loads(text)
    assert "restore BACKUP" in caught.value.hint
