"""A program that calls nothing of ours finds the checkpoints that it wrote on another machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clouds.s3 import environment
from tests.clouds.server import LoopbackServer
from trainers.checkpoint.fences import write_fence
from trainers.errors import DamagedCheckpoint, FencedError
from trainers.objects.base import ObjectStore
from trainers.process.own_folder import OwnFolder

JOB = "job-1"
Machine = Callable[[int], tuple[Path, OwnFolder]]


@pytest.fixture
def machine(tmp_path: Path, store: ObjectStore) -> Machine:
    """The folder of a run with that generation, restored."""

    def made(generation: int) -> tuple[Path, OwnFolder]:
        folder = tmp_path / f"run-{generation}" / "own"
        write_fence(store, JOB, generation, None)
        own = OwnFolder(folder, store, JOB, generation)
        own.restore()
        return folder, own

    return made


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def files(store: ObjectStore) -> list[str]:
    return store.child(JOB).keys("own/files")


def test_the_next_run_has_the_files_of_the_last_one_and_not_those_that_it_deleted(machine: Machine) -> None:
    folder, own = machine(1)
    assert content(folder) == {}
    (folder / "step-1" / "deep").mkdir(parents=True)
    (folder / "step-1" / "deep" / "model.pt").write_bytes(b"weights" * 9)
    (folder / "old.pt").write_bytes(b"")
    own.store(ended=True)
    (folder / "old.pt").unlink()
    (folder / "link").symlink_to(folder / "step-1")
    own.store(ended=True)
    there, _ = machine(2)
    assert content(there) == {"step-1/deep/model.pt": b"weights" * 9}


def test_a_file_that_is_being_written_is_restored_as_it_was_before(machine: Machine) -> None:
    folder, own = machine(1)
    last = folder / "last.pt"
    last.write_bytes(b"complete")
    own.store()
    own.store()
    last.write_bytes(b"half of the ne")
    own.store()
    there, _ = machine(2)
    assert content(there) == {"last.pt": b"complete"}


def test_what_has_not_changed_is_not_sent_again(machine: Machine, store: ObjectStore) -> None:
    folder, own = machine(1)
    for name in ("a", "b"):
        (folder / name).write_bytes(b"the same")
    own.store(ended=True)
    assert len(files(store)) == 1
    states = store.child(JOB).keys("own/states")
    own.store(ended=True)
    own.store(ended=True)
    assert store.child(JOB).keys("own/states") == states


def test_what_no_kept_state_needs_is_deleted(machine: Machine, store: ObjectStore) -> None:
    folder, own = machine(1)
    for step in range(5):
        (folder / "last.pt").write_bytes(str(step).encode())
        own.store(ended=True)
    assert len(files(store)) == len(store.child(JOB).keys("own/states")) == 2


def test_a_damaged_state_is_passed_over_for_an_older_one(
    machine: Machine, store: ObjectStore, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, own = machine(1)
    for step in range(2):
        (folder / "last.pt").write_bytes(str(step).encode())
        before = files(store)
        own.store(ended=True)
    (newest,) = {*files(store)} - {*before}
    store.child(JOB).put(newest, b"?")
    there, _ = machine(2)
    assert content(there) == {"last.pt": b"0"}
    assert f"last.pt: {store.child(JOB).where(newest)} is missing or altered" in capsys.readouterr().err
    for key in store.child(JOB).keys("own/states"):
        store.child(JOB).put(key, b"{}")
    with pytest.raises(DamagedCheckpoint, match="missing or altered"):
        machine(3)


NO_FILE, EMPTY = f"1-{'0' * 64}", f"1-{hashlib.blake2b(b'', digest_size=32).hexdigest()}"


@pytest.mark.parametrize(
    "forged",
    [
        b"null",
        b"[" * 100_000,
        b"\xff",
        b"{}",
        b'{"files": [1]}',
        *(
            json.dumps({"files": files}).encode()
            for files in (
                {"a": "x"},
                {"a": [EMPTY, "big"]},
                {"a": [EMPTY, -1]},
                {"a": [NO_FILE, 10**18]},
                {"a": ["../../../x", 3]},
                {"a": [f"{EMPTY}/x", 0]},
                {"": [EMPTY, 0]},
                {".": [EMPTY, 0]},
                {"/etc/x": [EMPTY, 0]},
                {"x/../../y": [EMPTY, 0]},
                {"a\0b": [EMPTY, 0]},
                {"a" * 256: [EMPTY, 0]},
                {"\ud800": [EMPTY, 0]},
                {"a": [EMPTY, 0], "a/b": [EMPTY, 0]},
            )
        ),
    ],
)
def test_a_state_that_a_program_has_forged_is_passed_over_for_an_older_one(
    machine: Machine, store: ObjectStore, forged: bytes
) -> None:
    folder, own = machine(1)
    (folder / "last.pt").write_bytes(b"good")
    (folder / "empty").touch()
    own.store(ended=True)
    store.child(JOB).put("own/states/1-2.json", hashlib.sha256(forged).hexdigest().encode() + forged)
    there, _ = machine(2)
    assert content(there) == {"last.pt": b"good", "empty": b""}


def test_a_run_that_lost_the_job_changes_nothing(machine: Machine) -> None:
    folder, own = machine(1)
    (folder / "last.pt").write_bytes(b"of 1")
    own.store(ended=True)
    machine(2)
    (folder / "last.pt").write_bytes(b"late")
    with pytest.raises(FencedError):
        own.store(ended=True)
    there, _ = machine(3)
    assert content(there) == {"last.pt": b"of 1"}


def test_a_run_that_lost_the_job_deletes_no_file_of_the_next_one(machine: Machine, store: ObjectStore) -> None:
    """It was paused after it had looked whether it still has the job."""
    folder, own = machine(1)
    for step in range(2):
        (folder / "last.pt").write_bytes(str(step).encode())
        own.store(ended=True)
    there, later = machine(2)
    (there / "last.pt").write_bytes(b"of 2")
    later.store(ended=True)
    own._collect(own._states()[:-1])
    again, _ = machine(3)
    assert content(again) == {"last.pt": b"of 2"}
    assert any(key.startswith("own/files/2-") for key in files(store))


def test_a_script_continues_in_the_folder_that_its_variable_names(job, bucket_url: str, server: LoopbackServer) -> None:
    job.root, job.entry = bucket_url, "own_checkpoints:main"
    first = job.run(spec={"env": environment(server), "steps": None}, fail=True)
    assert first.status == "failed"
    second = job.run(spec={"env": environment(server), "steps": None}, fail=False)
    assert second.status == "finished", second.log
    assert "continues at step 3" in second.log


def test_what_a_script_has_saved_is_stored_before_it_is_paused(job, bucket_url: str, server: LoopbackServer) -> None:
    job.root, job.entry = bucket_url, "own_checkpoints:paused"
    paused = job.run(spec={"env": environment(server), "steps": None})
    assert paused.progress.state == "checkpointed_and_stopped", paused.log
    job.entry = "own_checkpoints:main"
    again = job.run(spec={"env": environment(server), "steps": None}, fail=False)
    assert "continues at step 3" in again.log
