"""A checkpoint of several ranks: equal state is stored once, and all parts are durable before the commit. Ranks are
threads here; tests/unit/trainers/test_several_ranks.py has real ones."""

import itertools
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.checkpoint import store
from trainers.checkpoint.manifest import Box, ManifestName
from trainers.checkpoint.planning import Slot, shares
from trainers.checkpoint.reader import load, load_newest
from trainers.checkpoint.together import save_together
from trainers.errors import DamagedCheckpoint, FencedError, PeerLost, StateError, StoreUnavailable
from trainers.loop.peers import steps_until_next

RANKS = 3
NAME = ManifestName(1, 7, 1)


class Connected:
    """One of several threads that exchange bytes."""

    def __init__(self, rank, said, barrier):
        self.rank, self.size = rank, len(said)
        self._said, self._barrier = said, barrier

    def exchange(self, data):
        try:
            self._said[self.rank] = data
            self._barrier.wait()
            heard = list(self._said)
            self._barrier.wait()
        except threading.BrokenBarrierError:
            raise PeerLost("a rank has ended") from None
        return heard

    def end(self):
        """As if the process had died."""
        self._barrier.abort()


def save_all(root, items, *, positions=None, prevented=None):
    """What each rank returned or raised. `prevented`: an exception of rank 1 when its part has been written."""
    barrier, said = threading.Barrier(RANKS, timeout=20), [b""] * RANKS

    def save(rank):
        peers = Connected(rank, said, barrier)

        def before_commit():
            if rank == 1 and prevented is not None:
                if isinstance(prevented, SystemExit):
                    peers.end()
                raise prevented

        position = {"batch": 3} if positions is None else positions[rank]
        try:
            return save_together(
                root,
                "job",
                NAME,
                peers=peers,
                items=items(rank),
                position=position,
                keep=2,
                before_commit=before_commit,
            )
        except BaseException as error:
            return error

    with ThreadPoolExecutor(RANKS) as pool:
        return list(pool.map(save, range(RANKS)))


@pytest.fixture
def root(tmp_path):
    store.prepare(tmp_path, "job")
    store.write_fence(tmp_path, "job", 1, None)
    return tmp_path


def state(rank):
    same = {f"layer{number}": torch.arange(5.0) + number for number in range(4)}
    return {
        "model": same | {"zeros": torch.zeros(3), "other zeros": torch.zeros(3)},
        "rng": {"torch": torch.full((16,), rank, dtype=torch.uint8), "python": rank},
    }


def test_each_rank_gets_its_own_state_back_and_what_is_equal_is_stored_once(root):
    assert save_all(root, state) == [NAME] * RANKS
    manifest = store.verify(root, "job", NAME)
    assert manifest.world_size == RANKS
    assert len(manifest.tensors) == 6 + RANKS
    assert all("model" not in part.get("items", {}) and "position" not in part for part in manifest.parts)
    writers = {tensor.pieces[0].chunk for tensor in manifest.tensors[:6]}
    assert len(writers) == RANKS, "the ranks share the work"
    for rank in range(RANKS):
        loaded = load(root, "job", NAME, rank)
        assert loaded.world_size == RANKS
        assert loaded.position == {"batch": 3}
        assert loaded.items["rng"]["python"] == rank
        assert loaded.items["rng"]["torch"].tolist() == [rank] * 16
        model = loaded.items["model"]
        assert all(torch.equal(tensor, state(rank)["model"][name]) for name, tensor in model.items())
        assert model["zeros"].data_ptr() != model["other zeros"].data_ptr()
    another = load(root, "job", NAME, RANKS, RANKS + 1)
    assert not another.own
    assert another.differing == {"rng"}
    assert another.items["rng"]["python"] == 0


def test_replicas_that_have_drifted_apart_are_each_read_into_their_own_memory(root):
    """They do if a learning rate differs by rank. On no rank may the parameters be those of another one."""
    assert save_all(root, lambda rank: {"model": {"weight": torch.full((4,), float(rank))}}) == [NAME] * RANKS
    for rank in range(RANKS + 1):
        weight = torch.full((4,), -1.0)
        loaded = load(root, "job", NAME, rank, RANKS, in_place={"model.weight": weight})
        assert loaded.items["model"]["weight"].data_ptr() == weight.data_ptr()
        assert weight.tolist() == [rank if rank < RANKS else 0.0] * 4


VALUES = st.lists(st.lists(st.integers(0, 2), min_size=RANKS, max_size=RANKS), min_size=1, max_size=4)


