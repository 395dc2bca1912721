"""Real agents, each a process of this host, and a real control plane that drives them through a store in real time.

    python -m benchmarks._agents machines URL    forks one agent for each line "TOKEN BOOT_TOKEN" of its input python -m
    benchmarks._agents bucket          serves a bucket on loopback; prints its environment as JSON

The control plane's loop, store, pool of calls and runtime, the objects, and the agents with their loops, leases and
reports are real. The cloud (a fake one in real time, whose calls take CALL_S or are never answered) and the inside of a
machine are simulated. Neither Ray nor a trainer runs, and each agent reports one step per second.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from random import SystemRandom

from orchestrator.config import load_config
from orchestrator.config.private import private_folder
from orchestrator.daemon import keep_what_is_loaded, pause_s, share_memory_pools
from orchestrator.engine.calls import Calls, Pending, Place, Threads
from orchestrator.engine.context import Context
from orchestrator.engine.control import ControlPlane
from orchestrator.engine.jobs.checkpoints import FileCatalog
from orchestrator.engine.node_runtime import node_runtime
from orchestrator.installation import Installation
from orchestrator.model import CHEAPEST, Job, JobSpec, Where, new_id
from orchestrator.nodes import sealing
from orchestrator.nodes.key_file import KeyFile
from orchestrator.store import Store
from providers.clock import SystemClock
from providers.fake import Behaviour, FakeCloud, FakeProvider
from providers.instance import Instance
from providers.offer import Offer
from tests.rig import train_spec

BRING_UP_S, SETTLE_S, NOTICE_EVERY_S = 90.0, 2.0, 2.0
FENCE_EVERY_S = 0.5  # between two checks of a run whether it may train
BEHAVIOUR = Behaviour(boot_s=1.0, listing_lag_s=10.0, stop_s=2.0, describe_every_s=0.7)


@dataclass
class Driven:
    """CPU seconds of each tick while machines were given notice, wall seconds from each notice until it was recorded
    (infinite: never), the control plane's memory, and CPU seconds per second of all agents together."""

    ticks_s: list[float] = field(default_factory=list)
    reactions_s: list[float] = field(default_factory=list)
    training: int = 0
    memory_mb: float = 0.0
    agents_share: float = 0.0
    plane_share: float = 0.0


@dataclass(frozen=True)
class _Slow:
    """Makes calls in threads; calls to the cloud take `call_s`, and calls to `silent` regions are never answered. The
    simulated cloud is for one thread at a time: `cloud_free`."""

    call_s: float
    silent: frozenset[str]
    threads: Threads
    hang: threading.Event
    cloud_free: threading.Lock

    def carry(self, key: str, place: Place, call: Callable[[], object]) -> Pending:
        """See Carrier.carry."""

        def slowly() -> object:
            if place[1] in self.silent:
                self.hang.wait()
            time.sleep(self.call_s / 2)
            with self.cloud_free:
                answer = call()
            time.sleep(self.call_s / 2)
            return answer

        return self.threads.carry(key, place, slowly if place[0] == FakeProvider.name else call)

    def next_tick(self) -> None:
        """See Carrier.next_tick."""
        self.threads.next_tick()


