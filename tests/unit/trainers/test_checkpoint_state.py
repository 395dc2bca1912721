"""State to JSON and tensors and back, and whole checkpoints through the folder."""

import json
import random
import struct
from collections import Counter, OrderedDict, deque

import numpy
import pytest
import torch

from trainers.checkpoint import store
from trainers.checkpoint.manifest import ManifestName
from trainers.checkpoint.reader import load, load_newest, weights_hash
from trainers.checkpoint.state import Encoder, capture, decode, restore, tensor_bytes
from trainers.checkpoint.writer import save
from trainers.errors import DamagedCheckpoint, StateError
from trainers.loop.rng import capture_rng, restore_rng

JOB = "job-1"


def round_trip(value):
    encoder = Encoder()
    node = json.loads(json.dumps(encoder.encode(value, "x"), allow_nan=False))
    return decode(node, [tensor.contiguous() for _, tensor in encoder.tensors])  # as they are stored


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        2**80,
        -0.0,
        0.1,
        5e-324,
        "text \ud7ff \u0000",
        [1, [2.5, None]],
        (1, (2, "a")),
        {"a": {"b": ()}},
        {0: {"step": 1}, "0": 2, (1, 2): 3, None: 4, "$": 5},
        {"$": "tensor", "v": 0},
        {1, 2},
        frozenset({3}),
        deque([1, 2]),
        Counter({5: 1, 7: 2}),
        OrderedDict([("b", 1), ("a", 2)]),
        b"\x00\xff",
        b"",
        bytearray(b"ab"),
    ],
    ids=repr,
)
def test_plain_values_come_back_equal_and_of_the_same_type(value):
    back = round_trip(value)
    assert back == value
    assert repr(back) == repr(value)


@pytest.mark.parametrize("bits", [0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000001, 0xFFF8000000000000])
def test_floats_that_json_lacks_keep_their_bits(bits):
    value = struct.unpack("<d", bits.to_bytes(8, "little"))[0]
    assert struct.pack("<d", round_trip(value)) == bits.to_bytes(8, "little")


DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.uint8]
DTYPES += [torch.bool, torch.complex64, torch.float8_e4m3fn]


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (5, 7)])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensors_of_every_kind_survive_the_folder(tmp_path, dtype, shape):
    tensor = (torch.rand(shape) * 10 - 5).to(dtype)
    loaded = stored(tmp_path, {"t": tensor, "turned": (torch.rand(4, 6) * 9).to(dtype).t()})
    assert loaded["t"].dtype is dtype
    assert loaded["t"].shape == shape
    assert bytes(tensor_bytes(loaded["t"])) == bytes(tensor_bytes(tensor))
    assert loaded["turned"].shape == (6, 4)


@pytest.mark.parametrize("array", [numpy.arange(6, dtype="u4").reshape(2, 3), numpy.zeros((0, 2)), numpy.array(3.5)])
def test_numpy_arrays_survive(array):
    back = round_trip(array)
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert (back == array).all()
    assert type(round_trip(numpy.float64(0.1))) is numpy.float64


class Opaque:
    pass


@pytest.mark.parametrize("coalesced", [True, False])
def test_a_sparse_tensor_round_trips(coalesced):
    sparse = torch.sparse_coo_tensor([[2, 0, 2]], torch.rand(3, 2), (4, 2), check_invariants=True)
    sparse = sparse.coalesce() if coalesced else sparse
    back = round_trip(sparse)
    assert back.is_coalesced() == coalesced
    assert torch.equal(back._indices(), sparse._indices())
    assert torch.equal(back._values(), sparse._values())
    assert back.shape == sparse.shape


@pytest.mark.parametrize(
    "tensor",
    [
        torch.rand(3, 5).t(),
        torch.rand(2, 3, 4, 4).to(memory_format=torch.channels_last),
        torch.rand(6, 4)[::2, 1:3],
        torch.rand(4, 4)[:, 0],
    ],
)
def test_numbers_come_back_in_the_order_in_memory_that_they_had(tensor):
    back, same = round_trip([tensor, tensor])
    assert torch.equal(back, tensor)
    assert back.stride() == tensor.stride()
    assert same is back
    assert round_trip(numpy.zeros((2, 3), order="F")).flags.f_contiguous


