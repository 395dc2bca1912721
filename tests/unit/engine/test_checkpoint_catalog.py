"""What the engine sees of a checkpoint folder without reading what is in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.engine.compartment import one_line
from orchestrator.engine.jobs.checkpoints import CheckpointUnusable, FileCatalog
from trainers.checkpoint import store
from trainers.checkpoint.manifest import Manifest, ManifestName, Piece, TensorEntry

JOB = "job-1"


def put(root: Path, step: int) -> Path:
    """A committed checkpoint; returns its only chunk."""
    data = f"the weights of step {step}".encode()
    piece = Piece(store.write_chunk(root, JOB, data, 1), 0, len(data))
    tensor = TensorEntry("model.weight", "uint8", (len(data),), (piece,))
    store.commit(root, Manifest(JOB, ManifestName(1, step, 0), 1, {"step": step}, {}, (tensor,), {}))
    return root / JOB / "chunks" / piece.chunk


@pytest.fixture
def root(tmp_path: Path) -> Path:
    store.prepare(tmp_path, JOB)
    store.write_fence(tmp_path, JOB, 1, None)
    return tmp_path


def test_the_newest_checkpoint_is_found_with_its_size_and_not_a_byte_of_it_is_read(root: Path) -> None:
    put(root, 5)
    chunk = put(root, 12)
    size_bytes = chunk.stat().st_size
    chunk.write_bytes(b"x" * size_bytes)  # a reader finds it altered
    newest = FileCatalog().newest(root, JOB, 2)
    assert newest.found is not None
    assert (newest.found.name, newest.found.step, newest.found.size_bytes) == ("1-12-0", 12, size_bytes)
    assert newest.damaged == ()
    assert FileCatalog().find(root, JOB, "1-12-0") == newest.found


@pytest.mark.parametrize("damage", ["manifest", "cut", "missing"])
def test_a_plainly_damaged_checkpoint_is_skipped_and_reported(root: Path, damage: str) -> None:
    put(root, 5)
    chunk = put(root, 12)
    if damage == "manifest":
        (root / JOB / "manifests" / "1-12-0.json").write_text("{}")
    elif damage == "cut":
        chunk.write_bytes(chunk.read_bytes()[:-1])
    else:
        chunk.unlink()
    newest = FileCatalog().newest(root, JOB, 2)
    assert newest.found is not None
    assert newest.found.name == "1-5-0"
    (reported,) = newest.damaged
    assert "1-12-0" in reported
    assert FileCatalog().find(root, JOB, "1-12-0") is None


def test_if_all_are_damaged_none_is_found_and_each_is_reported(root: Path) -> None:
    put(root, 5).unlink()
    put(root, 12).unlink()
    newest = FileCatalog().newest(root, JOB, 2)
    assert newest.found is None
    assert len(newest.damaged) == 2


def test_of_a_fence_and_a_void_of_one_generation_the_first_one_wins(tmp_path: Path) -> None:
    catalog = FileCatalog()
    assert catalog.taken(tmp_path, "job") == 0
    assert catalog.fence(tmp_path, "job", 1, None)
    assert not catalog.void(tmp_path, "job", 1)
    assert catalog.void(tmp_path, "job", 2)
    assert catalog.void(tmp_path, "job", 2)
    assert not catalog.fence(tmp_path, "job", 2, None)
    assert catalog.fenced(tmp_path, "job") == 1
    assert catalog.taken(tmp_path, "job") == 2
    assert catalog.fence(tmp_path, "job", 3, None)
    assert catalog.fenced(tmp_path, "job") == 3


def test_a_generation_that_is_too_old_is_not_void(tmp_path: Path) -> None:
    catalog = FileCatalog()
    catalog.fence(tmp_path, "job", 3, None)
    with pytest.raises(CheckpointUnusable, match="too old"):
        catalog.fence(tmp_path, "job", 2, None)


def lost_fence(root: Path) -> None:
    (root / JOB / "fence" / "1").unlink()


def altered_fence(root: Path) -> None:
    (root / JOB / "fence" / "1").write_text("?")


def folder_that_is_a_file(root: Path) -> None:
    (root / JOB).rename(root / "away")
    (root / JOB).write_text("")


ACTS: list[Callable[[FileCatalog, Path], object]] = [
    lambda catalog, root: catalog.newest(root, JOB, 2),
    lambda catalog, root: catalog.fence(root, JOB, 2, None),
    lambda catalog, root: catalog.void(root, JOB, 2),
    lambda catalog, root: catalog.fenced(root, JOB),
]


def complaint(act: Callable[[FileCatalog, Path], object], root: Path) -> CheckpointUnusable | None:
    try:
        act(FileCatalog(), root)
    except CheckpointUnusable as error:
        return error
    return None


@pytest.mark.parametrize("harm", [lost_fence, altered_fence, folder_that_is_a_file])
def test_what_is_wrong_and_the_remedy_are_each_reported_once(root: Path, harm: Callable[[Path], None]) -> None:
    put(root, 5)
    harm(root)
    reported = [error for act in ACTS if (error := complaint(act, root)) is not None]
    assert reported, "none of these harms goes unnoticed"
    for error in reported:
        assert error.hint
        assert error.hint not in str(error)
        assert one_line(error) == f"{error} ({error.hint})"
