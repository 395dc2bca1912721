"""The checkpoint folder: what counts, what is detected, what may go. Needs neither torch nor numpy."""

import dataclasses
import hashlib
import json
import os
from pathlib import Path

import pytest

from trainers.checkpoint import store
from trainers.checkpoint.manifest import Manifest, ManifestName, Piece, TensorEntry
from trainers.checkpoint.retention import Keep, collect, selected
from trainers.errors import (
    CheckpointError,
    CheckpointFull,
    CheckpointReadOnly,
    DamagedCheckpoint,
    FencedError,
)

JOB = "job-1"


@pytest.fixture
def root(tmp_path):
    store.prepare(tmp_path, JOB)
    return tmp_path


def put(root, generation, step, attempt=0, data=None):
    """A committed checkpoint with one tensor in a chunk of its own."""
    data = data if data is not None else f"{generation}-{step}-{attempt}".encode()
    piece = Piece(store.write_chunk(root, JOB, data, generation), 0, len(data))
    tensor = TensorEntry("model.weight", "uint8", (len(data),), (piece,))
    manifest = Manifest(JOB, ManifestName(generation, step, attempt), 1, {"step": step}, {}, (tensor,), {})
    return str(store.commit(root, manifest))


def chunks(root):
    return {path.name for path in (root / JOB / "chunks").iterdir()}


# Fences and what counts


def test_a_fence_may_be_written_again_but_not_changed(root):
    store.write_fence(root, JOB, 1, None)
    store.write_fence(root, JOB, 1, None)
    with pytest.raises(FencedError, match="starts from None, not 1-5-0"):
        store.write_fence(root, JOB, 1, "1-5-0")
    assert store.fence(root, JOB) == store.Fence(1, None)


def test_an_older_generation_cannot_be_fenced_in_after_a_newer_one(root):
    store.write_fence(root, JOB, 1, None)
    store.write_fence(root, JOB, 3, None)
    store.write_fence(root, JOB, 1, None)
    with pytest.raises(FencedError, match="generation 3 already owns job-1"):
        store.write_fence(root, JOB, 2, None)
    assert store.fence(root, JOB) == store.Fence(3, None)


def test_a_job_without_a_folder_has_no_fence_and_no_checkpoint(tmp_path):
    assert store.fence(tmp_path, JOB) is None
    assert store.newest_counting(tmp_path, JOB, 1) is None


def test_nothing_is_committed_before_the_fence(root):
    with pytest.raises(FencedError, match="does not have the job yet"):
        put(root, 1, 5)
    assert store.manifests(root, JOB) == []


def test_a_zombie_cannot_commit_after_a_newer_fence(root):
    store.write_fence(root, JOB, 1, None)
    put(root, 1, 5)
    store.write_fence(root, JOB, 2, "1-5-0")
    with pytest.raises(FencedError, match="generation 2 of job-1 took over"):
        put(root, 1, 9)


def test_what_a_zombie_slipped_in_does_not_count(root):
    store.write_fence(root, JOB, 1, None)
    put(root, 1, 5)
    put(root, 1, 7)
    put(root, 1, 9)  # after the handover at 7 was decided: the check and the commit cannot be one act
    store.write_fence(root, JOB, 2, "1-7-0")
    assert store.newest_counting(root, JOB, 2) == "1-7-0"
    assert store.newest_counting(root, JOB, 3) == "1-7-0"
    put(root, 2, 8)
    assert store.newest_counting(root, JOB, 3) == "2-8-0"
    assert store.newest_counting(root, JOB, 1) == "1-9-0"
    assert [str(name) for name in store.counting(root, JOB, 2)] == ["2-8-0", "1-7-0", "1-5-0"]


def test_the_chain_of_fences_leads_back_to_the_start(root):
    store.write_fence(root, JOB, 1, None)
    put(root, 1, 5)
    store.write_fence(root, JOB, 2, "1-5-0")
    store.write_fence(root, JOB, 5, "1-5-0")  # generation 2 committed nothing; 3 and 4 never got the job
    put(root, 5, 6)
    store.write_fence(root, JOB, 6, None)  # started over
    assert store.counting(root, JOB, 6) == []
    assert [str(name) for name in store.counting(root, JOB, 5)] == ["5-6-0", "1-5-0"]


def test_the_same_step_again_gets_a_free_attempt(root):
    store.write_fence(root, JOB, 1, None)
    assert [put(root, 1, 5), put(root, 1, 5)] == ["1-5-0", "1-5-1"]
    assert store.newest_counting(root, JOB, 1) == "1-5-1"


def test_names_order_by_number():
    assert ManifestName.parse("2-9-0") < ManifestName.parse("2-10-0") < ManifestName.parse("10-1-0")
    with pytest.raises(ValueError, match="is not a checkpoint name"):
        ManifestName.parse("2-9")


# Damage


