"""A manifest whose hash is right may still be nonsense: it is damage, not a crash of the reader."""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import random
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.engine.jobs.checkpoints import FileCatalog
from trainers.checkpoint import store
from trainers.checkpoint.manifest import Box, Manifest, ManifestName, is_grid
from trainers.checkpoint.reader import load, load_newest
from trainers.checkpoint.retention import collect
from trainers.checkpoint.writer import save
from trainers.errors import DamagedCheckpoint, StateError

JOB = "job-1"
OLDER, NEWER = ManifestName(1, 5, 1), ManifestName(1, 6, 1)
STATE = {
    "model": {"weight": torch.arange(6.0).reshape(2, 3), "empty": torch.empty(0, 3), "flag": torch.tensor(True)},
    "rng": {"python": random.Random(1).getstate(), "numpy": numpy.random.RandomState(1).get_state(legacy=False)},
    "extra": {"count": Counter({5: 1}), "order": OrderedDict(a=1), "last": deque([1, 2]), "best": float("inf")},
    "more": {
        "raw": b"ab",
        "scalar": numpy.float64(0.5),
        "keys": {1: {2}, None: (3,)},
        "layer": torch.nn.Linear(1, 1).state_dict(),
    },
}
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(
        [0, 1, -1, 2, 3, 7, 2**31, 2**63, 10**18, 10**30, 0.5, "", "x", "float16", "complex128", "O", "V8"]
    ),
    st.sampled_from(["tensor", "array", "scalar", "float", "set", "dict", "ordered", "1-6-1", "../../etc/passwd"]),
    st.sampled_from([[], {}, [[]], [1, 2], {"$": "tensor"}, {"$": "what", "v": []}, {"$": "set", "v": [[], {}]}]),
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("forged")
    store.prepare(folder, JOB)
    store.write_fence(folder, JOB, 1, None)
    for name in (OLDER, NEWER):
        save(folder, JOB, name, items=STATE, position={"loader": {"epoch": 1}, "epochs_done": 0}, keep=9)
    return folder


@pytest.fixture(scope="module")
def genuine(root: Path) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(store.read_manifest(root, JOB, NEWER).to_bytes())
    del body["hash"]
    return body


def forge(root: Path, body: Any) -> None:
    text = json.dumps(body, separators=(",", ":")).encode()[:-1]
    raw = text + b',"hash":"' + hashlib.sha256(text).hexdigest().encode() + b'"}\n'
    (root / JOB / "manifests" / f"{NEWER}.json").write_bytes(raw)


