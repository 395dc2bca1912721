"""NodeRuntime: the machines and runs of an installation, as the engine sees them, through the store of control objects.

Orders are written at once, each by compare-and-swap and with the control plane's epoch, so that one that was replaced
changes nothing.
Reports come from a thread that polls them. Everything on the machines outlives this object.
"""

from __future__ import annotations

import os
import secrets
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from secrets import randbits
from types import MappingProxyType

from orchestrator.config.private import private_folder
from orchestrator.engine.machines.reports import report_of
from orchestrator.engine.runtime import RunReport, RunSpec
from orchestrator.errors import MissingExtraError, SiteError
from orchestrator.installation import Installation
from orchestrator.nodes import sealing
from orchestrator.nodes.agent import BOOT_VARIABLE
from orchestrator.nodes.channel import (
    Channel,
    Pace,
    control_store,
    forget_run,
    machine_of,
    put_run,
    runs_known,
    unreachable,
)
from orchestrator.nodes.listener import Heard, Listener
from orchestrator.nodes.messages import Hold, Order, RunOrder
from trainers.errors import ObjectStoreError
from trainers.objects.base import ObjectStore
from trainers.spec import SetupSpec

HOLD_S = 30.0
KEY_BYTES = 32


def node_runtime(installation: Installation) -> NodeRuntime:
    """The runtime of an installation. Raises StoreError, OSError, ObjectStoreError."""
    config = installation.config
    if "://" not in installation.control_root:
        private_folder(Path(installation.control_root).parent)
    return NodeRuntime(
        control_store(installation.control_root),
        key_path=installation.state_dir / "control.key",
        runs_dir=installation.state_dir / "runs",
        environments=installation.state_dir / "environments",
        temp_dir=config.site.temp_dir,
        lease_s=config.lease_s,
    )


def require_ray() -> None:
    """Raises MissingExtraError if what the machines need is not installed."""
    for module in ("ray", "nacl"):
        if find_spec(module) is None:
            raise MissingExtraError("pynacl" if module == "nacl" else module, "ray")


