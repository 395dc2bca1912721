"""Fences: who owns a checkpoint folder is decided by what a fence says, and a fence that was altered says nothing."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from pathlib import Path

import pytest

from orchestrator.engine.jobs.checkpoints import CheckpointUnusable, FileCatalog
from trainers.checkpoint import repair, store
from trainers.checkpoint.fences import Fence
from trainers.checkpoint.manifest import Manifest, ManifestName
from trainers.checkpoint.retention import collect
from trainers.errors import CheckpointError, DamagedCheckpoint, FencedError
from trainers.objects.folder import FolderStore, announced

JOB = "job-1"
FOLDER = FolderStore("job-1")


def commit(root: Path, generation: int, step: int) -> str:
    return str(store.commit(root, Manifest(JOB, ManifestName(generation, step, 1), 1, None, {}, (), {})))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Generation 2 trains; it started from 1-57-1."""
    store.prepare(tmp_path, JOB)
    store.write_fence(tmp_path, JOB, 1, None)
    commit(tmp_path, 1, 51)
    commit(tmp_path, 1, 57)
    store.write_fence(tmp_path, JOB, 2, "1-57-1")
    return tmp_path


# Damage


@pytest.mark.parametrize("fence", [Fence(2, "1-57-1"), Fence(3, None), Fence(4, None, void=True)])
def test_every_altered_byte_of_a_fence_is_noticed(fence: Fence) -> None:
    raw = fence.to_bytes(JOB)
    assert Fence.from_bytes(raw, JOB, fence.generation, FOLDER) == fence
    for place in range(len(raw)):
        for byte in set(range(256)) - {raw[place]}:
            altered = raw[:place] + bytes([byte]) + raw[place + 1 :]
            with pytest.raises(DamagedCheckpoint):
                Fence.from_bytes(altered, JOB, fence.generation, FOLDER)


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"2", b"null", b'"manifest"', b"\xff", b"[" * 4000, b"9" * 4000])
def test_whatever_else_is_in_a_fence_is_damage(raw: bytes) -> None:
    with pytest.raises(DamagedCheckpoint):
        Fence.from_bytes(raw, JOB, 2, FOLDER)


def test_a_fence_that_names_no_checkpoint_is_damage_even_if_its_hash_is_right() -> None:
    for manifest in (
        "1,57-1",
        "1-57",
        "01-57-1",
        "1-57-1\n",
        7,
        ["1-57-1"],
        {"": 0},
        "1-\u0665-1",
        "1-" + "9" * 19 + "-1",
    ):
        body = {"generation": 2, "manifest": manifest}
        covered = json.dumps({"job": JOB, **body}, separators=(",", ":")).encode()
        raw = json.dumps({**body, "hash": hashlib.sha256(covered).hexdigest()}, separators=(",", ":")).encode() + b"\n"
        with pytest.raises(DamagedCheckpoint):
            Fence.from_bytes(raw, JOB, 2, FOLDER)


def test_a_flipped_generation_digit_restores_no_older_checkpoint_in_silence(root: Path) -> None:
    path = root / JOB / "fence" / "2"
    path.write_bytes(path.read_bytes().replace(b'"generation":2', b'"generation":1'))
    for question in (store.fence, store.fences, lambda root, job: store.require_ownership(root, job, 2)):
        with pytest.raises(DamagedCheckpoint, match=r"python -m trainers\.checkpoint\.repair"):
            question(root, JOB)
    with pytest.raises(DamagedCheckpoint):
        store.counting(root, JOB, 2)
    with pytest.raises(CheckpointUnusable) as unusable:
        FileCatalog().fenced(root, JOB)
    assert "trainers.checkpoint.repair" in unusable.value.hint


@pytest.mark.parametrize("name", ["3", "10", "007", "2~", "\u0662", "9" * 30, "0", "two"])
def test_a_fence_under_another_name_is_noticed(root: Path, name: str) -> None:
    (root / JOB / "fence" / "2").rename(root / JOB / "fence" / name)
    with pytest.raises(DamagedCheckpoint):
        store.fence(root, JOB)


def test_a_fence_of_another_job_is_noticed(root: Path) -> None:
    store.write_fence(root, "job-2", 3, None)
    (root / "job-2" / "fence" / "3").rename(root / JOB / "fence" / "3")
    with pytest.raises(DamagedCheckpoint, match="does not belong to generation 3 of job-1"):
        store.fence(root, JOB)


def test_a_deleted_fence_is_noticed_once_its_generation_has_committed(root: Path) -> None:
    commit(root, 2, 60)
    (root / JOB / "fence" / "2").unlink()
    with pytest.raises(DamagedCheckpoint, match="fence/2 is missing"):
        store.counting(root, JOB, 3)