class _Plane:
    """A control plane in this process, and the agents of its machines in others."""

    def __init__(
        self, folder: Path, root: str | None, catalog: Sequence[tuple[Offer, int]], carrier: _Slow, agents: _Agents
    ) -> None:
        settings: dict[str, object] = {"state_dir": str(folder), "providers.enabled": "fake"}
        settings |= {"limits.max_instances": 1000, "limits.max_usd_per_hour": 1e6}
        if root is not None:
            settings["store_root"] = root
        config = load_config(settings, environ={}, cwd=folder)
        private_folder(config.state_dir)
        clock, self._cloud_free = SystemClock(), carrier.cloud_free
        self.cloud = FakeCloud(clock, catalog=catalog, behaviour=BEHAVIOUR)
        self.store = Store.open(config.store_url, clock)
        installation = Installation(config, clock, self.store, {"fake": FakeProvider(clock, cloud=self.cloud)})
        leadership = self.store.campaign("benchmark")
        assert leadership is not None
        self.runtime = node_runtime(installation)
        self.runtime.lead(leadership.epoch)
        self.ctx = Context(installation, self.runtime, FileCatalog(), SystemRandom(), leadership, calls=Calls(carrier))
        self.plane = ControlPlane(self.ctx)
        self._key, self._agents, self._started = KeyFile(installation.state_dir / "control.key"), agents, set[str]()
        agents.open(installation.control_root)

    def submit(self, name: str, regions: tuple[str, ...]) -> None:
        spec = JobSpec(name, train_spec(100_000), objective=CHEAPEST, where=Where(regions=regions), probe=False)
        now_ms = self.ctx.now_ms
        with self.store.write() as tx:
            tx.add_job(Job(new_id("job", now_ms, self.ctx.random), spec, "me", now_ms, "queued"))

    def tick(self) -> float:
        """One pass as in the daemon, with its pause, and the boots of new machines. Returns its CPU seconds."""
        began_s = time.thread_time()
        changed = self.plane.tick()
        taken_s = time.thread_time() - began_s
        for machine in self.machines():
            if machine.alive and machine.token not in self._started:
                self._started.add(machine.token)
                self._agents.boot(machine.token, sealing.boot_token(self._key(), machine.token))
        if not changed:
            time.sleep(pause_s(self.ctx.work))
        return taken_s

    def machines(self) -> Sequence[Instance]:
        with self._cloud_free:
            return self.cloud.instances()

    def training(self) -> int:
        return sum(run.state == "training" for run in self.ctx.work.runs)

    def is_noticed(self, run_id: str) -> bool:
        with self.store.read() as tx:
            return any(each.run_id == run_id for each in tx.events(kinds=("instance.notice",), newest_first=True))

    def close(self) -> None:
        self.runtime.close()
        self.store.close()


