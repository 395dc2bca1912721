"""`up` and `down` where the leader's row is of another machine or boot, and where a launch was not written down."""

from __future__ import annotations

import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator import Client
from orchestrator.config import Config, load_config
from orchestrator.daemon import Daemon
from orchestrator.engine.context import Context
from orchestrator.engine.direct_calls import Ask
from orchestrator.engine.jobs.checkpoints import FileCatalog
from orchestrator.engine.machines.collect import collect
from orchestrator.engine.machines.shut_down import shut_down
from orchestrator.engine.migration import place
from orchestrator.engine.migration.bring_up import launch_spec
from orchestrator.engine.migration.turns import Turns
from orchestrator.engine.node_runtime import NodeRuntime, node_runtime
from orchestrator.engine.secret_values import SecretValues
from orchestrator.errors import SiteError, StoreError, TradewindError, UsageError
from orchestrator.installation import Installation, open_installation
from orchestrator.services.control_plane import lifecycle
from orchestrator.services.control_plane.presence import DOWN, control_plane
from orchestrator.services.secrets.file import FILE, kept_secrets
from orchestrator.store import Leadership, Store
from orchestrator.store.leadership import leader
from providers.clock import SystemClock
from providers.errors import ProviderError
from providers.local import LocalProvider
from providers.offer import CapacityType
from providers.procfs import process_start
from tests.disks import mounted

EXAMPLE = Path(__file__).parents[3] / "examples" / "gpt.yaml"


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return at(tmp_path / "state")


def at(state: Path) -> Config:
    environment = {"TRADEWIND_STATE_DIR": str(state), "TRADEWIND_PROVIDERS_LOCAL_HAZARD": "false"}
    return load_config(environ=environment, cwd=state.parent)


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


def lead(config: Config, holder: str) -> tuple[Store, Leadership]:
    store = Store.open(config.store_url, SystemClock())
    leadership = store.campaign(holder)
    assert leadership is not None
    return store, leadership


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
    waiting, told = threading.Thread(target=stranger.wait), list[str]()
    with Client(config) as client:
        ids = [client.jobs.submit(EXAMPLE).id for _ in range(count)]
        lead(config, "here")[0].close()
        with closing(sqlite3.connect(config.state_dir / "tradewind.db")) as connection:
            connection.execute("UPDATE leader SET pid = ?, pid_start = ?", (stranger.pid, process_start(stranger.pid)))
            connection.execute("UPDATE job SET state = 'running'")
            connection.commit()
        waiting.start()
        client.control_plane.down(progress=told.append)
        waiting.join()
        resumed = (
            "resume it: tradewind resume gpt"
            if count == 1
            else f"resume them: tradewind resume JOB, for {', '.join(ids)}"  # their name names only the newest
        )
        how = ", with a checkpoint if it runs" if count == 1 else "s, running ones with a checkpoint"
        assert f"pausing {count} job{how} (to {resumed})" in told
        unreported = "gpt" if count == 1 else "gpt, gpt"
        assert any(
            line.startswith(f"no steps were reported by {unreported}: only data that its program") for line in told
        )
        with closing(sqlite3.connect(config.state_dir / "tradewind.db")) as connection:
            connection.execute("UPDATE job SET state = 'paused'")
            connection.commit()
        names = ["gpt"] if count == 1 else ids
        assert [client.jobs.resume(name).job_ids for name in names] == [(each,) for each in ids]