def test_a_pipe_or_a_gigabyte_in_the_place_of_a_fence_stops_nobody(root: Path) -> None:
    path = root / JOB / "fence" / "2"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(DamagedCheckpoint, match="not a regular file"):
        store.fence(root, JOB)
    path.unlink()
    with path.open("wb") as file:
        file.truncate(2**30)
    with pytest.raises(DamagedCheckpoint, match="the limit is"):
        store.fence(root, JOB)


@pytest.mark.parametrize("generation", [0, -1, 10**18, 10**30, True, 2.0, "2"])
def test_no_fence_is_written_for_what_is_no_generation(root: Path, generation: int) -> None:
    for write in (store.void_fence, lambda root, job, number: store.write_fence(root, job, number, None)):
        with pytest.raises(CheckpointError, match="is not a valid generation"):
            write(root, JOB, generation)
    with pytest.raises(CheckpointError, match="not a checkpoint name"):
        store.write_fence(root, JOB, 3, "1,57-1")
    assert store.fence(root, JOB) == Fence(2, "1-57-1")


# Repair


def repaired(root: Path, *options: str) -> tuple[int, str]:
    """TrainingLoop the command that the error names."""
    with pytest.raises(DamagedCheckpoint) as damage:
        store.counting(root, JOB, 9)
    command = damage.value.hint.removeprefix("repair it: ").split()
    assert command[0] == "python"
    done = subprocess.run([sys.executable, *command[1:], *options], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_command_that_the_error_names_repairs_the_fence(root: Path) -> None:
    path = root / JOB / "fence" / "2"
    path.write_bytes(path.read_bytes().replace(b"1-57-1", b"1-51-1"))
    assert repaired(root) == (0, "restored the fence of generation 2, which starts from 1-57-1\n")
    assert store.fence(root, JOB) == Fence(2, "1-57-1")


@pytest.mark.parametrize("void", [False, True])
def test_any_one_altered_byte_is_repaired(root: Path, void: bool) -> None:
    fence = Fence(3, None, void=True) if void else Fence(2, "1-57-1")
    raw = fence.to_bytes(JOB)
    path = root / JOB / "fence" / str(fence.generation)
    for place in range(0, len(raw), 3):
        path.write_bytes(raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :])
        assert len(repair.repair_fences(root, JOB)) == 1
        assert path.read_bytes() == raw


def test_an_overgrown_fence_is_repaired_from_its_beginning(root: Path) -> None:
    """The remedy is never to delete it: then an older generation would own the job again."""
    path = root / JOB / "fence" / "2"
    path.write_bytes(path.read_bytes() + bytes(100_000))
    assert repaired(root)[0] == 0
    assert store.fence(root, JOB) == Fence(2, "1-57-1")


def test_a_pipe_in_the_place_of_a_fence_is_replaced_by_what_a_person_says(root: Path) -> None:
    path = root / JOB / "fence" / "2"
    path.unlink()
    os.mkfifo(path)
    code, reported = repaired(root)
    assert (code, "--starts-from" in reported) == (1, True)
    assert repaired(root, "--starts-from", "1-57-1")[0] == 0
    assert store.fence(root, JOB) == Fence(2, "1-57-1")


@pytest.mark.parametrize("name", ["3", "2~", "007"])
def test_a_renamed_fence_gets_its_name_back(root: Path, name: str) -> None:
    folder = root / JOB / "fence"
    (folder / "2").rename(folder / name)
    assert repaired(root)[0] == 0
    assert sorted(path.name for path in folder.iterdir()) == ["1", "2"]
    assert store.fence(root, JOB) == Fence(2, "1-57-1")


def test_what_cannot_be_known_is_asked_for(root: Path) -> None:
    path = root / JOB / "fence" / "2"
    path.write_bytes(b"")
    code, said = repaired(root)
    assert code == 1
    assert "--starts-from and one of: 1-51-1, 1-57-1, scratch" in said
    assert repaired(root, "--starts-from", "1-51-1")[0] == 0
    assert store.fence(root, JOB) == Fence(2, "1-51-1")


def test_a_generation_that_has_checkpoints_of_its_own_is_put_back_without_asking(root: Path) -> None:
    commit(root, 2, 60)
    (root / JOB / "fence" / "2").unlink()
    (root / JOB / "fence" / "1").write_bytes(b"?")
    assert len(repair.repair_fences(root, JOB)) == 2
    assert [str(name) for name in store.counting(root, JOB, 3)] == ["2-60-1"]


def test_a_strange_file_is_left_to_its_owner(root: Path) -> None:
    (root / JOB / "fence" / "notes").write_text("mine")
    code, said = repaired(root)
    assert code == 1
    assert "notes is not a fence of this job (move it out of this folder)" in said
    (root / JOB / "fence" / "notes").unlink()
    assert repair.repair_fences(root, JOB) == []


# Void fences


