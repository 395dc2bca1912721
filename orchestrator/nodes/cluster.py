"""Cluster: the Ray cluster of one run, which the agents of its machines start and which ends with the run.

If there are several machines, the first starts the head and the others join it. A placement group reserves one place on
each, all or nothing, and each agent puts its actor into the place of its machine.

The only module that uses Ray's private interfaces (Node, RayParams and how a raylet starts its agents: a head without
dashboard, agents, autoscaler and log monitor starts in a third of the time and memory). tests/e2e/test_cluster.py
checks that the pinned version has what is used here.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from pathlib import Path
from typing import Any

from orchestrator.config.private import private_folder, write_privately
from orchestrator.nodes.actor import ACTOR_THREADS, RunActor
from orchestrator.nodes.seating import REACH_S, Seat, instance_id, reach

NAMESPACE = "tradewind"
OBJECT_STORE_BYTES = 80 << 20
_LOCK = "lock"
_GROUP = "run"
PEERS_EVERY_S = 0.5
_MOST_MISSES = 2
_LOOK_S, _WAIT_S = 0.1, 1.0
_AGENT_PORTS = (
    "METRICS_AGENT_PORT_NAME",
    "METRICS_EXPORT_PORT_NAME",
    "DASHBOARD_AGENT_LISTEN_PORT_NAME",
    "RUNTIME_ENV_AGENT_PORT_NAME",
)
_NO_PORT = -1
_IDLE = ("sh", "-c", "exec sleep infinity")  # the shell ignores the arguments that Ray appends
ALONE = Seat()


class Cluster:
    """Ray on this machine, with its files in a separate folder below `temp_dir`, whose path must be short because it
    holds sockets. Every process of the cluster needs its random token. It listens on the loopback interface only,
    unless its run has several machines (`seat`)."""

    def __init__(self, temp_dir: Path, seat: Seat = ALONE) -> None:
        """Raises OSError, StoreError."""
        self._seat = seat
        private_folder(temp_dir)
        remove_left(temp_dir)
        name = secrets.token_hex(3)
        new = temp_dir / f".{name}"  # hidden until it is locked, so remove_left does not delete it
        new.mkdir(mode=0o700)
        self._lock = os.open(new / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        flock(self._lock, LOCK_EX | LOCK_NB)
        self.folder = new.rename(temp_dir / name)
        # Cleaners of /tmp spare locked folders (tmpfiles.d): runs may last longer than 10 days.
        self._kept = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        flock(self._kept, LOCK_SH)
        self._token = self.folder / "token"
        write_privately(self._token, seat.token or secrets.token_hex(32))
        self._node: Any = None
        self._ray: Any = None
        self._group: Any = None
        self._peers_seen_at = 0.0
        self._peers: deque[str] = deque()  # where Ray listens on the machines of lower rank besides 0
        self._misses: dict[str, int] = {}  # how often in a row each address could not be reached
        self.up = self.joined = self.gathered = False

    def environment(self) -> dict[str, str]:
        """The environment variables of every process of the cluster.

        Ray gives each worker a process group and cleans up groups itself; machines are sessions that their provider
        ends, so that clean-up is off. A dead raylet is noticed within 2 s instead of 14, because its port refuses. A
        raylet that is only suspended, or waits for a core or a disk, has 20 s to answer: replacing its machine takes
        longer. Ray's byte-code must be cached: recompiling it costs seconds at each start.
        """
        return {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self._token),
            "RAY_process_group_cleanup_enabled": "0",
            "RAY_health_check_initial_delay_ms": "1000",
            "RAY_health_check_period_ms": "500",
            "RAY_health_check_timeout_ms": "5000",
            "RAY_health_check_failure_threshold": "4",
            # listen only on the loopback interface; otherwise Ray looks for an external address
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            "RAY_worker_niceness": "0",  # Ray's default, 15, would make actors wait for everything else on a busy host
            "RAY_DEDUP_LOGS": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_DISABLE_IMPORT_WARNING": "1",
            "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
            "PYTHONDONTWRITEBYTECODE": "",
        }

    @property
    def address(self) -> str:
        """The address at which the other machines of the run join, once it is `up`."""
        return str(self._node.gcs_address)

    def start(self) -> None:
        """Start or join Ray and attach this process to it. Takes seconds; raises Ray's exceptions."""
        os.environ.update(self.environment())
        import ray
        import ray._private.node
        import ray._private.parameter
        import ray._raylet

        raylet: Any = ray._raylet

        class Lean(ray._private.node.Node):  # type: ignore[misc]
            def start_api_server(self, *, include_dashboard: bool | None, raise_on_failure: bool) -> None:
                """Do nothing: without a dashboard it would only report usage, at the cost of a second and 90 MB."""

            def start_raylet(self, *arguments: Any, **options: Any) -> None:
                """Start a raylet with idle processes instead of its two agents, which cost two seconds and 190 MB.

                The dashboard agent reports metrics that are not used here. The runtime environment agent builds
                environments, which no actor here requests. The raylet waits until both have stored their ports, and
                ends when either of them ends.
                """
                for name in _AGENT_PORTS:
                    raylet.persist_port(self._session_dir, self._node_id, getattr(raylet, name), _NO_PORT)
                services = ray._private.services
                build = services._build_python_executable_command_memory_profileable
                services._build_python_executable_command_memory_profileable = lambda *_, **__: [*_IDLE]
                try:
                    super().start_raylet(*arguments, **options)
                finally:
                    services._build_python_executable_command_memory_profileable = build

        seat = self._seat
        params = ray._private.parameter.RayParams(
            num_cpus=1,
            num_gpus=0,
            object_store_memory=OBJECT_STORE_BYTES,
            min_worker_port=0,
            max_worker_port=0,
            gcs_server_port=0,
            gcs_address=seat.head,
            resources={} if seat.nodes == 1 else {_place(seat.rank): 1.0},
            include_dashboard=False,
            include_log_monitor=False,
            no_monitor=True,
            temp_dir=str(self.folder),
            node_ip_address=seat.address,
            dashboard_agent_listen_port=0,
        )
        self._node = Lean(params, head=seat.head is None, shutdown_at_exit=False, spawn_reaper=False)
        ray.init(
            address=self._node.gcs_address,
            namespace=NAMESPACE,
            log_to_driver=False,
            configure_logging=False,
            _node_ip_address=seat.address,
            _temp_dir=str(self.folder),  # several machines on one host may share the address
        )
        self._ray = ray
        self.up = True

    def gather(self) -> None:
        """Wait until the places on all machines of the run are reserved (`joined`), and make sure that this machine
        reaches the others of lower rank. Takes as long as the slowest machine. Raises PeerUnreachable."""
        seat = self._seat
        if seat.nodes == 1:
            self.gathered = True
            return
        util = self._ray.util
        if seat.rank == 0:
            bundles = [{_place(rank): 1.0} for rank in range(seat.nodes)]
            self._group = util.placement_group(bundles, strategy="STRICT_SPREAD", name=_GROUP)
        while self._group is None:
            with suppress(ValueError):  # machine 0 has not created it yet
                self._group = util.get_placement_group(_GROUP)
            self._check_processes()
            time.sleep(_LOOK_S)
        while not self._group.wait(_WAIT_S):
            self._check_processes()
        self.joined = True
        me = f"machine {seat.rank} ({instance_id()}, {seat.address})"
        for rank, address in self._addresses(range(1, seat.rank)):
            reach(address, me, REACH_S, whom=f"machine {rank}")
            self._peers.append(address)
        self.gathered = True

    def _addresses(self, ranks: range) -> Iterator[tuple[int, str]]:
        """Where Ray listens on the machines with these ranks."""
        nodes = self._ray.nodes() if ranks else []
        for rank in ranks:
            for each in nodes:
                if each["Alive"] and _place(rank) in each["Resources"]:
                    yield rank, f"{each['NodeManagerAddress']}:{each['NodeManagerPort']}"

    def _check_processes(self) -> None:
        if self._node.dead_processes():
            raise ChildProcessError("a process of Ray has died")

    def dead(self) -> str | None:
        """Why the cluster no longer works: a process of Ray or another machine of the run is gone. None while it
        works."""
        if self._node is None:
            return None
        return "a process of Ray has died" if self._node.dead_processes() else self._peer_lost()

    def _peer_lost(self) -> str | None:
        """Which other machine of the run is gone. Machine 0 knows from Ray. The others check whether Ray listens on
        machine 0, since a call of Ray would wait for it, and on one machine of lower rank after the other, because the
        processes of all machines communicate with one another."""
        seat, now = self._seat, time.monotonic()
        if seat.nodes == 1 or self._group is None or now - self._peers_seen_at < PEERS_EVERY_S:
            return None
        self._peers_seen_at = now
        if seat.head is None:
            alive = {name for each in self._ray.nodes() if each["Alive"] for name in each["Resources"]}
            gone = [rank for rank in range(seat.nodes) if _place(rank) not in alive]
            return f"machine {gone[0]} of the run is gone" if gone else None
        for address in (seat.head, *[*self._peers][:1]):
            self._misses[address] = 0 if _listens(address) else self._misses.get(address, 0) + 1
        if self._peers and not self._misses[self._peers[0]]:
            self._peers.rotate(-1)  # a machine that does not answer is checked again at once
        lost = next((address for address, misses in self._misses.items() if misses >= _MOST_MISSES), None)
        return None if lost is None else f"the machine of the run at {lost} cannot be reached"

    def actor(self, run_dir: str, *, with_setup: bool) -> Any:
        """A new actor for a run."""
        options: dict[str, Any] = {"num_cpus": 0, "max_restarts": 0, "max_concurrency": ACTOR_THREADS}
        if self._group is not None:
            from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

            place = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=self._seat.rank)
            options["scheduling_strategy"] = place
        return self._ray.remote(RunActor).options(**options).remote(run_dir, with_setup)

    def answer(self, reference: Any) -> Mapping[str, object] | None:
        """The result of a call if it has arrived, otherwise None. Raises ActorGone if the actor has died, Unreachable
        if the call failed otherwise."""
        if not self._ray.wait([reference], timeout=0)[0]:
            return None
        try:
            answer: Mapping[str, object] = self._ray.get(reference)
        except self._ray.exceptions.ActorDiedError as error:
            raise ActorGone from error
        except self._ray.exceptions.RayError as error:
            raise Unreachable from error
        return answer

    def end(self, actor: Any) -> None:
        """End an actor at once, and with it the trainer that it drives."""
        self._ray.kill(actor, no_restart=True)


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), PEERS_EVERY_S).close()
        return True
    except OSError:
        return False


def _place(rank: int) -> str:
    """The name of the resource that only the machine with this rank has."""
    return f"machine-{rank}"


class ActorGone(Exception):
    """The actor has died."""


class Unreachable(Exception):
    """The actor did not answer this call."""


def remove_left(temp_dir: Path) -> None:
    """Remove the folders of clusters whose agent is dead."""
    for folder in _clusters(temp_dir):
        with suppress(OSError):
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
            try:
                flock(lock, LOCK_EX | LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _clusters(temp_dir: Path) -> Iterator[Path]:
    yield from (path.parent for path in temp_dir.glob(f"*/{_LOCK}"))