class NodeRuntime:
    """Implements orchestrator.engine.runtime.Runtime.

    `key_path` is the installation's secret key, made when it is first needed; `environments` the folder of the job
    environments of machines on this host; `temp_dir` a short path for their Ray.
    """

    def __init__(
        self, store: ObjectStore, *, key_path: Path, runs_dir: Path, environments: Path, temp_dir: Path, lease_s: float
    ) -> None:
        self._store = store
        self._key_path, self._runs_dir, self._environments, self._temp_dir = key_path, runs_dir, environments, temp_dir
        self._lease_s = lease_s
        self._listener, self._beat_s = Listener(store), Pace.of(store).beat_s
        self._epoch = 0
        self._machines: dict[str, str | None] = {}
        self._orders: dict[str, tuple[Order, str]] = {}
        self._key: bytes | None = None

    def lead(self, epoch: int) -> None:
        """From now on, orders are those of the control plane with this epoch. What others wrote is read again."""
        self._epoch = epoch
        self._machines.clear()
        self._orders.clear()

    def bootstrap(self, *, token: str) -> str:
        """See Runtime.bootstrap."""
        try:
            require_ray()
        except MissingExtraError as error:
            raise SiteError(str(error), hint=error.hint) from error
        command = [sys.executable, "-m", "orchestrator.nodes.agent", self._store.url, token, str(self._temp_dir)]
        secret = sealing.boot_token(self._installation_key(), token)
        end = [sys.executable, "-m", "orchestrator.nodes.session"]
        # A machine does not outlive its agent. SIGTERM is the agent's to handle; the shell waits for it.
        return (
            f"#!/usr/bin/env bash\nexport {BOOT_VARIABLE}={secret}\ntrap : TERM\n{shlex.join(command)}\n"
            f"exec {shlex.join(end)}\n"
        )

    def joined(self, token: str) -> bool:
        """See Runtime.joined."""
        return self._public_key(self._heard(token), token) is not None

    def prepare(
        self, run_id: str, token: str, setup: SetupSpec | None = None, secrets: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """See Runtime.prepare."""
        wanted = None if setup is None else {**setup.to_json(), "root": str(self._environments)}
        with _retried():
            put_run(self._store, run_id, token)
        self._machines[run_id] = token

        def prepared(run: RunOrder | None) -> RunOrder:
            if run is not None and run.run_id == run_id:
                return run
            grant = self._granted(token, run_id, secrets)
            return RunOrder(run_id, str(self._runs_dir / run_id), setup=wanted, grant=grant)

        self._change(token, prepared)

    def start(self, spec: RunSpec) -> None:
        """See Runtime.start."""
        token = self._machine(spec.run_id)
        grant = self._granted(token, spec.run_id, spec.secrets)
        self._change_run(spec.run_id, lambda run: replace(run, spec=dict(spec.trainer), grant=grant))

    def reports(self, run_ids: Sequence[str]) -> Mapping[str, RunReport]:
        """See Runtime.reports."""
        found, failed = dict[str, RunReport](), dict[str, SiteError]()
        for run_id in run_ids:
            try:
                report = self._report(run_id)
            except SiteError as error:  # of one machine's objects, perhaps: the others' count
                failed[run_id] = error
            else:
                if report is not None:
                    found[run_id] = report
        if failed and not found:
            raise next(iter(failed.values()))
        for run_id, why in failed.items():  # the others' can be read, so this is about the machine
            found[run_id] = RunReport(run_id, "malformed", error=f"its report cannot be read: {why}")
        return found

    def quiesce(self, run_id: str, successor: int) -> None:
        """See Runtime.quiesce. It lasts HOLD_S unless repeated."""

        def held(run: RunOrder) -> RunOrder:
            return replace(run, hold=Hold(randbits(31), successor, HOLD_S))

        self._change_run(run_id, held)

    def resume(self, run_id: str) -> None:
        """See Runtime.resume."""
        self._change_run(run_id, lambda run: replace(run, hold=None))

    def stop(self, run_id: str) -> None:
        """See Runtime.stop."""
        self._change_run(run_id, lambda run: replace(run, stop=True))

    def stacks(self, run_id: str) -> None:
        """See Runtime.stacks."""
        self._change_run(run_id, lambda run: replace(run, stacks=run.stacks + 1))

    def kill(self, run_id: str) -> None:
        """See Runtime.kill."""
        token = self._known_machine(run_id)
        if token is not None:
            self._change(token, lambda run: None if run is not None and run.run_id == run_id else run)

    def known(self) -> Sequence[str]:
        """See Runtime.known."""
        with _retried():
            return runs_known(self._store)

    def forget(self, run_id: str) -> None:
        """See Runtime.forget."""
        token = self._machines.pop(run_id, None)
        if token is not None:
            self._orders.pop(token, None)
        with _retried():
            forget_run(self._store, run_id)

    def close(self) -> None:
        """See Runtime.close."""
        self._listener.close()

    # -- orders -----------------------------------------------------------------------------------------------------
    def _change_run(self, run_id: str, change: Callable[[RunOrder], RunOrder]) -> None:
        """Change the order of a run. Raises SiteError if its machine has none for it."""

        def changed(run: RunOrder | None) -> RunOrder:
            if run is None or run.run_id != run_id:
                raise SiteError(f"{run_id} was not ordered, or is to end", hint="it is asked again")
            return change(run)

        self._change(self._machine(run_id), changed)

    def _change(self, token: str, change: Callable[[RunOrder | None], RunOrder | None]) -> None:
        """Replace a machine's order by one whose run is `change` of the present one. Raises SiteError."""
        channel = Channel(self._store, token)
        with _retried():
            order, version = self._order(token)
            if order.epoch > self._epoch:
                raise SiteError(f"a later control plane gives the orders for {token}", hint="this one no longer leads")
            run = change(order.run)
            if run == order.run and order.lease_s == self._lease_s and version:
                return
            new = Order(order.number + 1, self._lease_s, run, self._epoch)
            try:
                self._orders[token] = new, channel.replace_order(new, version)
            except BaseException:  # it may have taken effect: read it again
                self._orders.pop(token, None)
                raise
        self._listener.expect(token)

    def _order(self, token: str) -> tuple[Order, str]:
        """The order of a machine, and its version. One of an earlier control plane is first made this one's own, so
        that the earlier one can replace it no more."""
        known = self._orders.get(token)
        if known is None:
            channel = Channel(self._store, token)
            order, version = channel.order()
            if order is None:
                return Order(0, self._lease_s), version
            if order.epoch < self._epoch:
                order = replace(order, number=order.number + 1, epoch=self._epoch)
                version = channel.replace_order(order, version)
            known = self._orders[token] = order, version
        return known

    def _granted(self, token: str, run_id: str, secrets: Mapping[str, str]) -> str | None:
        """The digest of a new grant of these secrets; None if there are none. Raises SiteError."""
        if not secrets:
            return None
        public_key = self._public_key(self._heard(token), token)
        if public_key is None:
            raise SiteError(f"the machine of {run_id} has not started", hint="it is asked again")
        sealed = sealing.seal(public_key, run_id, secrets)
        digest = sealing.digest(sealed)
        with _retried():
            Channel(self._store, token).put_grant(digest, sealed)
        return digest

    def _public_key(self, heard: Heard, token: str) -> str | None:
        """The key of the machine's agent, if it has shown that it is the machine that was booted."""
        facts = heard.facts
        if facts is None:
            return None
        expected = sealing.boot_token(self._installation_key(), token)
        return facts.public_key if sealing.is_proven(expected, facts.boot, facts.public_key, facts.proof) else None

    def _installation_key(self) -> bytes:
        if self._key is None:
            with _written(self._key_path):
                self._key = _key_in(self._key_path)
        return self._key

    # -- reports ----------------------------------------------------------------------------------------------------
    def _report(self, run_id: str) -> RunReport | None:
        """What is known of a run; None if nothing is."""
        token = self._known_machine(run_id)
        if token is None:
            return RunReport(run_id, "absent")
        heard = self._heard(token)
        if heard.report is None and heard.garbled is None:
            return None
        silent_s = max(0.0, heard.read_s - heard.since_s - self._beat_s)
        if heard.garbled is not None:
            return RunReport(run_id, "malformed", error=heard.garbled, silent_s=silent_s)
        report = heard.report
        assert report is not None
        with _retried():
            order, _ = self._order(token)
        if order.run is None or order.run.run_id != run_id:
            return RunReport(run_id, "absent", silent_s=silent_s)
        if report.order < order.number and report.run_id != run_id:
            return RunReport(run_id, "starting", silent_s=silent_s)
        if report.run_id != run_id or report.said is None:
            return RunReport(run_id, "absent", silent_s=silent_s)
        return report_of(run_id, {**report.said, "silent_s": silent_s + max(0.0, report.said_ago_s)})

    def _heard(self, token: str) -> Heard:
        heard = self._listener.heard(token)
        if heard.trouble is not None:
            raise unreachable(heard.trouble)
        return heard

    def _machine(self, run_id: str) -> str:
        token = self._known_machine(run_id)
        if token is None:
            raise SiteError(f"{run_id} has no machine", hint="it is asked again")
        return token

    def _known_machine(self, run_id: str) -> str | None:
        if run_id not in self._machines:  # while this control plane leads, no other one prepares runs
            with _retried():
                self._machines[run_id] = machine_of(self._store, run_id)
        return self._machines[run_id]


@contextmanager
def _retried() -> Iterator[None]:
    """Turn an error of the store into a SiteError, which is retried."""
    try:
        yield
    except ObjectStoreError as error:
        raise unreachable(error) from error


@contextmanager
def _written(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        hint = "free some space, or give its owner write permission"
        raise SiteError(f"{path} cannot be written: {error}", hint=hint) from error


def _key_in(path: Path) -> bytes:
    """The key in a file, which is made, atomically, if there is none. Raises OSError."""
    if not path.exists():
        partial = path.with_suffix(f".{os.getpid()}.tmp")
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):  # another process was faster
            os.link(partial, path)
        partial.unlink()
    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        hint = "delete it: running machines are replaced, and their jobs continue from their checkpoints"
        raise SiteError(f"{path} is damaged: it has {len(key)} bytes, not {KEY_BYTES}", hint=hint)
    return key