class _Agents:
    """The process that forks the agents."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def open(self, url: str) -> None:
        command = [sys.executable, "-m", "benchmarks._agents", "machines", url]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True)

    def boot(self, token: str, boot_token: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{token} {boot_token}\n")
        self._process.stdin.flush()

    def cpu_s(self) -> float:
        """CPU seconds of the living agents so far."""
        assert self._process is not None
        ticks = 0
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                fields = path.read_text().rpartition(")")[2].split()
                if int(fields[3]) == self._process.pid and int(path.parent.name) != self._process.pid:
                    ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def drive(
    catalog: Sequence[tuple[Offer, int]],
    regions: Sequence[str],
    silent: frozenset[str],
    *,
    machines: int,
    notices: int,
    call_s: float,
    bucket: bool,
) -> Driven:
    """Bring up this many machines, then give some of them notice, one after the other."""
    share_memory_pools()  # as the daemon does
    found, hang, agents = Driven(), threading.Event(), _Agents()
    with tempfile.TemporaryDirectory(prefix="tw-agents-") as folder, _bucket(bucket) as root:
        carrier = _Slow(call_s, frozenset(), Threads(), hang, threading.Lock())
        plane = _Plane(Path(folder), root, catalog, carrier, agents)
        try:
            for number in range(machines):
                own = number % len(regions)
                plane.submit(f"job-{number}", tuple(regions[own : own + 2]))
            until_s = time.monotonic() + BRING_UP_S
            while plane.training() < machines and time.monotonic() < until_s:
                plane.tick()
            found.training = plane.training()
            keep_what_is_loaded()  # as the daemon does
            plane.ctx.calls = Calls(replace(carrier, silent=silent))
            _run(plane, found, SETTLE_S, lambda: False)
            found.ticks_s.clear()
            began_s, agents_s, plane_s = time.monotonic(), agents.cpu_s(), time.process_time()
            for number in range(notices):
                _notice(plane, found, regions[len(silent) + number % (len(regions) - len(silent))])
            passed_s = time.monotonic() - began_s
            found.agents_share = (agents.cpu_s() - agents_s) / passed_s
            found.plane_share = (time.process_time() - plane_s) / passed_s
            found.memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        finally:
            hang.set()
            agents.close()
            plane.close()
    return found


def _notice(plane: _Plane, found: Driven, region: str) -> None:
    spared = (each for each in plane.machines() if each.alive and each.notice_deadline_ms is None)
    machine = next((each for each in spared if f"/{region}/" in each.offer_id), None)
    if machine is None:
        return
    run_id, given_s = machine.tags["tradewind-run"], time.monotonic()
    plane.cloud.preempt(machine.id, notice_s=600.0)
    noticed = _run(plane, found, 10.0, lambda: plane.is_noticed(run_id))
    found.reactions_s.append(time.monotonic() - given_s if noticed else inf)
    _run(plane, found, max(0.0, given_s + NOTICE_EVERY_S - time.monotonic()), lambda: False)


def _run(plane: _Plane, found: Driven, seconds: float, ends: Callable[[], bool]) -> bool:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        found.ticks_s.append(plane.tick())
        if ends():
            return True
    return False


@contextmanager
def _bucket(wanted: bool) -> Iterator[str | None]:
    """The root of a store in a bucket of a server in another process, whose environment is set; None for a folder."""
    if not wanted:
        yield None
        return
    command = [sys.executable, "-m", "benchmarks._agents", "bucket"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        given: dict[str, str] = json.loads(server.stdout.readline())
        root = given.pop("root")
        os.environ.update(given)
        try:
            yield root
        finally:
            for name in given:
                del os.environ[name]
            server.kill()


# -- in the other processes -------------------------------------------------------------------------------------------
class _Crew:
    """The report of a run without Ray and trainer: a step per second."""

    def __init__(self) -> None:
        self._run_id, self._state, self._began_s = "", "prepared", 0.0
        self._spec: Mapping[str, object] = {}
        self._catalog, self._asked_s = FileCatalog(), 0.0

    def begin(self, run_id: str, _run_dir: str, **_given: bool) -> None:
        self._run_id, self._state = run_id, "prepared"

    def train(self, spec: Mapping[str, object], _secrets: Mapping[str, str]) -> None:
        self._state, self._spec = "restored", spec

    def show_stacks(self) -> None:
        """Does nothing."""

    def end(self) -> None:
        """Does nothing."""

    def heard(self, run_id: str) -> tuple[Mapping[str, object] | None, float]:
        if run_id != self._run_id:
            return None, 0.0
        if self._state == "restored" and time.monotonic() - self._asked_s > FENCE_EVERY_S:
            self._asked_s = time.monotonic()
            if self._catalog.fenced(str(self._spec["checkpoint_root"]), str(self._spec["job_id"])):
                self._state, self._began_s = "training", time.monotonic()
        said: dict[str, object] = {"state": self._state}
        if self._state == "training":
            step = int(time.monotonic() - self._began_s)
            said |= {"step": step, "start_step": 0, "step_wall_s": 1.0, "useful_s": float(step)}
        return said, 0.0


class _Machine:
    """A machine without a trainer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def look(self, *, blameless: bool) -> None:
        """Nothing to end."""

    def renew(self) -> None:
        """Nothing to renew."""


def _agent(url: str, token: str, boot_token: str) -> None:
    """Like orchestrator.nodes.agent.main, without Ray."""
    from orchestrator.nodes.agent import LOOK_S, Agent
    from orchestrator.nodes.channel import Channel, Pace, control_store

    store, ended = control_store(url), threading.Event()
    agent = Agent(Channel(store, token), Pace.of(store), _Crew(), _Machine(Path(".")))  # type: ignore[arg-type]
    assert agent.introduce(boot_token)
    threading.Thread(target=agent.talk, args=[ended], daemon=True).start()
    while True:
        agent.look()
        time.sleep(LOOK_S)


def _machines(url: str) -> None:
    import orchestrator.nodes.agent
    import orchestrator.nodes.channel  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while line := sys.stdin.readline():
        if os.fork() == 0:
            try:
                _agent(url, *line.split())
            finally:
                os._exit(1)


def _serve() -> None:
    from tests.clouds.s3 import S3, environment
    from tests.clouds.server import serving

    s3 = S3()
    with serving(s3) as server:
        print(json.dumps({**environment(server), "root": f"s3://{s3.bucket}/tw"}), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    _machines(sys.argv[2]) if sys.argv[1] == "machines" else _serve()
