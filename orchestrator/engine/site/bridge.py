"""The bridge: the only process that is attached to a site's Ray as a driver.

    python -m orchestrator.engine.site.bridge SITE_FOLDER TEMP_DIR SOCKET_FD

Ray aborts an attached driver about a minute after its head is lost, so the control plane never attaches. It exchanges
JSON lines with this child over a socket pair, and starts another one if it dies or hangs. Every request is answered at
once from what is known; waiting for actors happens between requests. When the socket closes, the bridge ends; the
actors are detached and continue.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from orchestrator.config.private import PRIVATE_UMASK
from orchestrator.engine.site.actor import ACTOR_THREADS, RunActor
from orchestrator.engine.site.environment import NAMESPACE, NODE_RESOURCE, Answer, Request, SiteFiles, ray_environment
from orchestrator.formats.codec import dumps, loads
from trainers.checked_json import MOST_BYTES

REPORT_EVERY_S = 0.1
EAGER_EVERY_S = 0.02
EAGER_S = 5.0  # after a request: somebody waits for its effect
NODES_EVERY_S = 0.2


class Watched:
    """What is known of one run: its actor, the open question, the last answer."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.handle: Any = None
        self.pending: Any = None
        self.report: dict[str, object] | None = None  # None: no answer yet, which does not mean absent
        self.answered_at = time.monotonic()
        self.asked_at = 0.0
        self.eager_until = 0.0

    def every_s(self, now: float) -> float:
        """Seconds between two questions at the monotonic time `now`."""
        return EAGER_EVERY_S if now < self.eager_until else REPORT_EVERY_S


class Bridge:
    """The request handlers, and `poll`, which keeps their answers up to date."""

    def __init__(self) -> None:
        import ray
        import ray.exceptions

        self._ray = ray
        self._dead = ray.exceptions.ActorDiedError
        self._unreachable = ray.exceptions.RayError
        self._runs: dict[str, Watched] = {}
        self._nodes: dict[str, str] = {}
        self._nodes_at = 0.0
        self._refs: list[Any] = []  # results nobody waits for; kept so that their errors are not printed

    # -- requests ---------------------------------------------------------------------------------------------------
    def prepare(
        self, run_id: str, token: str, run_dir: str, setup: dict[str, object] | None, secrets: dict[str, str]
    ) -> None:
        """Start the run's actor on the node of `token`, with its setup if there is one. Idempotent."""
        actor = (
            self._ray.remote(RunActor)
            .options(
                name=run_id,
                namespace=NAMESPACE,
                lifetime="detached",
                get_if_exists=True,
                num_cpus=0,
                resources={NODE_RESOURCE + token: 0.01},
                max_restarts=0,
                max_concurrency=ACTOR_THREADS,
            )
            .remote(run_dir, setup is not None)
        )
        if setup is not None:
            self._fire(actor.set_up.remote(setup, secrets))
        watched = self._watch(run_id)
        if watched.handle is None:
            watched.handle = actor
            watched.answered_at = time.monotonic()
            watched.report = {"state": "starting"}

    def start(self, run_id: str, spec: dict[str, object], secrets: dict[str, str]) -> None:
        """Let a prepared run train. Raises LookupError without its actor."""
        self._fire(self._handle(run_id).train.remote(spec, secrets))

    def control(self, run_id: str, what: str, quiesce: dict[str, Any] | None = None) -> None:
        """Pass a request to a run (RunActor.control). Raises LookupError without its actor."""
        self._fire(self._handle(run_id).control.remote(what, quiesce))

    def kill(self, run_id: str) -> None:
        """Kill a run's actor, if there is one."""
        watched = self._watch(run_id)
        if watched.handle is None:
            watched.handle = self._find(run_id)
        if watched.handle is not None:
            self._ray.kill(watched.handle, no_restart=True)

    def reports(self, run_ids: list[str]) -> dict[str, dict[str, object]]:
        """The last report of each run that has one, with `silent_s`, the seconds since then."""
        now = time.monotonic()
        for run_id in set(self._runs) - set(run_ids):
            del self._runs[run_id]  # no longer asked for
        return {
            run_id: {**watched.report, "silent_s": now - watched.answered_at}
            for run_id in run_ids
            if (watched := self._watch(run_id)).report is not None
        }

    def nodes(self) -> dict[str, str]:
        """Living nodes: launch token -> address."""
        return self._nodes

    def pause_s(self) -> float:
        """How long to wait for a request before the next poll."""
        now = time.monotonic()
        return min((watched.every_s(now) for watched in self._runs.values()), default=REPORT_EVERY_S) / 2

    # -- keeping answers fresh --------------------------------------------------------------------------------------
    def poll(self) -> None:
        """Read the answers that have arrived and ask again where it is time."""
        now = time.monotonic()
        if now - self._nodes_at >= NODES_EVERY_S:
            self._nodes_at = now
            self._nodes = {
                resource.removeprefix(NODE_RESOURCE): node["NodeManagerAddress"]
                for node in self._ray.nodes()
                if node["Alive"]
                for resource in node["Resources"]
                if resource.startswith(NODE_RESOURCE)
            }
        for watched in self._runs.values():
            if watched.pending is None:
                if now - watched.asked_at >= watched.every_s(now):
                    self._ask(watched, now)
            elif self._ray.wait([watched.pending], timeout=0)[0]:
                self._hear(watched, now)
        if self._refs:
            done, self._refs = self._ray.wait(self._refs, num_returns=len(self._refs), timeout=0)
            del done

    def _ask(self, watched: Watched, now: float) -> None:
        watched.asked_at = now
        if watched.handle is None:
            watched.handle = self._find(watched.run_id)
        if watched.handle is None:
            watched.report, watched.answered_at = {"state": "absent"}, now
        else:
            watched.pending = watched.handle.report.remote()

    def _hear(self, watched: Watched, now: float) -> None:
        pending, watched.pending = watched.pending, None
        try:
            watched.report = _report(self._ray.get(pending))
        except self._dead:
            watched.handle = None
            watched.report = {**(watched.report or {}), "state": "absent"}
        except self._unreachable:
            return  # temporarily out of reach: silent, not gone
        watched.answered_at = now

    def _watch(self, run_id: str) -> Watched:
        return self._runs.setdefault(run_id, Watched(run_id))

    def _find(self, run_id: str) -> Any:
        try:
            return self._ray.get_actor(run_id, namespace=NAMESPACE)
        except ValueError:
            return None

    def _handle(self, run_id: str) -> Any:
        watched = self._watch(run_id)
        watched.eager_until = time.monotonic() + EAGER_S
        if watched.handle is None:
            watched.handle = self._find(run_id)
        if watched.handle is None:
            raise LookupError(f"run {run_id} has no actor")
        return watched.handle

    def _fire(self, ref: Any) -> None:
        self._refs.append(ref)