def test_a_down_that_is_deposed_ends_whoever_took_over_and_begins_again(
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


EIGHT_AT_ONCE = """
import os, sys, time
from pathlib import Path
from orchestrator.config import load_config
from orchestrator.installation import open_installation
from orchestrator.services.control_plane import lifecycle

config = load_config({"state_dir": sys.argv[1], "providers.enabled": "fake"}, environ={})
start, go = os.pipe()
mine, results = os.pipe()
ended, end = os.pipe()

def child():
    os.close(go)
    os.close(end)
    os.read(start, 1)  # ends when everybody is there
    installation = open_installation(config, starts=True)

    def lead():
        os.write(results, b"started\\n")
        assert installation.store.campaign(f"process {os.getpid()}") is not None
        return installation.store.leader()

    leader = lifecycle.started_once(installation, lead)
    os.write(results, f"{leader.pid}\\n".encode())
    os.close(results)
    os.read(ended, 1)  # a leader that has died is none

for _ in range(8):
    if os.fork() == 0:
        try:
            child()
        finally:
            os._exit(0)
os.close(go)
os.close(results)
while said := os.read(mine, 65536):
    sys.stdout.write(said.decode())
"""


def test_of_eight_processes_that_want_a_control_plane_at_once_on_a_fresh_machine_one_starts_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", EIGHT_AT_ONCE, str(tmp_path / "state")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    said = done.stdout.splitlines()
    assert said.count("started") == 1, done
    leaders = [line for line in said if line != "started"]
    assert (len(leaders), len(set(leaders))) == (8, 1), done


def test_processes_that_outlive_a_submitter_have_no_secret_of_a_job_in_their_environment(config: Config) -> None:
    path = config.state_dir.parent / "job.yaml"
    (path.parent / "train.py").write_text("def main(): pass\n")
    path.write_text(
        "name: secretive\n"
        "train: {entry: 'train:main', steps: 1, secrets: [TW_TOKEN, AWS_SECRET_ACCESS_KEY]}\nresources: {cpu: 1}\n"
    )
    given = {"TW_TOKEN": "of the job", "AWS_SECRET_ACCESS_KEY": "of the control plane, too", "PATH": "/bin"}
    kept = {"AWS_SECRET_ACCESS_KEY": "of the control plane, too", "PATH": "/bin"}
    with pytest.MonkeyPatch.context() as environment:
        for name, value in given.items():
            environment.setenv(name, value)
        with Client(config) as client:
            job = client.jobs.submit(path)
    with closing(open_installation(config)) as installation:
        assert lifecycle.environment_to_keep(installation, given) == kept
        with installation.store.write() as tx:
            tx.set_job_state(job.id, "cancelled")
        assert lifecycle.environment_to_keep(installation, given) == given


def test_a_control_plane_that_does_not_start_says_why(tmp_path: Path) -> None:
    settings = {"state_dir": str(tmp_path), "secrets.key_file": str(tmp_path / "secrets.key")}
    inside = load_config(settings, environ={}, cwd=tmp_path)
    with (
        closing(open_installation(inside)) as installation,
        pytest.raises(SiteError, match="in the state folder") as caught,
    ):
        lifecycle.start_in_background(installation, os.environ)
    assert "did not start: secrets.key_file" in str(caught.value)
    assert "control-plane.log" in caught.value.hint


def test_a_control_plane_in_the_background_leaves_where_another_one_lives_and_leads(config: Config) -> None:
    with closing(open_installation(config)) as installation, closing(open_installation(config)) as other:
        assert other.store.campaign("another one") is not None
        daemon = Daemon(installation, node_runtime(installation), SecretValues(), stands_by=False)
        assert daemon.run(once=False) == 0
        leader = installation.store.leader()
        assert leader is not None
        assert leader.holder == "another one"


def test_a_control_plane_that_takes_over_reads_the_kept_secrets_anew_and_leads_also_where_it_cannot(
    config: Config, tmp_path: Path
) -> None:
    config = replace(config, secrets=replace(config.secrets, key_file=tmp_path / "key"))
    with closing(open_installation(config)) as installation:
        standing_by = kept_secrets(config)
        kept_secrets(config).give({"job_1": {"TW_TOKEN": "of the job"}})
        assert Daemon(installation, node_runtime(installation), standing_by).run(once=True) == 0
        assert standing_by.mask("of the job") == "[secret TW_TOKEN]"
        (config.state_dir / FILE).write_text("damaged")
        assert Daemon(installation, node_runtime(installation), standing_by).run(once=True) == 0
        assert standing_by.mask("of the job") == "[secret TW_TOKEN]"


def test_a_control_plane_on_a_store_from_a_backup_leads_anew_beyond_those_that_gave_orders_since(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    led: list[int] = []
    monkeypatch.setattr(NodeRuntime, "lead", lambda _, epoch: led.append(epoch))
    monkeypatch.setattr(NodeRuntime, "outranked_by", property(lambda _: 41 if led[-1] <= 41 else None))
    with closing(open_installation(config)) as installation:
        assert Daemon(installation, node_runtime(installation), SecretValues()).run(once=True) == 0
    assert len(led) == 2
    assert led[0] < led[1] == 42


LOGS = """
import os, sys
from pathlib import Path
from orchestrator.config.private import append_privately
from orchestrator.services.control_plane.background_log import ControlPlaneLog

path = Path(sys.argv[1])
with append_privately(path) as file:  # as `up` starts a control plane
    os.dup2(file.fileno(), 1)
    os.dup2(file.fileno(), 2)
log = ControlPlaneLog(path, limit_bytes=2000)
for number in range(200):
    log.say(f"line {number} " + "x" * 50)
os.write(2, b"last words, past everything\\n")
print("said to stdout")
"""


def test_the_log_of_a_control_plane_stays_small_and_last_words_still_land_in_it(tmp_path: Path) -> None:
    path = tmp_path / "control-plane.log"
    subprocess.run([sys.executable, "-c", LOGS, str(path)], check=True)
    files = sorted(tmp_path.iterdir())
    assert [each.name for each in files] == ["control-plane.log", "control-plane.log.1", "control-plane.log.2"]
    assert all(each.stat().st_size < 2200 for each in files)
    assert {each.stat().st_mode & 0o777 for each in files} == {0o600}
    newest = path.read_text()
    assert "line 199 " in newest
    assert "last words, past everything\n" in newest
    assert "said to stdout\n" in newest
    lines = [line.split()[2] for each in reversed(files) for line in each.read_text().splitlines() if " line " in line]
    assert lines == [str(number) for number in range(int(lines[0]), 200)]


ROTATOR = """
import os, signal, sys
from pathlib import Path
from orchestrator.config.private import append_privately
from orchestrator.services.control_plane.background_log import ControlPlaneLog

path, name, begin, end, sleeps = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:]
with append_privately(path) as file:
    os.dup2(file.fileno(), 1)
    os.dup2(file.fileno(), 2)
same = os.path.samestat

def asleep(*stats):
    found = same(*stats)
    if sleeps:
        sleeps.clear()
        os.kill(os.getpid(), signal.SIGSTOP)
    return found

os.path.samestat = asleep
log = ControlPlaneLog(path, limit_bytes=2000)
for number in range(begin, end):
    log.say(f"line {name}{number} " + "x" * 60)
"""


def test_of_two_that_set_the_log_aside_at_once_one_waits_and_no_line_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "control-plane.log"

    def rotator(*arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", ROTATOR, str(path), *arguments])

    first = rotator("a", "0", "25", "sleeps")
    _, status = os.waitpid(first.pid, os.WUNTRACED)  # it has found that the file is large, and sleeps
    assert os.WIFSTOPPED(status)
    assert rotator("b", "0", "25").wait() == 0
    first.send_signal(signal.SIGCONT)
    assert first.wait() == 0
    text = "".join(each.read_text() for each in tmp_path.iterdir())
    said = {line.split()[2] for line in text.splitlines()}
    assert said == {f"{name}{number}" for name in "ab" for number in range(25)}


def test_a_line_is_written_even_where_the_log_cannot_be_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "gone" / "control-plane.log"
    path.parent.mkdir()
    script = LOGS.replace("log = ", "os.rename(path.parent, path.parent.with_name('moved')); log = ")
    subprocess.run([sys.executable, "-c", script, str(path)], check=True)
    assert "line 199 " in (tmp_path / "moved" / "control-plane.log").read_text()
