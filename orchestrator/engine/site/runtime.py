"""RayRuntime: this host's site as the engine sees it.

Starts the head and the bridge when they are needed, starts the bridge again when it died or hangs, and both when the
head died; translates requests. Everything that Ray holds outlives this object. Must not know: policies, the store.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from orchestrator.config import Config
from orchestrator.engine.runtime import RunReport, RunSpec
from orchestrator.engine.site.environment import Head, SiteFiles, alive, ray_environment
from orchestrator.engine.world import World
from orchestrator.errors import MissingExtraError, SiteError

HEAD_START_S = 60.0
BRIDGE_START_S = 30.0
ANSWER_S = 5.0
HOLD_S = 30.0
START_ATTEMPTS = 3
_REPORT_FIELDS = {field.name for field in fields(RunReport)}


def site_files(config: Config) -> SiteFiles:
    """The files of this host's site."""
    return SiteFiles(config.state_dir / "site", config.site.temp_dir)


def site_runtime(world: World) -> RayRuntime:
    """The runtime of this host's site."""
    return RayRuntime(site_files(world.config), world.state_dir / "runs", lease_s=world.config.lease_s)


class RayRuntime:
    """Implements orchestrator.engine.runtime.Runtime on the Ray cluster of this host."""

    def __init__(self, files: SiteFiles, runs_dir: Path, *, lease_s: float) -> None:
        self._files = files
        self._runs_dir = runs_dir
        self._lease_s = lease_s
        self._bridge: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._buffer = b""
        self._bridged_head: Head | None = None

    # -- Runtime ----------------------------------------------------------------------------------------------------
    def bootstrap(self, *, token: str) -> str:
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
        nodes: dict[str, str] = self._ask("nodes")
        return nodes

    def prepare(self, run_id: str, token: str) -> None:
        self._ask("prepare", run_id=run_id, token=token, run_dir=str(self._runs_dir / run_id))

    def start(self, spec: RunSpec) -> None:
        self._ask("start", run_id=spec.run_id, spec=dict(spec.trainer), secrets=dict(spec.secrets))

    def reports(self, run_ids: Sequence[str]) -> Mapping[str, RunReport]:
        answer: dict[str, dict[str, Any]] = self._ask("reports", run_ids=list(run_ids))
        return {
            run_id: RunReport(
                run_id=run_id,
                **{key: value for key, value in report.items() if key in _REPORT_FIELDS and key != "run_id"},
            )
            for run_id, report in answer.items()
        }

    def hold(self, run_id: str) -> None:
        self._ask("control", run_id=run_id, what="hold", until_monotonic_s=time.monotonic() + HOLD_S)

    def unhold(self, run_id: str) -> None:
        self._ask("control", run_id=run_id, what="unhold", until_monotonic_s=0.0)

    def stop(self, run_id: str) -> None:
        self._ask("control", run_id=run_id, what="stop", until_monotonic_s=0.0)

    def kill(self, run_id: str) -> None:
        self._ask("kill", run_id=run_id)

    def close(self) -> None:
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
    def ensure_head(self) -> Head:
        """The living head of this site, started if there is none. Raises SiteError, MissingExtraError."""
        head = self._files.read_head()
        if head is not None and alive(head):
            return head
        self._files.prepare()
        log_path = self._files.folder / "head.log"
        for _ in range(START_ATTEMPTS):
            with log_path.open("ab") as log:
                process = subprocess.Popen(
                    [
                        sys.executable,
                        "-m",
                        "orchestrator.engine.site.head",
                        str(self._files.folder),
                        str(self._files.temp_dir),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    env=os.environ | ray_environment(self._files),
                )
            started = time.monotonic()
            while process.poll() is None and time.monotonic() - started < HEAD_START_S:
                head = self._files.read_head()
                if head is not None and head.pid == process.pid and alive(head):
                    return head
                time.sleep(0.05)
            end_session(process.pid)
            process.wait()
        raise SiteError(f"Ray's head did not start in {START_ATTEMPTS} attempts", hint=f"the reason is in {log_path}")

    def stop_head(self) -> None:
        """End the head and every process of its session. Idempotent."""
        self.close()
        head = self._files.read_head()
        if head is not None and alive(head):
            end_session(head.pid)
        self._files.head_path.unlink(missing_ok=True)

    # -- bridge -----------------------------------------------------------------------------------------------------
    def _ask(self, op: str, **arguments: object) -> Any:
        """One request, one answer. A bridge that died, hangs or belongs to a dead head is replaced, once."""
        for last in (False, True):
            connection = self._connect()
            try:
                connection.sendall(json.dumps({"op": op, **arguments}).encode() + b"\n")
                answer = self._line(ANSWER_S)
            except OSError as error:
                self._drop_bridge()
                if last:
                    raise SiteError(f"the site's bridge does not answer ({error})", hint="tradewind doctor") from error
                continue
            if "error" in answer:
                raise SiteError(f"the site refused {op}: {answer['error']}")
            return answer["ok"]
        raise AssertionError("unreachable")

    def _connect(self) -> socket.socket:
        head = self.ensure_head()
        if self._socket is not None and self._bridged_head == head:
            return self._socket
        self._drop_bridge()
        try:
            import ray  # noqa: F401 - only whether it is there
        except ImportError as error:
            raise MissingExtraError("ray", "ray") from error
        ours, theirs = socket.socketpair()
        with theirs, (self._files.folder / "bridge.log").open("ab") as log:
            self._bridge = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "orchestrator.engine.site.bridge",
                    str(self._files.folder),
                    str(self._files.temp_dir),
                    str(theirs.fileno()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                env=os.environ | ray_environment(self._files),
            )
        self._socket, self._buffer, self._bridged_head = ours, b"", head
        try:
            self._line(BRIDGE_START_S)
        except OSError as error:
            self._drop_bridge()
            raise SiteError(
                "the bridge to Ray did not start",
                hint=f"the reason is in {self._files.folder / 'bridge.log'}",
            ) from error
        return ours

    def _line(self, timeout_s: float) -> dict[str, Any]:
        assert self._socket is not None
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            received = self._socket.recv(1 << 20)
            if not received:
                raise ConnectionError("it closed the connection")
            self._buffer += received
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _drop_bridge(self) -> None:
        if self._bridge is not None:
            self._bridge.kill()
        self.close()


def end_session(session: int) -> None:
    """SIGKILL every process whose session is `session`, until none is left."""
    for _ in range(100):
        found = False
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if os.getsid(int(entry.name)) == session:
                    if (entry / "stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                        continue
                    os.kill(int(entry.name), signal.SIGKILL)
                    found = True
            except (ProcessLookupError, PermissionError, OSError):
                continue
        if not found:
            return
        time.sleep(0.02)