def _report(said: object) -> dict[str, object]:
    """The report, or a `malformed` one if it cannot be passed on: one run must not break the answer for all."""
    try:
        if isinstance(said, dict) and len(json.dumps(said)) <= MOST_BYTES:
            return said
        why = "it is not an object, or too long"
    except (TypeError, ValueError, RecursionError) as error:
        why = str(error)[:200]
    return {"state": "malformed", "error": f"its report cannot be passed on: {why}"}


def serve(bridge: Bridge, connection: socket.socket) -> None:
    """Answer requests line by line until the other end closes."""
    operations = {op: getattr(bridge, op) for op in ("prepare", "start", "control", "kill", "reports", "nodes")}
    selector = selectors.DefaultSelector()
    selector.register(connection, selectors.EVENT_READ)
    buffer = b""
    while True:
        if selector.select(timeout=bridge.pause_s()):
            received = connection.recv(1 << 20)
            if not received:
                return
            buffer += received
            *lines, buffer = buffer.split(b"\n")
            for line in lines:
                connection.sendall(_answer(operations, line) + b"\n")
        bridge.poll()


def _answer(operations: dict[str, Any], line: bytes) -> bytes:
    try:
        request = loads(Request, line)
        return dumps(Answer(operations[request.op](**request.arguments))).encode()
    except Exception as error:  # the bridge must answer: the engine decides what an error means
        return dumps(Answer(error=f"{type(error).__name__}: {error}")).encode()


def die_with_parent() -> None:
    """Have this process killed when the control plane is gone: a call into a dead Ray may never notice that."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL)


def main(folder: str, temp_dir: str, socket_fd: str) -> int:
    """Attach to the site's head and serve requests on the socket. Returns an exit code; 1 without a head."""
    die_with_parent()
    os.umask(PRIVATE_UMASK)
    files = SiteFiles(Path(folder), Path(temp_dir))
    os.environ.update(ray_environment(files))
    head = files.read_head()
    if head is None:
        return 1
    import ray

    ray.init(
        address=head.gcs_address,
        namespace=NAMESPACE,
        log_to_driver=False,
        logging_level="ERROR",
        _node_ip_address="127.0.0.1",
    )
    with socket.socket(fileno=int(socket_fd)) as connection:
        connection.sendall(dumps(Answer()).encode() + b"\n")
        serve(Bridge(), connection)
    ray.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
