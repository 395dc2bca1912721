"""`up` and `down` where the leader's row is of another machine or boot, and where a launch was not written down."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator import Client
from orchestrator.config import Config, load_config
from orchestrator.engine import place
from orchestrator.engine.bring_up import launch_spec
from orchestrator.engine.checkpoints import FileCatalog
from orchestrator.engine.collect import collect
from orchestrator.engine.context import Context
from orchestrator.engine.shut_down import shut_down
from orchestrator.engine.world import World, open_world
from orchestrator.errors import UsageError
from orchestrator.services import lifecycle
from orchestrator.services.control_plane import DOWN, control_plane
from orchestrator.store import Leadership, Store, leader
from providers.clock import SystemClock
from providers.errors import ProviderError
from providers.local import LocalProvider
from providers.offer import CapacityType
from providers.procfs import process_start

EXAMPLE = Path(__file__).parents[3] / "examples" / "gpt.yaml"


@pytest.fixture
def config(tmp_path: Path) -> Config:
    environment = {"TRADEWIND_STATE_DIR": str(tmp_path / "state"), "TRADEWIND_PROVIDERS_LOCAL_HAZARD": "false"}
    return load_config(environ=environment, cwd=tmp_path)


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has nothing to do with Tradewind."""
    process = subprocess.Popen(["sleep", "100"])
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def led_elsewhere(config: Config, stranger: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The store, led by a process of another boot whose number is the stranger's here."""
    monkeypatch.setattr(leader, "TAKEOVER_S", 0.5)
    monkeypatch.setattr(leader, "_WATCH_S", 0.05)
    open_world(config).close()
    path = config.state_dir / "tradewind.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "UPDATE leader SET holder = 'other/1', host = 'other', realm = 'boot/1', pid = ?, pid_start = 1",
            (stranger.pid,),
        )
        connection.commit()
    return path


def test_a_silent_leader_of_another_boot_is_none(
    config: Config, led_elsewhere: Path, stranger: subprocess.Popen[bytes]
) -> None:
    with closing(open_world(config)) as world:
        assert lifecycle.control_plane(world) is None
    lifecycle.down(config, progress=lambda _: None)
    assert stranger.poll() is None


def test_a_leader_of_another_machine_is_ended_there_and_no_process_here_is_touched(
    config: Config, led_elsewhere: Path, stranger: subprocess.Popen[bytes]
) -> None:
    done = threading.Event()

    def beat() -> None:
        with closing(sqlite3.connect(led_elsewhere)) as connection:
            while not done.wait(0.05):
                connection.execute("UPDATE leader SET beat = beat + 1")
                connection.commit()

    beating = threading.Thread(target=beat)
    beating.start()
    try:
        with pytest.raises(UsageError, match="other/1 runs on other") as caught:
            lifecycle.down(config, progress=lambda _: None)
    finally:
        done.set()
        beating.join()
    assert caught.value.hint == "end it there"
    assert stranger.poll() is None


class NoSite:
    """A site that starts nothing: the machine only has to exist."""

    def bootstrap(self, *, token: str) -> str:
        return "sleep 100\n"

    def nodes(self) -> Mapping[str, object]:
        return {}


def test_down_books_a_machine_whose_launch_was_not_written_down(config: Config) -> None:
    with Client(config) as client:
        (planned,) = client.plan(EXAMPLE).new_jobs
        client.submit(replace(planned.spec, capacity=(CapacityType.ON_DEMAND,)))  # which there always is
    with closing(open_world(config)) as world:
        collect(world)
        ctx = Context(world, NoSite(), FileCatalog(), random.Random(1))  # type: ignore[arg-type]
        ctx.look()
        assert place.place(ctx)
        ctx.look()
        (migration,) = ctx.work.migrations
        with world.store.write() as tx:  # as bring_up does, just before it is killed
            tx.advance(migration.id, migration.step, migration.step, attempt=1)
            stored = tx.job(migration.job_id)
        cloud = world.providers["local"]
        assert isinstance(cloud, LocalProvider)
        (machine,) = cloud.launch(launch_spec(ctx, migration, stored))

    lifecycle.down(config, progress=lambda _: None)
    with closing(open_world(config)) as world, world.store.read() as tx:
        cloud = world.providers["local"]
        assert isinstance(cloud, LocalProvider)
        assert not cloud.processes_left()
        assert [run.instance_id for run in tx.runs()] == [machine]
        assert tx.total_nano_usd() == cloud.bill_nano_usd(machine) > 0


def lead(config: Config, holder: str) -> tuple[Store, Leadership]:
    store = Store.open(config.store_url, SystemClock())
    leadership = store.campaign(holder)
    assert leadership is not None
    return store, leadership


def test_a_down_waits_for_another_one_and_finds_nothing_left(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    open_world(config).close()
    store, leadership = lead(config, f"{DOWN}elsewhere/1")
    monkeypatch.setattr(lifecycle, "OTHER_DOWN_TIMEOUT_S", 0.0)
    with pytest.raises(UsageError, match="another `tradewind down`"):
        lifecycle.down(config, progress=lambda _: None)
    monkeypatch.undo()
    second = threading.Thread(target=lifecycle.down, args=(config,), kwargs={"progress": lambda _: None})
    second.start()
    with closing(store), store.pulse(leadership):
        store.resign(leadership)
        second.join()
    with closing(open_world(config)) as world:
        assert world.store.leader() is None


def test_a_down_that_leads_is_no_control_plane(config: Config) -> None:
    with closing(open_world(config)) as world:
        store, _ = lead(config, f"{DOWN}elsewhere/1")
        with closing(store):
            assert store.leader() is not None
            assert lifecycle.control_plane(world) is None
            assert not control_plane(world).running


def test_a_down_that_is_deposed_ends_whoever_took_over_and_begins_again(
    config: Config, stranger: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    open_world(config).close()
    path = config.state_dir / "tradewind.db"
    started, told = process_start(stranger.pid), list[str]()

    def take_over(world: World, leadership: Leadership, progress: Callable[[str], None]) -> list[ProviderError]:
        monkeypatch.undo()
        with closing(sqlite3.connect(path)) as connection:  # a standby of this machine, while `down` slept
            connection.execute(
                "UPDATE leader SET epoch = epoch + 1, holder = 'standby', pid = ?, pid_start = ?",
                (stranger.pid, started),
            )
            connection.commit()
        return shut_down(world, leadership, progress)

    monkeypatch.setattr(lifecycle, "shut_down", take_over)
    waiting = threading.Thread(target=stranger.wait)
    waiting.start()
    lifecycle.down(config, progress=told.append)
    waiting.join()
    assert told[0] == "a control plane has taken over meanwhile"
    assert told[1] == f"ending the control plane (process {stranger.pid})"
    with closing(open_world(config)) as world:
        assert world.store.leader() is None
