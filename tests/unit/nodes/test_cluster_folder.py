"""The folder of a cluster's files outlives its run only if its agent was killed, and nothing tidies it up before."""

from __future__ import annotations

import os
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

import pytest

from orchestrator.nodes.cluster import Cluster, remove_left


def test_what_tidies_up_old_files_finds_the_folder_of_a_living_cluster_locked(tmp_path: Path) -> None:
    """As systemd-tmpfiles asks: it skips a folder that it cannot lock."""
    cluster = Cluster(tmp_path)
    folder = os.open(cluster.folder, os.O_RDONLY | os.O_DIRECTORY)
    with pytest.raises(BlockingIOError):
        flock(folder, LOCK_EX | LOCK_NB)
    os.close(folder)
    remove_left(tmp_path)
    assert cluster.folder.exists()