def damaged(root):
    messages = []
    return store.newest_counting(root, JOB, 1, on_damage=lambda damage: messages.append(str(damage))), messages


@pytest.fixture
def two(root):
    store.write_fence(root, JOB, 1, None)
    put(root, 1, 5)
    put(root, 1, 6)
    return root


def test_every_flipped_bit_of_a_manifest_is_detected(two):
    raw = (two / JOB / "manifests" / "1-6-0.json").read_bytes()
    assert json.loads(raw)["hash"]
    for bit in range(len(raw) * 8):
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamagedCheckpoint, match="its hash does not match"):
            Manifest.from_bytes(bytes(flipped), "here")


def test_every_truncation_of_a_manifest_is_detected(two):
    raw = (two / JOB / "manifests" / "1-6-0.json").read_bytes()
    for length in range(len(raw)):
        with pytest.raises(DamagedCheckpoint):
            Manifest.from_bytes(raw[:length], "here")


def test_every_flipped_bit_of_a_chunk_is_detected_and_the_previous_checkpoint_used(two):
    (chunk,) = store.read_manifest(two, JOB, ManifestName(1, 6, 0)).chunks()
    path = two / JOB / "chunks" / chunk
    raw = path.read_bytes()
    for bit in range(len(raw) * 8):
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        name, (message,) = damaged(two)
        assert name == "1-5-0"
        assert "1-6-0: model.weight" in message
        assert chunk in message
        assert "truncated or altered" in message


def test_a_missing_chunk_or_a_cut_one_is_named(two):
    (chunk,) = store.read_manifest(two, JOB, ManifestName(1, 6, 0)).chunks()
    path = two / JOB / "chunks" / chunk
    path.write_bytes(path.read_bytes()[:-1])
    assert "truncated or altered" in damaged(two)[1][0]
    path.unlink()
    name, (message,) = damaged(two)
    assert name == "1-5-0"
    assert f"{path} is missing" in message


def test_a_torn_manifest_falls_back(two):
    (two / JOB / "manifests" / "1-6-0.json").write_bytes(b"")
    assert damaged(two)[0] == "1-5-0"


def with_format(manifest, number):
    text = manifest.to_bytes().replace(b'"format":2', f'"format":{number}'.encode()).split(b',"hash"')[0]
    return text + b',"hash":"' + hashlib.sha256(text).hexdigest().encode() + b'"}\n'


def test_a_newer_format_is_refused_not_misread(two):
    manifest = store.read_manifest(two, JOB, ManifestName(1, 6, 0))
    with pytest.raises(CheckpointError, match="format 3; this version reads formats up to 2"):
        Manifest.from_bytes(with_format(manifest, 3), "here")


def test_the_format_before_tensors_could_be_divided_is_still_read(two):
    manifest = store.read_manifest(two, JOB, ManifestName(1, 6, 0))
    assert Manifest.from_bytes(with_format(manifest, 1), "here") == manifest


def test_a_damaged_fence_says_how_to_restore_it(two):
    (two / JOB / "fence" / "1").write_text("{")
    with pytest.raises(DamagedCheckpoint, match=r"repair it: python -m"):
        store.fence(two, JOB)


def test_writing_the_bytes_of_a_damaged_chunk_repairs_it(two):
    chunk = store.write_chunk(two, JOB, b"1-6-0", 1)
    (two / JOB / "chunks" / chunk).write_bytes(b"1-7-0")
    assert store.write_chunk(two, JOB, b"1-6-0", 1) == chunk
    assert store.read_chunk(two, JOB, chunk, "") == b"1-6-0"


# Retention


def test_only_the_newest_and_the_one_that_the_fence_names_are_kept(root):
    store.write_fence(root, JOB, 1, None)
    shared = b"the same in all of them"
    for step in range(1, 6):
        put(root, 1, step)
    put(root, 1, 6, data=shared)
    store.write_fence(root, JOB, 2, "1-3-0")
    for step in range(10, 15):
        put(root, 2, step)
    put(root, 2, 15, data=shared)
    store.write_chunk(root, JOB, b"left by a save that was killed", 1)
    newer = [root / JOB / place for place in ("chunks/.3-0f.0123456789ab", "manifests/.3-1-1.json.0123456789ab")]
    left = [root / JOB / place for place in ("chunks/.1-0f.0123456789ab", "fence/.2.0123456789ab")]
    left += [root / JOB / place for place in ("manifests/.2-9-1.json.0123456789ab", "manifests/.probe.0123456789ab")]
    for path in (*newer, *left):
        path.write_bytes(b"cut")
    collect(root, JOB, 2, keep=2)
    assert [str(name) for name in store.manifests(root, JOB)] == ["1-3-0", "2-14-0", "2-15-0"]
    assert len(chunks(root)) == 3 + 1
    assert [path.exists() for path in (*newer, *left)] == [True] * 2 + [False] * 4
    for name in store.manifests(root, JOB):
        store.verify(root, JOB, name)


