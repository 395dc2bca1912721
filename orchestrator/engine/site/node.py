"""A node of a site, and its agent: what a machine's user data starts.

    python -m orchestrator.engine.site.node SITE_FOLDER TEMP_DIR TOKEN LEASE_S [ATTEMPT]

In this process's session it starts the trainer's process, which loads its libraries meanwhile, and a raylet labelled
with the launch token. Then it stays as the node's agent: it passes preemption notices from the provider's metadata to
the control directories of the runs on this node, renews their leases while the raylet lives and its head answers, and
asks them to stop on SIGTERM. It reports how the trainer ended if the raylet was alive then and this machine had not
been asked to end: only then is the machine not the cause. It starts another trainer process when one has ended and
another run is registered: the next attempt at the same work. When the raylet dies, the agent ends the whole session, so
that no actor outlives its node. It ignores heads started after its own: its raylet cannot join them, so the leases
expire.

The run actor registers its control directory as a file in $TRADEWIND_INSTANCE_DIR/runs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from orchestrator.engine.site.environment import (
    NODE_RESOURCE,
    Head,
    SiteFiles,
    alive,
    end_session,
    ray_environment,
)
from orchestrator.errors import SiteError
from providers.errors import ProviderError
from providers.local.metadata import read_notice
from providers.procfs import process_start
from trainers.control import ControlDirectory, Notice
from trainers.process.prewarm import EXIT_FILE, SOCKET, write_exit_status

POLL_S = 0.1
LEASE_RENEWAL_S = 1.0
START_ATTEMPTS = 3  # a raylet that misses one of Ray's fixed start limits is started again
START_PAUSE_S = 0.5
HEAD_WAIT_S = 60.0  # a head that died is being started again


class Agent:
    """The agent of a raylet that belongs to `head`. Files in `instance_dir`/runs name the control directories."""

    def __init__(self, head: Head, instance_dir: Path, lease_s: float) -> None:
        self._head = head
        self._instance_dir = instance_dir
        self._runs_dir = instance_dir / "runs"
        self._stopping = False
        self._metadata = os.environ.get("TRADEWIND_METADATA")
        self._lease_s = lease_s
        self._renewed_at = 0.0
        self._noticed: dict[Path, float] = {}
        self._head_seen_at = time.monotonic()

    def control_dirs(self) -> Iterator[Path]:
        """The control directories of the registered runs."""
        if self._runs_dir.is_dir():
            for registration in sorted(self._runs_dir.iterdir()):
                yield Path(registration.read_text())

    def wants_trainer(self, started: int) -> bool:
        """Whether more runs are registered than trainers were `started`: the next attempt of the job."""
        return not self._stopping and sum(1 for _ in self.control_dirs()) > started

    def carry_notice(self) -> None:
        """Pass a preemption notice on to each run, once."""
        if self._metadata is None:
            return
        try:
            notice = read_notice(Path(self._metadata))
        except ProviderError:
            return  # missing or damaged: the machine then ends without a notice
        if notice is None:
            return
        for control in self.control_dirs():
            if self._noticed.get(control) != notice.deadline_monotonic_s:
                ControlDirectory(control).put_notice(Notice(notice.kind, notice.deadline_monotonic_s))
                self._noticed[control] = notice.deadline_monotonic_s

    def watch_head(self) -> None:
        """Keep asking the head whether it is alive. Runs in its own thread, since the call may hang."""
        from ray._raylet import GcsClient  # type: ignore[attr-defined]

        client = None
        while alive(self._head):
            try:
                if client is None:
                    client = GcsClient(address=self._head.gcs_address)
                client.internal_kv_exists(b"tradewind-lease", namespace=b"tradewind", timeout=2)
                self._head_seen_at = time.monotonic()
            except Exception:
                client = None  # any RPC failure means the same: not reached
            time.sleep(LEASE_RENEWAL_S)

    def renew_leases(self) -> None:
        """Renew the leases: a run may train until `lease_s` after the head was last reached from here."""
        now = time.monotonic()
        if now - self._renewed_at >= LEASE_RENEWAL_S:
            self._renewed_at = now
            for control in self.control_dirs():
                ControlDirectory(control).put_lease(self._head_seen_at + self._lease_s)

    def report_exit(self, status: int) -> None:
        """Record how the trainer ended if it died before its raylet; not on a machine that is being ended."""
        if not self._stopping:
            write_exit_status(self._instance_dir, status)

    def stop_runs(self) -> None:
        """Ask all runs to save a checkpoint and end."""
        self._stopping = True
        for control in self.control_dirs():
            ControlDirectory(control).request_stop()


def main(folder: str, temp_dir: str, token: str, lease_s: str, attempt: str = "1") -> int:
    """Run a node and its agent until the raylet dies. Returns an exit code."""
    files = SiteFiles(Path(folder), Path(temp_dir))
    os.environ.update(ray_environment(files))
    instance_dir = Path(os.environ["TRADEWIND_INSTANCE_DIR"])
    trainer = _start_trainer(instance_dir)
    head = _await_head(files)
    if head is None:
        _say(f"no head of the site within {HEAD_WAIT_S:.0f} s")
        _end_session()
        return 1
    started = threading.Event()
    threading.Thread(target=_watch_start, args=(started, int(attempt)), daemon=True).start()
    try:
        node = _start_node(files, head, token)
    except Exception as error:
        _start_again(int(attempt), str(error))
    started.set()

    agent = Agent(head, instance_dir, float(lease_s))

    def terminated(_signal: int, _frame: FrameType | None) -> None:
        agent.stop_runs()

    signal.signal(signal.SIGTERM, terminated)
    threading.Thread(target=agent.watch_head, daemon=True).start()
    reported, trainers = False, 1
    while True:
        status = trainer.poll()
        if node.dead_processes():
            break
        if status is not None and not reported:
            reported = True
            agent.report_exit(status)
        if reported and agent.wants_trainer(trainers):
            trainer, reported, trainers = _start_trainer(instance_dir), False, trainers + 1
        agent.carry_notice()
        agent.renew_leases()
        time.sleep(POLL_S)
    _end_session()
    return 1


def _start_trainer(instance_dir: Path) -> subprocess.Popen[bytes]:
    """Start the process of the next run in this session; it loads its libraries while the raylet starts."""
    for left in (SOCKET, EXIT_FILE):
        (instance_dir / left).unlink(missing_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "trainers.process.prewarm", str(instance_dir)], stdin=subprocess.DEVNULL
    )


def _await_head(files: SiteFiles) -> Head | None:
    """Wait for the site's living head, since a machine may be up before it; None after HEAD_WAIT_S."""
    give_up_s = time.monotonic() + HEAD_WAIT_S
    while time.monotonic() < give_up_s:
        head = files.read_head()
        if head is not None and alive(head):
            return head
        time.sleep(POLL_S)
    return None


