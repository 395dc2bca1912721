"""RayRuntime: this host's site as seen by the engine.

Head and bridge are started in the background when the first run needs them, the bridge again if it dies or hangs, and
both if the head dies while it is needed. Until they are up, calls about runs raise SiteError, so that the engine's loop
never waits for them. Everything that Ray runs outlives this object.
"""

from __future__ import annotations

import os
import select
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from orchestrator.config import Config
from orchestrator.config.private import append_privately
from orchestrator.engine.machines.reports import report_of
from orchestrator.engine.runtime import RunReport, RunSpec
from orchestrator.engine.site.environment import Answer, Head, Request, SiteFiles, alive, ray_environment, writing
from orchestrator.engine.site.keeper import HeadKeeper
from orchestrator.errors import MissingExtraError, SiteError
from orchestrator.formats.codec import CodecError, dumps, loads
from orchestrator.installation import Installation
from trainers.control import QuiesceOrder
from trainers.spec import SetupSpec

BRIDGE_START_S = 30.0
ANSWER_S = 5.0  # a bridge answers at once unless its own call into Ray hangs
QUIESCE_S = 30.0
UNREACHED_S = 60.0  # a living head to which no bridge can attach for this long, and for a lease, is replaced


def site_files(config: Config) -> SiteFiles:
    """The files of this host's site."""
    return SiteFiles(config.state_dir / "site", config.site.temp_dir)


def head_lives(config: Config) -> bool:
    """Whether Ray runs on this host."""
    head = site_files(config).read_head()
    return head is not None and alive(head)


def site_runtime(installation: Installation, environment: Mapping[str, str] = os.environ) -> RayRuntime:
    """The runtime of this host's site. A head that it starts gets `environment`."""
    files = site_files(installation.config)
    return RayRuntime(
        files, installation.state_dir / "runs", lease_s=installation.config.lease_s, environment=environment
    )