def test_what_repeats_numbers_comes_back_with_one_for_each():
    back = round_trip(torch.arange(3).unfold(0, 2, 1))
    assert back.tolist() == [[0, 1], [1, 2]]
    assert back.is_contiguous()


def test_the_size_of_a_tensor_stays_one():
    assert type(round_trip(torch.zeros(2, 3).shape)) is torch.Size


@pytest.mark.parametrize(
    ("array", "why"),
    [
        (numpy.ma.masked_array([1, 2], [True, False]), "MaskedArray: only plain arrays can be saved"),
        (numpy.zeros(1, [("a", "i4")]).view(numpy.recarray), "recarray: only plain arrays"),
        (numpy.zeros(1, [("a", "i4")]), "array of .*i4.*: only arrays of numbers"),
        (numpy.array(["a"]), "array of <U1: only arrays of numbers"),
        (numpy.array([None]), "array of object: only arrays of numbers"),
    ],
)
def test_arrays_of_which_something_would_be_lost_are_refused(array, why):
    with pytest.raises(StateError, match=f"extra.thing is an? .*{why}"):
        Encoder().encode({"thing": array}, "extra")


@pytest.mark.parametrize("value", [{torch.zeros(1): 1}, {torch.zeros(1)}, frozenset([(1, Opaque)]), {"a": {Opaque: 1}}])
def test_what_a_copy_of_its_key_would_not_find_is_refused(value):
    with pytest.raises(StateError, match="as key or member, which a resume cannot find again"):
        Encoder().encode(value, "extra")


@pytest.mark.parametrize("value", [Opaque(), 1 + 2j, len, type("D", (dict,), {})()])
def test_what_only_pickle_could_save_is_refused_by_name(value):
    with pytest.raises(StateError, match=r"extra\.thing.* pickle"):
        Encoder().encode({"thing": value}, "extra")


@pytest.mark.filterwarnings("ignore:.*deprecated")
def test_quantized_and_meta_tensors_are_refused_by_name():
    with pytest.raises(StateError, match=r"model\.w .*qint8"):
        Encoder().encode({"w": torch.quantize_per_tensor(torch.eye(2), 0.1, 0, torch.qint8)}, "model")
    with pytest.raises(StateError, match=r"model\.w is on the meta device"):
        Encoder().encode({"w": torch.empty(2, device="meta")}, "model")


def stored(root, items, generation=1, step=1):
    store.prepare(root, JOB)
    if store.fence(root, JOB) is None:
        store.write_fence(root, JOB, generation, None)
    name = save(root, JOB, ManifestName(generation, step, 0), items=items, position=None, keep=3)
    return load(root, JOB, name).items


def test_tied_tensors_are_stored_once(tmp_path):
    model = torch.nn.Sequential(torch.nn.Embedding(5, 3), torch.nn.Linear(3, 5, bias=False))
    model[1].weight = model[0].weight
    items = stored(tmp_path, {"model": model.state_dict()})
    manifest = store.read_manifest(tmp_path, JOB, ManifestName(1, 1, 0))
    assert [tensor.name for tensor in manifest.tensors] == ["model.0.weight"]
    assert items["model"]["1.weight"] is items["model"]["0.weight"]


def test_overlapping_views_are_not_taken_for_tied(tmp_path):
    base = torch.arange(6.0)
    items = stored(tmp_path, {"a": base, "b": base[:3], "c": base.view(2, 3), "d": base.view(torch.int32)})
    assert items["b"].tolist() == [0, 1, 2]
    assert items["c"].shape == (2, 3)
    assert items["d"].dtype is torch.int32


def test_tensors_larger_than_a_chunk_are_cut_and_small_ones_share(tmp_path):
    big = torch.randint(0, 255, (store.CHUNK_BYTES * 2 + 77,), dtype=torch.uint8)
    small = {str(n): torch.rand(10) for n in range(50)}
    items = stored(tmp_path, {"small": small, "big": big, "after": torch.ones(3)})
    assert torch.equal(items["big"], big)
    assert all(torch.equal(items["small"][key], small[key]) for key in small)
    sizes = [path.stat().st_size for path in (tmp_path / JOB / "chunks").iterdir()]
    assert len(sizes) == 4
    assert max(sizes) == store.CHUNK_BYTES


