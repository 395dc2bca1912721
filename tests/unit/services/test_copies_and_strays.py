"""A copied store beside the living one on the local provider: `up`, `down`, `doctor`, `reap`, `store adopt`."""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator import Client
from orchestrator.config import Config, load_config
from orchestrator.engine.machines import claims
from orchestrator.errors import NotFoundError, SupersededError
from orchestrator.installation import Installation, open_installation
from orchestrator.services.control_plane import lifecycle
from orchestrator.services.doctor import examine
from orchestrator.services.store import backups
from orchestrator.services.views import Check
from orchestrator.store import Leadership
from orchestrator.store.leadership import leader
from orchestrator.store.recovery.backups import back_up
from providers.base import LaunchSpec
from providers.procfs import process_start

OFFER = "local/north/north-a/sim.small/on_demand"


def configured(folder: Path, **variables: str) -> Config:
    environment = {"TRADEWIND_STATE_DIR": str(folder / "state"), "TRADEWIND_PROVIDERS_LOCAL_HAZARD": "false"}
    return load_config(environ=environment | variables, cwd=folder)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return configured(tmp_path)


@pytest.fixture
def copied(config: Config, tmp_path: Path) -> Config:
    """A copy of the store, on the same machines; the one that it was copied from has acted since."""
    act(config)
    path = tmp_path / "copy.db"
    back_up(config.store_url, path)
    act(config)
    return configured(tmp_path, TRADEWIND_STORE_URL=f"sqlite:///{path}")


def act(config: Config) -> None:
    """As a control plane does when it begins."""
    with closing(open_installation(config)) as installation:
        leadership = lead(installation)
        assert claims.renew(installation, leadership, installation.providers["local"], random.Random())
        installation.store.resign(leadership)


def lead(installation: Installation) -> Leadership:
    leadership = installation.store.campaign("test")
    assert leadership is not None
    return leadership


def rent(config: Config) -> str:
    """A machine that carries the installation's tag, and that no launch of the store made."""
    with closing(open_installation(config)) as installation:
        tags = {"tradewind-install": installation.store.install_id}
        (instance_id,) = installation.providers["local"].launch(
            LaunchSpec("another's", OFFER, "exec sleep 100\n", tags)
        )
    return instance_id


def living(config: Config) -> list[str]:
    with closing(open_installation(config)) as installation:
        return [each.id for each in installation.providers["local"].list_owned(installation.store.install_id)]


def check(config: Config, name: str) -> Check:
    (found,) = (each for each in examine(config).checks if each.name == name)
    return found


COMMANDS: list[Callable[[Config], object]] = [
    lambda config: lifecycle.up(config, progress=lambda _: None, warn=lambda *_: None),
    lambda config: lifecycle.down(config, progress=lambda _: None),
]


@pytest.mark.parametrize("command", COMMANDS, ids=["up", "down"])
def test_a_copy_of_a_store_that_has_acted_since_refuses(copied: Config, command: Callable[[Config], object]) -> None:
    with pytest.raises(SupersededError, match="another store with this installation's id") as caught:
        command(copied)
    assert "tradewind store adopt" in caught.value.hint


def test_down_on_a_copy_does_not_end_the_control_plane_of_the_store_that_it_was_copied_from(copied: Config) -> None:
    living_one = subprocess.Popen(["sleep", "100"])
    own = leader.Process.own()
    with closing(sqlite3.connect(copied.store_url.removeprefix("sqlite:///"))) as connection:
        connection.execute(
            "UPDATE leader SET holder = 'original', host = ?, realm = ?, pid = ?, pid_start = ?",
            (own.host, own.realm, living_one.pid, process_start(living_one.pid)),
        )
        connection.commit()
    try:
        with pytest.raises(SupersededError):
            lifecycle.down(copied, progress=lambda _: None)
        assert living_one.poll() is None
    finally:
        living_one.kill()
        living_one.wait()


@pytest.fixture
def copied_folder(config: Config, tmp_path: Path) -> Iterator[Config]:
    """A copy of the state folder, as `cp -r` makes it, beside the original, which this very process serves."""
    with closing(open_installation(config)) as installation:
        lead(installation)
        shutil.copytree(config.state_dir, tmp_path / "copy" / "state")
        yield configured(tmp_path / "copy")


@pytest.mark.parametrize("command", COMMANDS, ids=["up", "down"])
def test_a_copy_beside_the_running_control_plane_refuses(
    config: Config, copied_folder: Config, command: Callable[[Config], object]
) -> None:
    with pytest.raises(SupersededError, match=f"is a copy of {config.state_dir}/tradewind.db, and") as caught:
        command(copied_folder)
    assert "tradewind store adopt" in caught.value.hint
    with closing(open_installation(config)) as installation:
        assert lifecycle.control_plane(installation) is not None


def test_the_control_plane_of_the_original_does_not_run_for_a_copy(config: Config, copied_folder: Config) -> None:
    found = check(copied_folder, "control plane")
    assert (found.state, check(config, "control plane").state) == ("warn", "ok")
    assert f"is a copy of {config.state_dir}/tradewind.db" in found.found
    with Client(copied_folder) as client:
        view = client.control_plane.status()
        assert not view.running
        assert view.to_go_on.startswith("this store is a copy of ")
        with pytest.raises(SupersededError):
            client.control_plane.up()


def test_doctor_tells_a_copy_and_the_store_apart(config: Config, copied: Config) -> None:
    assert (check(config, "installation").state, check(copied, "installation").state) == ("ok", "fail")


def test_an_adopted_copy_acts_and_the_other_store_does_not(config: Config, copied: Config) -> None:
    with Client(copied) as client:
        client.store.adopt()
    act(copied)
    assert check(copied, "installation").state == "ok"
    with pytest.raises(SupersededError):
        act(config)


def test_down_leaves_a_machine_alone_that_its_store_did_not_rent(config: Config) -> None:
    instance_id = rent(config)
    lifecycle.down(config, progress=lambda _: None)
    assert living(config) == [instance_id]
    found = check(config, "machines")
    assert found.state == "warn"
    assert instance_id in found.found
    assert found.fix.endswith(f"tradewind reap {instance_id}")
    with Client(config) as client:
        client.system.reap(instance_id)
        assert living(config) == []
        assert check(config, "machines").state == "ok"
        with pytest.raises(NotFoundError, match=instance_id):
            client.system.reap(instance_id)


def test_a_store_that_was_restored_in_place_acts_again(config: Config, tmp_path: Path) -> None:
    act(config)
    path = tmp_path / "monday.db"
    backups.backup(config, path)
    act(config)
    backups.restore(config, path)
    act(config)
    assert check(config, "installation").state == "ok"


def test_a_store_that_is_restored_where_none_was_asks_first(config: Config, tmp_path: Path) -> None:
    act(config)
    path = tmp_path / "monday.db"
    backups.backup(config, path)
    act(config)
    elsewhere = configured(tmp_path, TRADEWIND_STORE_URL=f"sqlite:///{tmp_path}/elsewhere.db")
    backups.restore(elsewhere, path)
    with pytest.raises(SupersededError):
        act(elsewhere)
