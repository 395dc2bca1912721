"""`down`, also where another machine or boot leads, and where a launch was not written down."""

from __future__ import annotations

import os
import random
import re
import signal
import sqlite3
import subprocess
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator import Client
from orchestrator.config import Config
from orchestrator.engine.context import Context
from orchestrator.engine.direct_calls import Ask
from orchestrator.engine.jobs.checkpoints import FileCatalog
from orchestrator.engine.machines.collect import collect
from orchestrator.engine.machines.shut_down import shut_down
from orchestrator.engine.migration import place
from orchestrator.engine.migration.bring_up import launch_spec
from orchestrator.engine.migration.turns import Turns
from orchestrator.errors import StoreError, TradewindError, UsageError
from orchestrator.installation import Installation, open_installation
from orchestrator.services.control_plane import lifecycle
from orchestrator.services.control_plane.presence import DOWN, control_plane
from orchestrator.store import Leadership
from orchestrator.store.leadership import leader
from providers.errors import ProviderError
from providers.local import LocalProvider
from providers.offer import CapacityType
from providers.procfs import process_start
from tests.disks import mounted
from tests.unit.services.control_plane.conftest import EXAMPLE, at, lead


@pytest.fixture
def led_elsewhere(config: Config, stranger: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The store, led by a process of another boot whose number is the stranger's here."""
    monkeypatch.setattr(leader, "TAKEOVER_S", 0.5)
    monkeypatch.setattr(leader, "_WATCH_S", 0.05)
    open_installation(config).close()
    path = config.state_dir / "tradewind.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "UPDATE leader SET holder = 'other/1', host = 'other', realm = 'boot/1', pid = ?, pid_start = 1, "
            "since_ms = 1",
            (stranger.pid,),
        )
        connection.commit()
    return path


def test_a_silent_leader_of_another_boot_is_none(
    config: Config, led_elsewhere: Path, stranger: subprocess.Popen[bytes]
) -> None:
    with closing(open_installation(config)) as installation:
        assert lifecycle.control_plane(installation) is None
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
    assert caught.value.hint == "stop it there"
    assert stranger.poll() is None


def test_down_ends_a_control_plane_that_is_stopped_as_any_other(
    config: Config, stranger: subprocess.Popen[bytes]
) -> None:
    """A stopped process gets no SIGTERM and pauses no job."""
    open_installation(config).close()
    own = leader.Process.own()
    with closing(sqlite3.connect(config.state_dir / "tradewind.db")) as connection, connection:
        connection.execute(
            "UPDATE leader SET holder = 'here/1', host = ?, realm = ?, pid = ?, pid_start = ?, since_ms = 1",
            (own.host, own.realm, stranger.pid, process_start(stranger.pid)),
        )
    stranger.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, stranger.pid, os.WSTOPPED | os.WNOWAIT)
    said: list[str] = []
    lifecycle.down(config, progress=said.append)
    assert stranger.wait() == -signal.SIGTERM  # not SIGKILL
    assert any("suspended" in line for line in said)


class NoSite:
    """A site that starts nothing: the machine only has to exist."""

    def bootstrap(self, *, token: str, nodes: int = 1, remote: object = None) -> str:
        return "sleep 100\n"

    def joined(self, token: str, nodes: int = 1) -> bool:
        return False


def machine_not_written_down(config: Config) -> str:
    """A machine that runs here for a job, and whose launch was not recorded."""
    with Client(config) as client:
        (planned,) = client.plans.create(EXAMPLE).new_jobs
        client.jobs.submit(replace(planned.spec, capacity=(CapacityType.ON_DEMAND,)))  # which there always is
    with closing(open_installation(config)) as installation:
        collect(installation)
        ctx = Context(installation, NoSite(), FileCatalog(), random.Random(1))  # type: ignore[arg-type]
        ctx.look()
        turns = Turns()
        turns.ask(ctx.work.jobs)
        assert place.place(ctx, turns)
        ctx.look()
        (migration,) = ctx.work.migrations
        with installation.store.write() as tx:  # as bring_up does, just before it is killed
            tx.advance(migration.id, migration.step, migration.step, attempt=1)
            stored = tx.job(migration.job_id)
        cloud = installation.providers["local"]
        assert isinstance(cloud, LocalProvider)
        (machine,) = cloud.launch(launch_spec(ctx, migration, stored, ctx.runtime.bootstrap(token=migration.token)))
    return machine


def test_down_books_a_machine_whose_launch_was_not_written_down(config: Config) -> None:
    machine = machine_not_written_down(config)
    lifecycle.down(config, progress=lambda _: None)
    with closing(open_installation(config)) as installation, installation.store.read() as tx:
        cloud = installation.providers["local"]
        assert isinstance(cloud, LocalProvider)
        assert not cloud.processes_left()
        assert [run.instance_id for run in tx.runs()] == [machine]
        assert tx.total_nano_usd() == cloud.bill_nano_usd(machine) > 0


@pytest.mark.parametrize("force", [False, True])
def test_a_down_on_a_full_disk_names_what_was_and_was_not_ended(
    tmp_path: Path, stranger: subprocess.Popen[bytes], force: bool
) -> None:
    (tmp_path / "disk").mkdir()
    with mounted(tmp_path / "disk", "size=30m") as disk:
        config = at(disk / "state")
        machine = machine_not_written_down(config)
        lead(config, "here")[0].close()
        waiting = threading.Thread(target=stranger.wait)
        waiting.start()
        with closing(sqlite3.connect(config.state_dir / "tradewind.db")) as connection, connection:
            connection.execute("UPDATE leader SET pid = ?, pid_start = ?", (stranger.pid, process_start(stranger.pid)))
        with closing(open_installation(config)) as of_control_plane:
            of_control_plane.providers["local"].list_owned(of_control_plane.store.install_id)
            fill(disk)
            with pytest.raises(StoreError, match="disk is full") as refused:
                lifecycle.down(config, progress=lambda _: None, force=force)
        it = "was ended" if force else rf"\(process {stranger.pid}\) was not ended"
        assert re.search(f"the control plane {it}, machines that still run: {machine}$", str(refused.value))
        assert "then run `tradewind down` again" in refused.value.hint
        (disk / "filler").unlink()
        lifecycle.down(config, progress=lambda _: None, force=True)
        with closing(open_installation(config)) as installation:
            cloud = installation.providers["local"]
            assert isinstance(cloud, LocalProvider)
            assert not cloud.processes_left()
        waiting.join()