def test_damaged_checkpoints_do_not_count_as_kept(two):
    put(two, 1, 7)
    (two / JOB / "manifests" / "1-7-0.json").write_bytes(b"torn")
    collect(two, JOB, 1, keep=1)
    assert [str(name) for name in store.manifests(two, JOB)] == ["1-6-0"]


def test_an_old_fence_that_is_damaged_costs_the_owner_space_but_not_its_checkpoint(two, caplog):
    store.write_fence(two, JOB, 2, "1-6-0")
    (two / JOB / "fence" / "1").write_text("?")
    put(two, 2, 7)
    collect(two, JOB, 2, keep=1)
    assert [str(name) for name in store.manifests(two, JOB)] == ["1-5-0", "1-6-0", "2-7-0"]
    assert "old checkpoints are kept: the fence" in caplog.text


def test_a_zombie_collects_nothing(two):
    store.write_fence(two, JOB, 2, "1-6-0")
    before = chunks(two)
    with pytest.raises(FencedError):
        collect(two, JOB, 1, keep=1)
    assert chunks(two) == before


# Folders that cannot be written


def test_a_folder_that_cannot_be_made_is_reported_with_the_remedy(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CheckpointReadOnly, match=r"point checkpoint\.to at another"):
        store.prepare(tmp_path / "file", JOB)


def test_a_full_device_is_reported_with_the_remedy_and_leaves_nothing_behind(root):
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(CheckpointFull, match="free space there"):
            store.write_chunk(root, JOB, bytes(2000), 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert chunks(root) == set()


def test_manifests_survive_their_own_round_trip(two):
    manifest = store.read_manifest(two, JOB, ManifestName(1, 6, 0))
    assert Manifest.from_bytes(manifest.to_bytes(), "here") == manifest
    assert dataclasses.asdict(manifest)["position"] == {"step": 6}


# Permissions


@pytest.mark.parametrize(
    ("place", "folder", "file"),
    [(0o700, 0o700, 0o600), (0o755, 0o755, 0o644), (0o775, 0o775, 0o664), (0o1777, 0o755, 0o644)],
)
def test_a_checkpoint_is_as_open_as_the_place_that_the_user_chose(
    tmp_path: Path, place: int, folder: int, file: int
) -> None:
    root = tmp_path / "place"
    root.mkdir()
    root.chmod(place)
    before = os.umask(0o077)
    try:
        store.prepare(root / "made", "job")
        store.write_fence(root / "made", "job", 1, None)
    finally:
        os.umask(before)
    assert (root / "made" / "job" / "chunks").stat().st_mode & 0o7777 == folder
    assert (root / "made" / "job" / "fence" / "1").stat().st_mode & 0o777 == file


def kept(about, keep):
    """The steps that are kept of checkpoints of step 1, 2, ..., given what is known of each."""
    manifests = [
        Manifest(JOB, ManifestName(1, step, 1), 1, None, {}, (), {}, about=each) for step, each in enumerate(about, 1)
    ]
    return sorted(manifest.name.step for manifest in selected(manifests[::-1], keep))


def test_the_last_of_each_hour_and_the_best_are_kept_besides_the_last_ones():
    hours = [0.2, 0.9, 1.1, 1.5, 4.0, 4.1, 4.2]
    losses = [0.5, 0.1, 0.3, float(7), 0.2, 0.4, 0.6]
    about = [{"saved_at": 3600 * hour, "loss": loss} for hour, loss in zip(hours, losses, strict=True)]
    assert kept(about, Keep(1)) == [7]
    assert kept(about, Keep(2, hourly=2)) == [4, 6, 7]
    assert kept(about, Keep(1, hourly=9)) == [2, 4, 7]
    assert kept(about, Keep(1, best=2)) == [2, 5, 7]
    assert kept(about, Keep(0, best=1)) == [2, 7], "one is kept in any case"
    assert kept([{}, {"loss": 1.0}, {}], Keep(1, hourly=5, best=1)) == [2, 3], "as far as it is known"


def test_what_is_kept_for_its_loss_keeps_its_chunks(root):
    store.write_fence(root, JOB, 1, None)
    for step, loss in ((1, 0.5), (2, 0.1), (3, 0.9), (4, 0.8)):
        piece = Piece(store.write_chunk(root, JOB, str(step).encode(), 1), 0, 1)
        entry = TensorEntry("t", "uint8", (1,), (piece,))
        name = ManifestName(1, step, 1)
        store.commit(root, Manifest(JOB, name, 1, None, {}, (entry,), {}, about={"loss": loss}))
        collect(root, JOB, 1, Keep(1, best=1))
    assert [name.step for name in store.manifests(root, JOB)] == [2, 4]
    assert [store.verify(root, JOB, name).about["loss"] for name in store.manifests(root, JOB)] == [0.1, 0.8]