class RayRuntime:
    """Implements orchestrator.engine.runtime.Runtime on the Ray cluster of this host."""

    def __init__(
        self, files: SiteFiles, runs_dir: Path, *, lease_s: float, environment: Mapping[str, str] = os.environ
    ) -> None:
        self._files = files
        self._runs_dir = runs_dir
        self._lease_s = lease_s
        self._keeper = HeadKeeper(files, environment)
        self._bridge: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._buffer = b""
        self._bridged_head: Head | None = None
        self._bridge_ready = False
        self._bridge_deadline = 0.0
        self._reached_at = time.monotonic()

    # -- Runtime ----------------------------------------------------------------------------------------------------
    def up(self) -> bool:
        """See Runtime.up."""
        return self._keeper.head() is not None

    def release(self) -> None:
        """See Runtime.release."""
        self._drop_bridge()
        self._keeper.release()

    def bootstrap(self, *, token: str) -> str:
        """See Runtime.bootstrap."""
        command = [
            sys.executable,
            "-m",
            "orchestrator.engine.site.node",
            str(self._files.folder),
            str(self._files.temp_dir),
            token,
            str(self._lease_s),
        ]
        return f"#!/usr/bin/env bash\nexec {shlex.join(command)}\n"

    def nodes(self) -> Mapping[str, str]:
        """See Runtime.nodes."""
        nodes: dict[str, str] = self._ask("nodes")
        return nodes

    def prepare(
        self, run_id: str, token: str, setup: SetupSpec | None = None, secrets: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """See Runtime.prepare."""
        wanted = None if setup is None else {**setup.to_json(), "root": str(self._files.folder / "environments")}
        run_dir = str(self._runs_dir / run_id)
        self._ask("prepare", run_id=run_id, token=token, run_dir=run_dir, setup=wanted, secrets=dict(secrets))

    def start(self, spec: RunSpec) -> None:
        """See Runtime.start."""
        self._ask("start", run_id=spec.run_id, spec=dict(spec.trainer), secrets=dict(spec.secrets))

    def reports(self, run_ids: Sequence[str]) -> Mapping[str, RunReport]:
        """See Runtime.reports."""
        answer: dict[str, object] = self._ask("reports", run_ids=list(run_ids))
        return {run_id: report_of(run_id, answer[run_id]) for run_id in run_ids if run_id in answer}

    def quiesce(self, run_id: str, successor: int) -> None:
        """See Runtime.quiesce. It lasts QUIESCE_S unless repeated."""
        quiesce = QuiesceOrder(time.monotonic() + QUIESCE_S, successor)
        self._ask("control", run_id=run_id, what="quiesce", quiesce=quiesce)

    def resume(self, run_id: str) -> None:
        """See Runtime.resume."""
        self._ask("control", run_id=run_id, what="resume")

    def stop(self, run_id: str) -> None:
        """See Runtime.stop."""
        self._ask("control", run_id=run_id, what="stop")

    def stacks(self, run_id: str) -> None:
        """See Runtime.stacks."""
        self._ask("control", run_id=run_id, what="stacks")

    def kill(self, run_id: str) -> None:
        """See Runtime.kill."""
        head = self._files.read_head()
        if head is not None and alive(head):  # no run outlives its head, so none is started for this
            self._ask("kill", run_id=run_id)

    def close(self) -> None:
        """See Runtime.close."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._bridge is not None:
            try:
                self._bridge.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self._bridge.kill()
                self._bridge.wait()
            self._bridge = None

    # -- head -------------------------------------------------------------------------------------------------------
    def stop_head(self) -> None:
        """End the head and every process of its session. Idempotent."""
        self.close()
        self._keeper.end()

    # -- bridge -----------------------------------------------------------------------------------------------------
    def _ask(self, op: str, **arguments: object) -> Any:
        """Send one request and return its answer. Raises SiteError, also while head or bridge are starting."""
        connection = self._connect()
        try:
            connection.sendall(dumps(Request(op, arguments)).encode() + b"\n")
            answer = self._receive(ANSWER_S)
        except OSError as error:
            self._drop_bridge()
            raise SiteError(f"the bridge to Ray is gone ({error}); starting another one") from error
        if answer is None:
            self._drop_bridge()
            raise SiteError(f"the bridge to Ray did not answer within {ANSWER_S:g} s; starting another one")
        self._reached_at = time.monotonic()
        if answer.error is not None:
            raise SiteError(f"the site refused {op}: {answer.error}")
        return answer.ok

    def _connect(self) -> socket.socket:
        """The connection to a bridge attached to the living head. Raises SiteError until there is one."""
        head = self._keeper.head()
        if head is None:
            self._reached_at = time.monotonic()
            raise SiteError("this host's site is starting")
        if self._bridged_head != head:
            self._drop_bridge()
        connection = self._socket if self._socket is not None else self._start_bridge(head)
        if not self._bridge_ready:
            self._await_bridge()
        return connection

    def _start_bridge(self, head: Head) -> socket.socket:
        require_ray()
        ours, theirs = socket.socketpair()
        folder, temp_dir = str(self._files.folder), str(self._files.temp_dir)
        with theirs, writing(self._files.folder), append_privately(self._files.folder / "bridge.log") as log:
            self._bridge = subprocess.Popen(
                [sys.executable, "-m", "orchestrator.engine.site.bridge", folder, temp_dir, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                env=os.environ | ray_environment(self._files),
            )
        self._socket, self._buffer, self._bridged_head, self._bridge_ready = ours, b"", head, False
        self._bridge_deadline = time.monotonic() + BRIDGE_START_S
        return ours

    def _await_bridge(self) -> None:
        """Check whether the bridge has attached. Raises SiteError if it has not."""
        now = time.monotonic()
        try:
            self._bridge_ready = self._receive(0.0) is not None
            failed = now > self._bridge_deadline
        except OSError:
            failed = True
        if failed:
            self._drop_bridge()
            if now - self._reached_at > max(UNREACHED_S, self._lease_s):
                self._keeper.end()  # all its runs have fenced themselves by now
            raise SiteError(
                "the bridge to Ray did not start", hint=f"the reason is in {self._files.folder / 'bridge.log'}"
            )
        if not self._bridge_ready:
            raise SiteError("the bridge to Ray is starting")

    def _receive(self, timeout_s: float) -> Answer | None:
        """The bridge's next line; None if there is none in time. Raises OSError if the bridge is gone."""
        assert self._socket is not None
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            if not select.select([self._socket], [], [], max(0.0, deadline - time.monotonic()))[0]:
                return None
            received = self._socket.recv(1 << 20)
            if not received:
                raise ConnectionError("it closed the connection")
            self._buffer += received
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            return loads(Answer, line)
        except CodecError as error:
            raise ConnectionError(f"its answer is not valid: {error}") from error

    def _drop_bridge(self) -> None:
        if self._bridge is not None:
            self._bridge.kill()
        self.close()


def require_ray() -> None:
    """Raises MissingExtraError if Ray is not installed."""
    if find_spec("ray") is None:
        raise MissingExtraError("ray", "ray")
