"""The state folder is for its owner's eyes, whatever the umask of the process that opened it first."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.config import Config, load_config
from orchestrator.config.private import private_folder
from orchestrator.engine.node_runtime import node_runtime
from orchestrator.engine.orders import NotRead
from orchestrator.errors import StoreError
from orchestrator.installation import open_installation
from orchestrator.nodes.cluster import Cluster


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return load_config({"state_dir": str(tmp_path / "state")}, cwd=tmp_path, environ={})


def modes(folder: Path) -> dict[str, str]:
    """Permissions that somebody other than the owner has, by path."""
    found = [folder, *folder.rglob("*")]
    return {str(path): oct(path.stat().st_mode & 0o777) for path in found if path.stat().st_mode & 0o077}


def test_everything_that_opening_a_world_makes_is_its_owners_alone(config: Config, umask: int) -> None:
    # While it is open, its journals are there, too.
    with closing(open_installation(config, starts=True)) as installation, installation.store.write() as tx:
        assert tx.jobs() == []
        names = {path.name for path in config.state_dir.rglob("*")}
        assert {"tradewind.db", "tradewind.db-wal", "tradewind.db-shm", "clock.json", "local"} <= names
        assert modes(config.state_dir) == {}


def test_the_files_of_a_rays_cluster_and_of_the_control_objects_are_their_owners_alone(
    config: Config, tmp_path: Path, umask: int
) -> None:
    Cluster(tmp_path / "ray")
    with closing(open_installation(config, starts=True)) as installation:
        runtime = node_runtime(installation)
        runtime.bootstrap(token="token")
        while True:
            try:
                runtime.prepare("run-1", "token")
                break
            except NotRead:  # as the control plane, which asks again in its next tick
                os.sched_yield()
        runtime.close()
        assert [*(config.state_dir / "control").glob("*/token/order")]
        assert modes(config.state_dir) == {}
    assert modes(tmp_path / "ray") == {}


def test_a_folder_of_an_older_version_is_closed_when_it_is_opened(config: Config) -> None:
    state = config.state_dir
    (state / "runs" / "run-1" / "control").mkdir(parents=True)
    (state / "outputs").mkdir(mode=0o700)
    for name in ("runs/run-1/log", "runs/run-1/control/progress.json", "control-plane.log"):
        (state / name).write_text("what nobody else must read")
        (state / name).chmod(0o664)
    (state / "runs" / "run-1" / "tool").write_text("#!/bin/sh\n")
    (state / "runs" / "run-1" / "tool").chmod(0o755)
    for folder in (state, state / "runs", state / "runs" / "run-1", state / "runs" / "run-1" / "control"):
        folder.chmod(0o755)
    open_installation(config).close()
    assert modes(state) == {}
    assert (state / "runs" / "run-1" / "tool").stat().st_mode & 0o777 == 0o700


def test_closing_a_folder_touches_nothing_that_a_link_in_it_leads_to(config: Config, tmp_path: Path) -> None:
    outside = tmp_path / "shared.bin"
    outside.write_bytes(b"for everybody")
    outside.chmod(0o644)
    config.state_dir.mkdir()
    config.state_dir.chmod(0o755)
    (config.state_dir / "clock.json").write_text("{}")
    (config.state_dir / "link").symlink_to(outside)
    (config.state_dir / "broken").symlink_to(tmp_path / "nowhere")
    open_installation(config).close()
    assert outside.stat().st_mode & 0o777 == 0o644


def test_a_folder_of_another_user_is_refused_by_name(tmp_path: Path) -> None:
    foreign = Path("/")
    if os.geteuid() == 0:
        foreign = tmp_path / "foreign"
        foreign.mkdir()
        os.chown(foreign, 65534, 65534)
    with pytest.raises(StoreError, match="belongs to another user") as caught:
        private_folder(foreign)
    assert "state_dir" in caught.value.hint


def test_a_folder_with_files_of_others_is_refused_and_left_as_it_is(config: Config) -> None:
    """As a home or a project folder that was named by mistake."""
    home = config.state_dir
    (home / "projects").mkdir(parents=True)
    (home / ".tradewind").mkdir()  # as for a state folder below it
    (home / "token").write_text("of something else")
    (home / "projects" / "page.html").write_text("for everybody")
    for path in (home, home / "projects"):
        path.chmod(0o755)
    (home / "projects" / "page.html").chmod(0o644)
    before = modes(home)
    with pytest.raises(StoreError, match="do not belong to Tradewind") as caught:
        open_installation(config)
    assert "state_dir" in caught.value.hint
    assert modes(home) == before
    assert sorted(path.name for path in home.iterdir()) == [".tradewind", "projects", "token"]