def test_unchanged_tensors_cost_nothing_in_the_next_checkpoint(tmp_path):
    frozen = torch.rand(1000)
    stored(tmp_path, {"model": {"frozen": frozen}})
    stored(tmp_path, {"model": {"frozen": frozen}}, step=2)
    assert len(list((tmp_path / JOB / "chunks").iterdir())) == 1


def test_versions_of_modules_survive():
    state = torch.nn.BatchNorm1d(2).state_dict()
    back = round_trip(state)
    assert back._metadata == state._metadata  # type: ignore[attr-defined]
    torch.nn.BatchNorm1d(2).load_state_dict(back)


def test_random_numbers_go_on_where_they_were(tmp_path):
    items = stored(tmp_path, {"rng": capture_rng()})

    def draw():
        return random.random(), random.gauss(0, 1), numpy.random.rand(), numpy.random.randn(), torch.rand(3).tolist()

    random.gauss(0, 1)
    numpy.random.randn()
    state = stored(tmp_path, {"rng": capture_rng()}, step=2)["rng"]
    wanted = draw()
    restore_rng(items["rng"])
    assert draw() != wanted
    restore_rng(state)
    assert draw() == wanted


def test_random_state_of_devices_that_are_not_here_is_refused():
    state = {**capture_rng(), "cuda": [torch.zeros(16, dtype=torch.uint8)] * (torch.cuda.device_count() + 1)}
    with pytest.raises(StateError, match="as many devices"):
        restore_rng(state)


def test_the_weights_hash_sees_every_bit_and_no_order():
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    before = weights_hash(model)
    assert before == weights_hash(model)
    with torch.no_grad():
        model.bias.view(torch.int32)[0] ^= 1
    assert weights_hash(model) != before
    assert weights_hash({"a": model, "b": torch.nn.Linear(1, 1)}) != weights_hash({"a": model})


def test_the_newest_whole_checkpoint_is_loaded_and_the_damaged_one_named(tmp_path, caplog):
    for step in (1, 2, 3):
        stored(tmp_path, {"model": {"w": torch.full((4,), float(step))}}, step=step)
    (chunk,) = store.read_manifest(tmp_path, JOB, ManifestName(1, 3, 0)).chunks()
    (tmp_path / JOB / "chunks" / chunk).unlink()
    loaded = load_newest(tmp_path, JOB, 1)
    assert loaded.name.step == 2
    assert loaded.items["model"]["w"].tolist() == [2, 2, 2, 2]
    assert "1-3-0: model.w" in caplog.text
    assert load_newest(tmp_path, JOB, 1, start="1-1-0").name.step == 1
    assert load_newest(tmp_path, JOB, 1, start="1-3-0").name.step == 2


def test_when_all_are_damaged_training_does_not_silently_start_over(tmp_path):
    assert load_newest(tmp_path, JOB, 1) is None
    stored(tmp_path, {"model": {"w": torch.ones(4)}})
    for chunk in (tmp_path / JOB / "chunks").iterdir():
        chunk.write_bytes(b"")
    with pytest.raises(DamagedCheckpoint, match="truncated or altered"):
        load_newest(tmp_path, JOB, 1)


def test_a_bounded_queue_stays_bounded() -> None:
    for queue in (deque([1, 2], maxlen=3), deque([1])):
        encoder = Encoder()
        found = decode(json.loads(json.dumps(encoder.encode(queue, "queue"))), [])
        assert (found, found.maxlen) == (queue, queue.maxlen)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float64])
def test_what_an_optimizer_keeps_in_another_type_than_its_parameter_is_not_rounded(kind: torch.dtype) -> None:
    def made() -> tuple[torch.nn.Parameter, torch.optim.Optimizer]:
        parameter = torch.nn.Parameter(torch.ones(3, dtype=kind))
        return parameter, torch.optim.NAdam([parameter], lr=0.1)

    parameter, optimizer = made()
    for _ in range(3):
        parameter.grad = torch.full_like(parameter, 0.3)
        optimizer.step()
    optimizer.state[parameter]["master"] = torch.full((3,), 1 / 3)
    again, restored = made()
    restore(restored, capture(optimizer), "optimizer")
    for name, value in optimizer.state[parameter].items():
        assert restored.state[again][name].dtype == value.dtype, name
        assert torch.equal(restored.state[again][name], value), name
