"""Chunks that are fetched to a machine before the run that restores them: which, and that nothing wrong is restored."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.checkpoint import store
from trainers.checkpoint.fetched import FetchedChunks, restored_from
from trainers.checkpoint.manifest import Box, Manifest, ManifestName, Piece, TensorEntry
from trainers.checkpoint.prefetch import fetch, main, wanted
from trainers.checkpoint.reader import load, load_newest
from trainers.checkpoint.writer import save
from trainers.errors import DamagedCheckpoint

JOB = "job-1"
FROZEN = torch.arange(3 << 20, dtype=torch.float32)  # 12 MiB: chunks of their own


def saved(root: Path, step: int, generation: int = 1) -> str:
    """A checkpoint of a frozen layer and of one that is trained."""
    items = {"extra": {"frozen": FROZEN, "trained": torch.full((5 << 18,), float(step))}}
    name = ManifestName(generation, step, 1)
    return str(save(root, JOB, name, items=items, position={"steps_done": step}, keep=3))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    store.prepare(root, JOB)
    store.write_fence(root, JOB, 1, None)
    return root


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "here").mkdir()
    return tmp_path / "here"


def fetched(root: Path, here: Path, *, trains: bool) -> int:
    to = FetchedChunks(here)
    fetch(root, JOB, 2, to, trains=trains, shared=False)
    return to.kept_bytes


def chunks_of(root: Path, name: str) -> frozenset[str]:
    return store.read_manifest(root, JOB, ManifestName.parse(name)).chunks()


def hashes(chunks: Iterable[str]) -> set[str]:
    return {chunk.rpartition("-")[2] for chunk in chunks}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_while_the_source_trains_only_what_does_not_change_is_fetched(root: Path, here: Path) -> None:
    first, second = saved(root, 5), saved(root, 10)
    assert fetched(root, here, trains=True) == FROZEN.nbytes
    assert names(here) == hashes(chunks_of(root, first) & chunks_of(root, second))


def test_the_first_checkpoint_of_a_run_is_compared_with_the_last_one_of_the_run_before(root: Path, here: Path) -> None:
    store.write_fence(root, JOB, 2, saved(root, 5))
    saved(root, 10, generation=2)
    chunks = wanted(root, JOB, 3, trains=True, shared=False)
    assert sum(store.chunk_sizes(root, JOB, chunks).values()) == FROZEN.nbytes
    assert {chunk.partition("-")[0] for chunk in chunks} == {"2"}


def test_what_was_fetched_is_used_although_the_run_has_written_it_again_since(root: Path, here: Path) -> None:
    """Fetched while the newest checkpoints are those of the run before the one that trains."""
    saved(root, 5)
    store.write_fence(root, JOB, 2, saved(root, 10))
    to = FetchedChunks(here)
    fetch(root, JOB, 3, to, trains=True, shared=False)
    newest = ManifestName.parse(saved(root, 15, generation=2))
    with restored_from(str(here)) as used:
        load(root, JOB, newest)
    assert used is not None
    assert used.used_bytes == to.kept_bytes == FROZEN.nbytes


def test_of_one_checkpoint_nobody_knows_what_will_not_change(root: Path, here: Path) -> None:
    saved(root, 5)
    assert fetched(root, here, trains=True) == 0
    assert names(here) == set()


def test_a_job_without_a_checkpoint_needs_nothing(root: Path) -> None:
    assert wanted(root, JOB, 2, trains=False, shared=False) == []


def test_when_nobody_trains_all_of_the_newest_checkpoint_is_fetched(root: Path, here: Path) -> None:
    saved(root, 5)
    second = saved(root, 10)
    assert fetched(root, here, trains=False) > FROZEN.nbytes
    assert names(here) == hashes(chunks_of(root, second))


def test_checkpoints_of_a_run_that_had_lost_the_job_are_not_fetched(root: Path, here: Path) -> None:
    counts = saved(root, 5)
    store.write_fence(root, JOB, 2, counts)
    assert wanted(root, JOB, 3, trains=False, shared=False) == [*dict.fromkeys(chunks_in_order(root, counts))]


def chunks_in_order(root: Path, name: str) -> list[str]:
    manifest = store.read_manifest(root, JOB, ManifestName.parse(name))
    return [piece.chunk for tensor in manifest.tensors for piece in tensor.pieces]


def test_several_machines_leave_out_what_is_divided_among_them(root: Path) -> None:
    def entry(name: str, data: bytes, boxes: tuple[Box, ...]) -> TensorEntry:
        chunk = store.write_chunk(root, JOB, data, 1)
        return TensorEntry(name, "uint8", (len(data),), (Piece(chunk, 0, len(data)),), boxes)

    whole, divided = entry("whole", b"whole", ()), entry("divided", b"divided", (Box((0,), (4,)), Box((4,), (3,))))
    store.commit(root, Manifest(JOB, ManifestName(1, 5, 1), 1, {}, {}, (whole, divided), {}))
    of_one, of_several = (wanted(root, JOB, 2, trains=False, shared=shared) for shared in (False, True))
    assert (len(of_one), of_several) == (2, [whole.pieces[0].chunk])


def test_half_of_the_free_space_is_left_to_the_job(root: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(root, 5)
    size_bytes = 5 * store.CHUNK_BYTES

    def left(folder: Path) -> SimpleNamespace:
        complete = [path for path in folder.iterdir() if path.suffix != ".partial"]
        return SimpleNamespace(free=size_bytes - sum(path.stat().st_size for path in complete))

    monkeypatch.setattr(shutil, "disk_usage", left)
    assert 0 < fetched(root, here, trains=False) <= size_bytes / 2


def test_what_the_job_takes_of_the_space_meanwhile_is_not_taken_from_it(
    root: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(root, 5)
    left = iter([100 * store.CHUNK_BYTES, 100 * store.CHUNK_BYTES])
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=next(left, 0)))
    assert 0 < fetched(root, here, trains=False) <= 2 * store.CHUNK_BYTES


def test_what_does_not_fit_on_a_full_disk_leaves_nothing_and_the_rest_is_used(
    root: Path, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(root, 5)
    write, written = Path.write_bytes, 0

    def full(path: Path, data: bytes) -> int:
        nonlocal written
        written += 1
        if written > 1:
            write(path, data[:7])
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    assert main([str(root), JOB, "2", str(here)]) == 1
    assert "No space left" in (printed := capsys.readouterr()).err
    assert int(printed.out) == sum(path.stat().st_size for path in here.iterdir()) > 0
    assert not [*here.glob("*.partial")]


@pytest.mark.parametrize("gone", ["chunk", "manifest"])
def test_what_the_run_that_still_trains_deletes_meanwhile_is_passed_over(
    root: Path, here: Path, gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(root, 5)
    second = saved(root, 10)
    chunk, *others = wanted(root, JOB, 2, trains=True, shared=False)
    read, deleted = store.read_manifest, False

    def late(at: Path, job: str, name: ManifestName) -> Manifest:
        nonlocal deleted
        found = read(at, job, name)
        if str(name) == second and not deleted:
            deleted = True
            (root / JOB / "chunks" / chunk).unlink()
            if gone == "manifest":
                monkeypatch.setattr(store, "read_manifest", read)
                saved(root, 15)
                raise DamagedCheckpoint("it is missing")
        return found

    monkeypatch.setattr(store, "read_manifest", late)
    fetched(root, here, trains=True)
    assert names(here) >= hashes(others)


def test_a_pipe_in_the_place_of_a_chunk_holds_nothing_up(root: Path, here: Path) -> None:
    name = ManifestName.parse(saved(root, 5))
    for chunk in hashes(chunks_of(root, str(name))):
        os.mkfifo(here / chunk)
    with restored_from(str(here)) as used:
        load(root, JOB, name)
    assert used is not None
    assert used.used_bytes == 0


def test_a_restore_takes_what_is_here_and_the_rest_from_the_store(root: Path, here: Path) -> None:
    saved(root, 5)
    saved(root, 10)
    fetched(root, here, trains=True)
    newest = saved(root, 15)
    store.write_fence(root, JOB, 2, newest)
    for path in (root / JOB / "chunks").iterdir():  # what is here is not asked for again
        if hashes([path.name]) <= names(here):
            path.unlink()
    with restored_from(str(here)) as used:
        loaded = load_newest(root, JOB, 2)
    assert loaded is not None
    assert used is not None
    assert used.used_bytes == FROZEN.nbytes
    assert str(loaded.name) == newest
    restored = tensors_of(loaded.items)
    assert any(torch.equal(each, FROZEN) for each in restored)
    assert any(torch.equal(each, torch.full((5 << 18,), 15.0)) for each in restored)


def tensors_of(value: object) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    found = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [tensor for each in found for tensor in tensors_of(each)]


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_whatever_becomes_of_the_files_the_checkpoint_is_restored_exactly(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root, here = tmp_path_factory.mktemp("store"), tmp_path_factory.mktemp("here")
    store.prepare(root, JOB)
    store.write_fence(root, JOB, 1, None)
    name = ManifestName.parse(saved(root, 5))
    fetched(root, here, trains=False)
    stored = {path: path.read_bytes() for path in sorted(here.iterdir())}
    for path, content in stored.items():
        damage = data.draw(st.sampled_from(["none", "flip", "truncate", "longer", "empty", "gone", "folder", "other"]))
        raw = bytearray(content)
        if damage == "flip":
            raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        elif damage == "truncate":
            del raw[data.draw(st.integers(0, len(raw) - 1)) :]
        elif damage == "longer":
            raw += b"\0"
        elif damage == "empty":
            raw.clear()
        elif damage == "other":
            raw = bytearray(next(other for other in stored.values() if other != content))
        path.unlink()
        if damage == "folder":
            path.mkdir()
        elif damage != "gone":
            path.write_bytes(raw)
    with restored_from(str(here)):
        restored = load(root, JOB, name)
    expected = load(root, JOB, name)
    for mine, other in zip(tensors_of(restored.items), tensors_of(expected.items), strict=True):
        assert torch.equal(mine, other)


def test_outside_of_the_block_everything_comes_from_the_store(root: Path, here: Path) -> None:
    name = ManifestName.parse(saved(root, 5))
    fetched(root, here, trains=False)
    with restored_from(str(here)) as used:
        pass
    load(root, JOB, name)
    assert used is not None
    assert used.used_bytes == 0


def test_the_process_prints_how_much_it_has_fetched(root: Path, here: Path) -> None:
    saved(root, 5)
    saved(root, 10)
    command = [sys.executable, "-P", "-m", "trainers.checkpoint.prefetch", str(root), JOB, "2", str(here), "--trains"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, str(FROZEN.nbytes), "")


def test_what_cannot_be_fetched_is_said_and_left_to_the_restore(
    root: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (chunk, *_) = chunks_in_order(root, saved(root, 5))
    (root / JOB / "chunks" / chunk).write_bytes(b"altered")
    command = [str(root), JOB, "2", str(here)]
    assert main(command) == 1
    printed = capsys.readouterr()
    assert int(printed.out) == sum(path.stat().st_size for path in here.iterdir())
    assert "stopped fetching ahead of the restore" in printed.err
    assert "altered" in printed.err