def test_a_down_that_cannot_open_the_store_says_that_nothing_was_stopped(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    with mounted(tmp_path / "disk", "size=30m") as disk:
        open_installation(at(disk / "state")).close()
        fill(disk)
        with pytest.raises(TradewindError, match="nothing was stopped, and machines may still run"):
            lifecycle.down(at(disk / "state"), progress=lambda _: None)


def fill(disk: Path) -> None:
    with suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
        while True:
            filler.write(bytes(4096))


def test_a_down_waits_for_another_one_and_finds_nothing_left(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    open_installation(config).close()
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
    with closing(open_installation(config)) as installation:
        assert installation.store.leader() is None


def test_a_down_that_leads_is_not_a_control_plane(config: Config) -> None:
    with closing(open_installation(config)) as installation:
        store, _ = lead(config, f"{DOWN}elsewhere/1")
        with closing(store):
            assert store.leader() is not None
            assert lifecycle.control_plane(installation) is None
            assert not control_plane(installation).running


def test_a_job_that_cannot_be_read_keeps_no_down_from_ending_everything(
    config: Config, stranger: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "PAUSE_TIMEOUT_S", 0.5)
    with Client(config) as client:
        client.jobs.submit(EXAMPLE)
    lead(config, "here")[0].close()
    with closing(sqlite3.connect(config.state_dir / "tradewind.db")) as connection:
        connection.execute("UPDATE job SET spec = replace(spec, 'job-spec/1', 'job-spec/9')")
        connection.execute("UPDATE leader SET pid = ?, pid_start = ?", (stranger.pid, process_start(stranger.pid)))
        connection.commit()
    waiting = threading.Thread(target=stranger.wait)
    waiting.start()
    lifecycle.down(config, progress=lambda _: None)
    waiting.join()
    with closing(open_installation(config)) as installation, installation.store.read() as tx:
        assert [job.state for job in tx.outlines()] == ["paused"]


@pytest.mark.parametrize("count", [1, 2])
def test_down_names_the_commands_that_resume_what_it_pauses(
    config: Config, stranger: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(lifecycle, "PAUSE_TIMEOUT_S", 0.1)
    waiting, shown = threading.Thread(target=stranger.wait), list[str]()
    with Client(config) as client:
        ids = [client.jobs.submit(EXAMPLE).id for _ in range(count)]
        lead(config, "here")[0].close()
        with closing(sqlite3.connect(config.state_dir / "tradewind.db")) as connection:
            connection.execute("UPDATE leader SET pid = ?, pid_start = ?", (stranger.pid, process_start(stranger.pid)))
            connection.execute("UPDATE job SET state = 'running'")
            connection.commit()
        waiting.start()
        client.control_plane.down(progress=shown.append)
        waiting.join()
        resumed = (
            "resume it: tradewind resume gpt"
            if count == 1
            else f"resume them: tradewind resume JOB, for {', '.join(ids)}"  # their name names only the newest
        )
        how = ", with a checkpoint if it runs" if count == 1 else "s, running ones with a checkpoint"
        assert f"pausing {count} job{how} (to {resumed})" in shown
        unreported = "gpt" if count == 1 else "gpt, gpt"
        assert any(
            line.startswith(f"no steps were reported by {unreported}: only data that its program") for line in shown
        )
        with closing(sqlite3.connect(config.state_dir / "tradewind.db")) as connection:
            connection.execute("UPDATE job SET state = 'paused'")
            connection.commit()
        names = ["gpt"] if count == 1 else ids
        assert [client.jobs.resume(name).job_ids for name in names] == [(each,) for each in ids]


def test_a_down_that_is_deposed_ends_the_process_that_took_over_and_begins_again(
    config: Config, stranger: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    open_installation(config).close()
    path = config.state_dir / "tradewind.db"
    started, reported = process_start(stranger.pid), list[str]()

    def take_over(
        installation: Installation, leadership: Leadership, progress: Callable[[str], None], ask: Ask
    ) -> list[ProviderError]:
        monkeypatch.undo()
        with closing(sqlite3.connect(path)) as connection:  # a standby of this machine, while `down` slept
            connection.execute(
                "UPDATE leader SET epoch = epoch + 1, holder = 'standby', pid = ?, pid_start = ?",
                (stranger.pid, started),
            )
            connection.commit()
        return shut_down(installation, leadership, progress, ask)

    monkeypatch.setattr(lifecycle, "shut_down", take_over)
    waiting = threading.Thread(target=stranger.wait)
    waiting.start()
    with Client(config) as client:
        ended = client.control_plane.down(progress=reported.append)
        again = client.control_plane.down()
    waiting.join()
    assert [again.running, again.ended] == [False, False]
    assert [ended.running, ended.ended] == [False, True]
    assert reported[0] == "a control plane took over in the meantime"
    assert reported[1] == f"ending the control plane (process {stranger.pid})"
    with closing(open_installation(config)) as installation:
        assert installation.store.leader() is None
