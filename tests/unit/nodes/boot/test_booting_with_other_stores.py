"""User data for a store of Google or Azure, on real processes: how a machine tells that it cannot be used."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchestrator.errors import SiteError
from orchestrator.nodes.access.issuing import Issuer
from orchestrator.nodes.boot import launching, user_data
from orchestrator.nodes.boot.launching import Launching, Remote
from orchestrator.nodes.boot.user_data import MOST_BYTES
from orchestrator.nodes.channel import Channel
from tests.clouds import blob, gcs
from tests.clouds.guarded_blob import GuardedBlob
from tests.clouds.guarded_gcs import GuardedGcs
from tests.clouds.server import serving
from tests.machines_from_nothing import Host
from trainers.objects.opening import open_store

TOKEN, PATIENCE_S = "launch-1", 60.0


@pytest.fixture(params=["gs", "az"])
def root(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an installation's place in a bucket that checks what each machine may do."""
    cloud = GuardedGcs() if request.param == "gs" else GuardedBlob()
    with serving(cloud) as server:
        own = gcs.environment(server) if isinstance(cloud, GuardedGcs) else blob.environment(server, cloud.key)
        for name, value in own.items():
            monkeypatch.setenv(name, value)
        yield f"gs://{cloud.bucket}/tw" if isinstance(cloud, GuardedGcs) else f"az://{cloud.container}/tw"


def made(root: str, nodes: int = 1) -> str:
    """The user data of so many machines with this store."""
    launching = Launching(root, "install", lambda: b"k" * 32, Issuer(lambda: datetime.now(UTC)))  # noqa: TID251
    return launching.user_data(TOKEN, Remote("job-1", "run-1", f"{root}/checkpoints"), nodes)


def reported(root: str, host: Host, nodes: int = 1) -> str:
    """What a machine that boots with this store says is wrong with it."""
    text = made(root, nodes)
    assert len(text.encode()) < MOST_BYTES
    text = text.replace("/opt/*/bin/python3 /usr/local/bin/python3", "")
    assert host.boot(text).wait(PATIENCE_S) == 1
    facts = Channel(open_store(f"{root}/control/install"), TOKEN).facts()
    assert facts is not None
    assert facts.error in host.said()
    return facts.error


def test_user_data_that_is_too_long_names_what_makes_it_shorter_with_this_store(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_data, "MOST_BYTES", 4096)
    with pytest.raises(SiteError, match="limit is 4096") as caught:
        made(root)
    assert {"gs": "machines.role", "az": "AZURE_STORAGE_ACCOUNT_KEY"}[root[:2]] in caught.value.hint
    assert "IAM" not in caught.value.hint


def test_so_many_machines_that_they_could_not_read_what_they_may_ask_are_not_launched(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launching, "MOST_SEATS_BYTES", 4096)
    with pytest.raises(SiteError, match="40 machines") as caught:
        made(root, 40)
    assert "resources.nodes" in caught.value.hint
    kept = open_store(root).keys()
    assert not [key for key in kept if key.endswith(("seats", "boot"))]


def test_without_a_python_it_says_so(root: str, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "curl").symlink_to(shutil.which("curl") or "curl")
    (tools / "python3").write_text("#!/bin/sh\nexit 4\n")  # Python 3.10
    (tools / "python3").chmod(0o755)
    assert "no Python 3.11" in reported(root, Host(tmp_path, str(tools)))


@pytest.mark.parametrize("nodes", [1, 2])
def test_with_one_it_says_what_is_wrong(root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nodes: int) -> None:
    monkeypatch.setattr(launching, "MACHINES", ("s390x",))
    host = Host(tmp_path)
    try:
        assert "not Linux on s390x" in reported(root, host, nodes)
    finally:
        host.end()