def test_a_void_fence_gives_the_job_to_nobody_and_the_older_generation_goes_on(root: Path) -> None:
    assert store.void_fence(root, JOB, 3)
    assert store.void_fence(root, JOB, 3), "once more changes nothing"
    assert store.fence(root, JOB) == Fence(2, "1-57-1")
    assert store.fences(root, JOB) == [Fence(2, "1-57-1"), Fence(1, None)]
    store.require_ownership(root, JOB, 2)
    name = commit(root, 2, 60)
    assert [str(name) for name in store.counting(root, JOB, 4)] == [name, "1-57-1", "1-51-1"]
    collect(root, JOB, 2, keep=1)
    with pytest.raises(FencedError, match="does not have the job yet"):
        store.require_ownership(root, JOB, 3)


def test_a_late_handover_finds_its_fence_void(root: Path) -> None:
    store.void_fence(root, JOB, 3)
    with pytest.raises(FencedError, match="was abandoned: its fence is void"):
        store.write_fence(root, JOB, 3, "1-57-1")
    store.write_fence(root, JOB, 4, "1-57-1")
    with pytest.raises(FencedError, match="void"):
        store.write_fence(root, JOB, 3, "1-57-1")
    assert store.fence(root, JOB) == Fence(4, "1-57-1")


def test_a_handover_that_came_first_cannot_be_made_void(root: Path) -> None:
    assert not store.void_fence(root, JOB, 2)
    assert not store.void_fence(root, JOB, 1)
    assert store.fence(root, JOB) == Fence(2, "1-57-1")


def test_a_job_without_a_folder_can_be_kept_from_a_generation(tmp_path: Path) -> None:
    assert store.void_fence(tmp_path, JOB, 1)
    assert store.fence(tmp_path, JOB) is None
    assert store.counting(tmp_path, JOB, 1) == []


def test_the_catalog_keeps_a_generation_out(tmp_path: Path) -> None:
    catalog = FileCatalog()
    assert catalog.fence(tmp_path, JOB, 1, None)
    assert catalog.void(tmp_path, JOB, 2)
    assert catalog.void(tmp_path, JOB, 2)
    assert not catalog.void(tmp_path, JOB, 1)
    assert catalog.fenced(tmp_path, JOB) == 1
    assert not catalog.fence(tmp_path, JOB, 2, None)
    assert catalog.fence(tmp_path, JOB, 3, None)
    assert catalog.fenced(tmp_path, JOB) == 3


def give_up(root: Path) -> bool:
    return store.void_fence(root, JOB, 3)


def hand_over(root: Path) -> bool:
    try:
        store.write_fence(root, JOB, 3, "1-57-1")
    except FencedError:
        return False
    return True


@pytest.mark.parametrize(("one", "other"), [(give_up, hand_over), (hand_over, give_up)])
def test_of_a_handover_and_its_giving_up_one_wins_wherever_either_pauses(
    root: Path, one: Callable[[Path], bool], other: Callable[[Path], bool]
) -> None:
    won: set[bool] = set()
    for pause in range(1, 30):
        (root / JOB / "fence" / "3").unlink(missing_ok=True)
        meanwhile: list[bool] = []
        operations = itertools.count(1)

        def act(*_: object, at: int = pause, count: Iterator[int] = operations, log: list[bool] = meanwhile) -> None:
            if next(count) == at:
                log.append(Context().run(other, root))

        with announced(act):
            result = one(root)
        if not meanwhile:
            break
        assert meanwhile == [not result]
        won.add(result)
    assert pause > 4
    assert won == {True, False}


_RACER = """
import sys
from trainers.checkpoint import store
from trainers.checkpoint.retention import collect
from trainers.errors import FencedError
root, job, what = sys.argv[1:]
for line in sys.stdin:
    generation = int(line)
    try:
        won = store.void_fence(root, job, generation) if what == "void" else (
            store.write_fence(root, job, generation, "1-57-1") is None)
    except FencedError:
        won = False
    print(int(won), flush=True)
"""


def race(root: Path, what: str, order: str) -> list[bool]:
    command = [sys.executable, "-c", _RACER, str(root), JOB, what]
    done = subprocess.run(command, input=order, capture_output=True, text=True, check=True)
    return [line == "1" for line in done.stdout.splitlines()]


def test_of_two_processes_exactly_one_decides_each_generation(root: Path) -> None:
    order = "".join(f"{generation}\n" for generation in range(3, 103))
    with ThreadPoolExecutor() as both:
        void, handed_over = both.map(lambda what: race(root, what, order), ("void", "hand over"))
    assert [a is not b for a, b in zip(void, handed_over, strict=True)] == [True] * 100
    newest = max((g for g, won in zip(range(3, 103), handed_over, strict=True) if won), default=2)
    found = store.fence(root, JOB)
    assert found is not None
    assert found.generation == newest
