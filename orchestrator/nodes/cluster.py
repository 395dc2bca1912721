"""Cluster: the Ray cluster of one run, which its machine's agent starts, and which ends with it.

The only module that uses Ray's private interfaces (Node and RayParams: a head without dashboard, autoscaler and log
monitor starts in half the time and memory). tests/e2e/test_cluster.py holds the pinned version to what is used here.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Any

from orchestrator.config.private import private_folder, write_privately
from orchestrator.nodes.actor import ACTOR_THREADS, RunActor

NAMESPACE = "tradewind"
OBJECT_STORE_BYTES = 80 << 20
_LOCK = "lock"


class Cluster:
    """Ray on this machine, with its files in a folder of its own below `temp_dir`, whose path must be short, because it
    holds sockets. It listens on the loopback interface only, and every process of it needs its random token."""

    def __init__(self, temp_dir: Path) -> None:
        """Raises OSError, StoreError."""
        private_folder(temp_dir)
        remove_left(temp_dir)
        name = secrets.token_hex(3)
        new = temp_dir / f".{name}"  # hidden until it is locked, so that remove_left does not delete it
        new.mkdir(mode=0o700)
        self._lock = os.open(new / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        flock(self._lock, LOCK_EX | LOCK_NB)
        self.folder = new.rename(temp_dir / name)
        self._token = self.folder / "token"
        write_privately(self._token, secrets.token_hex(32))
        self._node: Any = None
        self._ray: Any = None
        self.up = False

    def environment(self) -> dict[str, str]:
        """The environment variables of every process of the cluster.

        Ray gives each worker a process group and cleans up groups itself; machines are sessions that their provider
        ends, so that clean-up is off. A dead raylet is noticed within 2 s instead of 14. Ray's byte-code must be
        cached: recompiling it costs seconds at each start.
        """
        return {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self._token),
            "RAY_process_group_cleanup_enabled": "0",
            "RAY_health_check_initial_delay_ms": "1000",
            "RAY_health_check_period_ms": "500",
            "RAY_health_check_timeout_ms": "1000",
            "RAY_health_check_failure_threshold": "4",
            # it only listens on the loopback interface; without this Ray looks for an external address
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            "RAY_worker_niceness": "0",  # Ray's default, 15, would make actors wait for everything else on a busy host
            "RAY_DEDUP_LOGS": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_DISABLE_IMPORT_WARNING": "1",
            "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
            "PYTHONDONTWRITEBYTECODE": "",
        }

    def start(self) -> None:
        """Start Ray and attach this process to it. Takes seconds; raises whatever Ray raises."""
        os.environ.update(self.environment())
        import ray
        import ray._private.node
        import ray._private.parameter

        class Head(ray._private.node.Node):  # type: ignore[misc]
            def start_api_server(self, *, include_dashboard: bool | None, raise_on_failure: bool) -> None:
                """Do nothing: without a dashboard it would only report usage, at the cost of a second and 90 MB."""

        params = ray._private.parameter.RayParams(
            num_cpus=1,
            num_gpus=0,
            object_store_memory=OBJECT_STORE_BYTES,
            min_worker_port=0,
            max_worker_port=0,
            gcs_server_port=0,
            include_dashboard=False,
            include_log_monitor=False,
            no_monitor=True,
            temp_dir=str(self.folder),
            node_ip_address="127.0.0.1",
            dashboard_agent_listen_port=0,
        )
        self._node = Head(params, head=True, shutdown_at_exit=False, spawn_reaper=False)
        ray.init(address=self._node.gcs_address, namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
        self._ray = ray
        self.up = True

    def dead(self) -> bool:
        """Whether a process of Ray has died, so that nothing can be expected of the cluster any more."""
        return self._node is not None and bool(self._node.dead_processes())

    def actor(self, run_dir: str, *, with_setup: bool) -> Any:
        """A new actor for a run."""
        options = {"num_cpus": 0, "max_restarts": 0, "max_concurrency": ACTOR_THREADS}
        return self._ray.remote(RunActor).options(**options).remote(run_dir, with_setup)

    def answer(self, reference: Any) -> Mapping[str, object] | None:
        """The result of a call if it has arrived, else None. Raises ActorGone if the actor has died, Unreachable if the
        call failed otherwise."""
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