def _start_node(files: SiteFiles, head: Head, token: str) -> Any:
    """Start a raylet that joins the head. Ray waits half a minute for that, even if it died."""
    import ray._private.node
    import ray._private.parameter

    # own names: Ray's collide when two nodes of a host start at the same time
    sockets = {name: files.temp_dir / f"{name}-{os.getpid()}" for name in ("raylet", "plasma")}
    for socket in sockets.values():
        socket.unlink(missing_ok=True)
    params = ray._private.parameter.RayParams(
        gcs_address=head.gcs_address,
        num_cpus=1,
        num_gpus=0,
        resources={NODE_RESOURCE + token: 1.0},
        object_store_memory=80 << 20,
        min_worker_port=0,
        max_worker_port=0,
        node_manager_port=0,
        include_log_monitor=False,
        node_ip_address="127.0.0.1",
        dashboard_agent_listen_port=0,
        temp_dir=str(files.temp_dir),
        raylet_socket_name=str(sockets["raylet"]),
        plasma_store_socket_name=str(sockets["plasma"]),
    )
    return ray._private.node.Node(params, head=False, shutdown_at_exit=False, spawn_reaper=False)


def _watch_start(started: threading.Event, attempt: int) -> None:
    """Start again as soon as a child of this process (raylet or trainer) is dead."""
    while not started.wait(POLL_S):
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        if any(process_start(int(pid)) is None for pid in children) and not started.is_set():
            _start_again(attempt, "a process of it died")


def _start_again(attempt: int, why: str) -> NoReturn:
    """Restart this process in the same session, or end it after START_ATTEMPTS."""
    _say(f"start {attempt} of {START_ATTEMPTS} failed: {why}")
    _end_session()  # what the attempt has left
    with suppress(ChildProcessError):
        while os.waitpid(-1, 0):  # the next attempt must not see these as its own children
            pass
    if attempt >= START_ATTEMPTS:
        os._exit(1)  # the main thread may still be waiting for the raylet
    time.sleep(START_PAUSE_S)
    module = "orchestrator.engine.site.node"
    os.execv(sys.executable, [sys.executable, "-m", module, *sys.argv[1:5], str(attempt + 1)])


def _end_session() -> None:
    """End everything on this machine except the agent; the provider ends the rest."""
    try:
        end_session(os.getsid(0))
    except SiteError as error:
        _say(str(error))


def _say(message: str) -> None:
    """Print to the machine's console."""
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
