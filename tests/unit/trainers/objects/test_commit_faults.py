"""A sample of benchmarks/commit_faults.py: a fault or a pause anywhere in a save loses no acknowledged checkpoint."""

from pathlib import Path

import pytest

from benchmarks.commit_faults import Found, every
from trainers.objects.base import ObjectStore
from trainers.objects.bucket import open_bucket
from trainers.objects.folder import FolderStore


def test_no_request_of_a_save_may_fail_or_pause_so_that_an_acknowledged_checkpoint_is_lost(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    def root_of(place: str) -> ObjectStore:
        if kind == "folder":
            return FolderStore(tmp_path / place)
        url, patience = request.getfixturevalue("bucket_url"), request.getfixturevalue("patience")
        return open_bucket(f"{url}/{place}", patience)

    found = Found()
    every(kind, root_of, found, stride=9)
    assert (found.lost, found.wrong) == ([], [])
    assert found.histories > 9
    assert found.points[kind] > 20


def test_no_file_operation_of_a_save_may_fail_or_pause_so_that_an_acknowledged_checkpoint_is_lost(
    tmp_path: Path,
) -> None:
    found = Found()
    every("files", lambda place: FolderStore(tmp_path / place), found, files=True, stride=13)
    assert (found.lost, found.wrong) == ([], [])
    assert found.histories > 9
    assert found.points["files"] > 30