@settings(max_examples=30)
@given(VALUES, st.sets(st.integers(0, 3)), st.integers(1, RANKS + 1))
def test_law_whatever_ranks_have_in_common_each_gets_back_what_it_saved(values, in_place, ranks):
    """`values`: of each tensor, on each rank. Some are read into memory that the program has."""
    with tempfile.TemporaryDirectory() as folder:
        store.prepare(folder, "job")
        store.write_fence(folder, "job", 1, None)
        saved = save_all(
            folder, lambda rank: {"model": {f"t{n}": torch.full((2,), float(of[rank])) for n, of in enumerate(values)}}
        )
        assert saved == [NAME] * RANKS
        for rank in range(ranks):
            memory = {f"model.t{number}": torch.full((2,), -1.0) for number in in_place}
            loaded = load(folder, "job", NAME, rank, ranks, in_place=memory)
            own = {f"t{number}": float(of[rank if rank < RANKS else 0]) for number, of in enumerate(values)}
            assert {name: each.unique().tolist() for name, each in loaded.items["model"].items()} == {
                name: [value] for name, value in own.items()
            }
            for name, tensor in memory.items():
                known = own.get(name.removeprefix("model."))
                assert tensor.unique().tolist() == [-1.0 if known is None else known]


def test_positions_that_differ_are_kept_apart(root):
    save_all(root, state, positions=[{"read": rank * torch.ones(2)} for rank in range(RANKS)])
    for rank in range(RANKS):
        assert load(root, "job", NAME, rank).position["read"].tolist() == [rank, rank]


def test_rank_0_finds_damage_in_the_parts_of_the_others(root):
    save_all(root, state)
    manifest = store.read_manifest(root, "job", NAME)
    place = manifest.part(2).tensors[-1]
    (piece,) = manifest.tensors[place].pieces
    (root / "job" / "chunks" / piece.chunk).write_bytes(b"other bytes")
    with pytest.raises(DamagedCheckpoint, match="truncated or altered"):
        load_newest(root, "job", 1)


@pytest.mark.parametrize(
    ("prevented", "others"),
    [
        (StoreUnavailable("no answer", hint="wait"), StoreUnavailable),
        (FencedError("another generation has it"), FencedError),
        (ValueError("unforeseen"), PeerLost),
        (SystemExit(), PeerLost),
    ],
)
def test_without_the_part_of_one_rank_nothing_is_committed(root, prevented, others):
    results = save_all(root, state, prevented=prevented)
    assert results[1] is prevented
    assert [type(result) for result in (results[0], results[2])] == [others, others]
    assert store.manifests(root, "job") == []
    assert save_all(root, state) == [NAME] * RANKS, "the next attempt succeeds"


def test_a_zombie_of_several_ranks_commits_nothing(root):
    store.write_fence(root, "job", 2, None)
    assert [type(result) for result in save_all(root, state)] == [FencedError] * RANKS
    assert store.manifests(root, "job") == []


def test_ranks_with_different_parts_are_refused(root):
    results = save_all(root, lambda rank: state(rank) | ({"scaler": 1.0} if rank else {}))
    assert [type(result) for result in results] == [StateError, PeerLost, PeerLost]
    assert "the same parts" in str(results[0])


def slot(name, length, digest):
    return Slot(name, "float32", (length,), digest, Box((0,), (length,)))


def written_by(plan, slots):
    """For each rank, the slots that it writes."""
    return [
        [slots[rank][plan.places[rank].index(entry)] for entry, _ in plan.writes[rank]] for rank in range(len(slots))
    ]


def test_the_work_is_shared_by_size_and_equal_tensors_of_one_rank_stay_apart():
    large, small = slot("large", 1000, "a"), [slot(f"small{number}", 10, "b") for number in range(5)]
    twins = [slot("", 1, "c"), slot("", 1, "c")]
    slots = [[large, *small, *twins], [*twins, large, *small], [slot("own", 1, "d"), *twins]]
    plan = shares(slots)
    assert len(plan.entries) == 9
    for here, places in zip(slots, plan.places, strict=True):
        assert len(set(places)) == len(here)
        assert [plan.entries[place][0] for place in places] == [each.path for each in here]
    written = written_by(plan, slots)
    assert [each for each in itertools.chain(*written) if each.path == "large"] == [large]
    assert [each for each in itertools.chain(*written) if each.path.startswith("small")] == small
    with_large = next(rank for rank in range(3) if large in written[rank])
    assert not any(each.path.startswith("small") for each in written[with_large]), "that rank has enough to write"


def test_each_box_of_a_divided_tensor_is_written_by_one_of_the_ranks_that_hold_it():
    """Two ranks hold the upper half, two the lower one, and one nothing."""
    boxes = [Box((0, 0), (2, 3)), Box((2, 0), (2, 3)), Box((0, 0), (2, 3)), Box((2, 0), (2, 3)), None]
    slots = [[Slot("divided", "float32", (4, 3), "", box)] for box in boxes]
    plan = shares(slots)
    assert plan.entries == [("divided", "float32", (4, 3))]
    assert plan.places == [[0]] * 5
    assert sorted(each.box.begin for each in itertools.chain(*written_by(plan, slots))) == [(0, 0), (2, 0)]


@pytest.mark.parametrize(
    ("step_s", "took_s", "steps"),
    [(0.0, 0.0, 1), (3.0, 0.001, 1), (0.02, 0.0005, 2), (0.02, 0.004, 10), (0.02, 60.0, 25), (0.0001, 0.0005, 50)],
)
def test_ranks_with_short_steps_compare_notes_less_often(step_s, took_s, steps):
    assert steps_until_next(step_s, took_s) == steps