def places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) in the tree."""
    for key in list(node) if isinstance(node, dict) else range(len(node)):
        yield node, key
        if isinstance(node[key], dict | list):
            yield from places(node[key])


@given(st.data())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_forged_manifest_is_read_or_passed_over(root: Path, genuine: dict[str, Any], data: st.DataObject) -> None:
    body = copy.deepcopy(genuine)
    del body["format"]  # one that is newer is refused by name (test_checkpoint_store.py)
    for _ in range(data.draw(st.integers(1, 2))):
        container, key = data.draw(st.sampled_from(list(places(body))))
        if isinstance(container, dict) and data.draw(st.booleans()):
            del container[key]
        else:
            container[key] = data.draw(VALUES)
    forge(root, {"format": data.draw(st.sampled_from([1, 2])), **body})
    try:
        load(root, JOB, NEWER)
        loaded = load_newest(root, JOB, 1)
        assert loaded is not None
    except DamagedCheckpoint:
        older = load_newest(root, JOB, 1)
        assert older is not None
        assert older.name == OLDER
    assert FileCatalog().newest(root, JOB, 2).found is not None
    assert store.newest_counting(root, JOB, 1, on_damage=lambda damage: None) is not None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"generation": 2}, "is not a chunk of generation 2"),
        ({"step": 7}, "belongs to 1-7-1"),
        ({"job": "job-2"}, "belongs to 1-6-1 of job-2"),
        ({"step": 10**30}, "is not a whole number from 0 to"),
        ({"step": True}, "is not a whole number from 0 to"),
        ({"attempt": -1}, "is not a whole number from 0 to"),
        ({"world_size": 0}, "is not a whole number from 1 to"),
        ({"items": []}, "a list instead of a dict"),
        ({"versions": {"torch": 2}}, "a int instead of a str"),
        ({"format": "1"}, "is not a whole number"),
        ({"about": {"loss": 10**400}}, "is not a finite number"),
        ({"about": {"saved_at": 1e308}}, "is not a time"),
        ({"about": {"saved_at": -1}}, "is not a time"),
    ],
)
def test_fields_are_checked_though_the_hash_is_right(
    root: Path, genuine: dict[str, Any], change: dict[str, Any], why: str
) -> None:
    forge(root, {**genuine, **change})
    with pytest.raises(DamagedCheckpoint, match=why):
        store.read_manifest(root, JOB, NEWER)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"dtype": "float16"}, "24 bytes do not fit float16 of shape"),
        ({"dtype": "float33"}, "this torch has no dtype float33"),
        ({"dtype": "__doc__"}, "is not a numeric type"),
        ({"shape": [2, 2]}, "has 24 bytes for 4 numbers"),
        ({"shape": [-2, -3]}, "is not a whole number from 0"),
        ({"shape": [10**17] * 400_000}, r"has 24 bytes for more than 10\*\*18 numbers"),
        ({"pieces": [["../../../etc/passwd", 0, 24]]}, "is not a chunk of generation 1"),
        ({"pieces": [["1-" + "0" * 32, 0, 24]]}, "is missing"),
        ({"pieces": [[None, 24, 0]]}, "a NoneType instead of a str"),
    ],
)
def test_tensors_are_checked_though_the_hash_is_right(
    root: Path, genuine: dict[str, Any], change: dict[str, Any], why: str
) -> None:
    body = copy.deepcopy(genuine)
    body["tensors"][0].update(change)
    forge(root, body)
    with pytest.raises(DamagedCheckpoint, match=why):
        load(root, JOB, NEWER)


@pytest.mark.parametrize(
    ("begin", "end", "why"),
    [
        (8, 8, "not a range within a chunk"),
        (24, 0, "not a range within a chunk"),
        (0, 2**40, "not a range within a chunk"),
    ],
)
def test_a_piece_must_lie_in_its_chunk(root: Path, genuine: dict[str, Any], begin: int, end: int, why: str) -> None:
    body = copy.deepcopy(genuine)
    body["tensors"][0]["pieces"][0][1:] = [begin, end]
    forge(root, body)
    with pytest.raises(DamagedCheckpoint, match=why):
        store.read_manifest(root, JOB, NEWER)


def test_a_piece_beyond_the_end_of_its_chunk_is_damage(root: Path, genuine: dict[str, Any]) -> None:
    body = copy.deepcopy(genuine)
    (piece,) = body["tensors"][0]["pieces"]
    body["tensors"][0]["pieces"] = [[piece[0], 4_000_000, 4_000_024]]
    forge(root, body)
    for read in (load, store.verify):
        with pytest.raises(DamagedCheckpoint, match="bytes, not 4000024"):
            read(root, JOB, NEWER)
    assert FileCatalog().find(root, JOB, str(NEWER)) is None


@pytest.mark.parametrize(
    "text", [b'{"format":1', b'{"format":NaN', b"{" + b'"a":[' * 30_000, b'{"format":' + b"9" * 9_999]
)
def test_what_is_no_json_is_damage(text: bytes) -> None:
    raw = text + b',"hash":"' + hashlib.sha256(text).hexdigest().encode() + b'"}\n'
    with pytest.raises(DamagedCheckpoint):
        Manifest.from_bytes(raw, "here")


def test_a_manifest_that_nobody_could_read_is_not_written(tmp_path: Path) -> None:
    store.prepare(tmp_path, JOB)
    store.write_fence(tmp_path, JOB, 1, None)
    with pytest.raises(StateError, match="keep large data in tensors"):
        store.commit(tmp_path, Manifest(JOB, OLDER, 1, "x" * 2**26, {}, (), {}))
    assert store.manifests(tmp_path, JOB) == []


def test_the_collector_passes_over_a_forged_manifest(root: Path, genuine: dict[str, Any]) -> None:
    forge(root, {**genuine, "tensors": None})
    collect(root, JOB, 1, keep=1)
    assert store.manifests(root, JOB) == [OLDER]
    store.verify(root, JOB, OLDER)


def grid(edges):
    """The boxes between these edges of each dimension."""
    spans = [[(low, high - low) for low, high in itertools.pairwise(of)] for of in edges]
    return [Box(tuple(low for low, _ in cell), tuple(size for _, size in cell)) for cell in itertools.product(*spans)]


@given(st.lists(st.sets(st.integers(1, 9), min_size=1, max_size=3), min_size=1, max_size=3), st.data())
def test_boxes_that_leave_a_gap_or_overlap_are_not_a_grid(edges: list[set[int]], data: st.DataObject) -> None:
    bounds = [[0, *sorted(of)] for of in edges]
    shape, boxes = tuple(of[-1] for of in bounds), grid(bounds)
    assert is_grid(shape, boxes)
    assert is_grid(shape, data.draw(st.permutations(boxes)))
    number, dimension = data.draw(st.integers(0, len(boxes) - 1)), data.draw(st.integers(0, len(shape) - 1))
    box, by = boxes[number], data.draw(st.sampled_from([-1, 1]))
    moved = [[*box.begin], [*box.lengths]]
    moved[data.draw(st.integers(0, 1))][dimension] += by
    broken = [*boxes[:number], Box(tuple(moved[0]), tuple(moved[1])), *boxes[number + 1 :]]
    assert not is_grid(shape, broken)
    assert not is_grid(shape, [*boxes, box])
    assert not is_grid(shape, boxes[:-1])


def test_divided_tensors_survive_the_round_trip_and_a_gap_is_damage(root: Path, genuine: dict[str, Any]) -> None:
    forge(root, genuine)
    manifest = store.read_manifest(root, JOB, NEWER)
    place, entry = next((n, each) for n, each in enumerate(manifest.tensors) if each.shape and each.shape[0] > 1)
    rows, inner = entry.shape[0], entry.shape[1:]
    first, second = Box((0,) * len(entry.shape), (1, *inner)), Box((1, *(0 for _ in inner)), (rows - 1, *inner))
    tensors = [*manifest.tensors]
    tensors[place] = replace(entry, boxes=(first, second))
    divided = replace(manifest, tensors=tuple(tensors))
    assert Manifest.from_bytes(divided.to_bytes(), "here") == divided
    before = load(root, JOB, NEWER).items
    forge(root, {**genuine, "tensors": json.loads(divided.to_bytes())["tensors"]})
    assert str(load(root, JOB, NEWER).items) == str(before)
    tensors[place] = replace(entry, boxes=(first, first))
    forge(root, {**genuine, "tensors": json.loads(replace(manifest, tensors=tuple(tensors)).to_bytes())["tensors"]})
    with pytest.raises(DamagedCheckpoint, match="do not divide it like a grid"):
        load(root, JOB, NEWER)
