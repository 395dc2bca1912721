"""NodeRuntime: the machines and runs of an installation, as the engine sees them, through the store of control objects.

Orders are written at once, each by compare-and-swap and with the control plane's epoch, so that one that was replaced
changes nothing.
Reports come from a thread that polls them. Everything on the machines outlives this object.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from secrets import randbits
from types import MappingProxyType

from orchestrator.config.private import private_folder
from orchestrator.engine.machines.reports import report_of
from orchestrator.engine.runtime import RunReport, RunSpec
from orchestrator.errors import MissingExtraError, SiteError
from orchestrator.formats.codec import dumps
from orchestrator.installation import Installation
from orchestrator.nodes import sealing
from orchestrator.nodes.access.issuing import Issuer
from orchestrator.nodes.access.lending import Lender
from orchestrator.nodes.boot.launching import Launching, Remote, unusable
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
from orchestrator.nodes.handover import BOOT_FD
from orchestrator.nodes.key_file import KeyFile
from orchestrator.nodes.listener import Heard, Listener
from orchestrator.nodes.messages import Hold, JobFiles, NodeFacts, Order, RunOrder
from trainers.errors import ObjectStoreError
from trainers.objects.base import ObjectStore
from trainers.spec import SetupSpec

HOLD_S = 30.0


def node_runtime(installation: Installation) -> NodeRuntime:
    """The runtime of an installation. Raises StoreError, OSError, ObjectStoreError."""
    config = installation.config
    if "://" not in installation.control_root:
        private_folder(Path(installation.control_root).parent)
    store, key = control_store(installation.control_root), KeyFile(installation.state_dir / "control.key")
    machines, install_id = config.machines, installation.store.install_id
    issuer = Issuer(role=machines.role, share=machines.share_credentials)
    launching = Launching(str(config.store_root), install_id, key, issuer)
    return NodeRuntime(
        store,
        key=key,
        launching=launching,
        lender=Lender(store, issuer, launching.scope) if store.remote else None,
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

    `key` is the installation's secret key; `environments` the folder of the job environments of machines on this host;
    `temp_dir` a short path for their Ray. `launching` makes the user data of machines of other hosts, and `lender`
    keeps their access to the store valid.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        key: Callable[[], bytes],
        runs_dir: Path,
        environments: Path,
        temp_dir: Path,
        lease_s: float,
        launching: Launching | None = None,
        lender: Lender | None = None,
    ) -> None:
        self._store, self._key, self._launching, self._lender = store, key, launching, lender
        self._runs_dir, self._environments, self._temp_dir = runs_dir, environments, temp_dir
        self._lease_s = lease_s
        self._listener, self._beat_s = Listener(store), Pace.of(store).beat_s
        self._epoch = 0
        self._machines: dict[str, str | None] = {}
        self._orders: dict[str, tuple[Order, str]] = {}

    def lead(self, epoch: int) -> None:
        """From now on, orders are those of the control plane with this epoch. What others wrote is read again."""
        self._epoch = epoch
        self._machines.clear()
        self._orders.clear()

    def bootstrap(self, *, token: str, nodes: int = 1, remote: Remote | None = None) -> str:
        """See Runtime.bootstrap."""
        _one(nodes)
        try:
            require_ray()
        except MissingExtraError as error:
            raise SiteError(str(error), hint=error.hint) from error
        if remote is not None:
            assert self._launching is not None
            try:
                put_run(self._store, remote.run_id, token)  # so that what is stored is deleted with the run
                return self._launching.user_data(token, remote)
            except ObjectStoreError as error:
                raise unusable(error) from error
        command = [sys.executable, "-m", "orchestrator.nodes.agent", self._store.url, token, str(self._temp_dir)]
        secret = sealing.boot_token(self._key(), token)
        end = [sys.executable, "-m", "orchestrator.nodes.session"]
        given = shlex.quote(dumps({"boot_token": secret}))
        # A machine does not outlive its agent. SIGTERM is the agent's to handle; the shell waits for it.
        return (
            f"#!/usr/bin/env bash\ntrap : TERM\nexec 4< <(printf %s {given})\n"
            f"{BOOT_FD}=4 {shlex.join(command)}\nexec {shlex.join(end)} 4<&-\n"
        )

    def joined(self, token: str, nodes: int = 1) -> bool:
        """See Runtime.joined."""
        _one(nodes)
        public_key = self._public_key(self._heard(token), token)
        if public_key is not None and self._lender is not None:
            self._lender.lend(token, public_key)
        return public_key is not None

    def boot_error(self, token: str) -> str | None:
        """See Runtime.boot_error."""
        facts = self._heard(token).facts
        if facts is not None and facts.error and self._is_proven(facts, token):
            return facts.error
        return None if self._lender is None else self._lender.refused(token)

    def prepare(
        self,
        run_id: str,
        token: str,
        setup: SetupSpec | None = None,
        secrets: Mapping[str, str] = MappingProxyType({}),
        files: JobFiles | None = None,
        *,
        nodes: int = 1,
    ) -> None:
        """See Runtime.prepare."""
        _one(nodes)
        wanted = None if setup is None else {**setup.to_json(), "root": str(self._environments)}
        with _retried():
            put_run(self._store, run_id, token)
        self._machines[run_id] = token

        def prepared(run: RunOrder | None) -> RunOrder:
            if run is not None and run.run_id == run_id:
                return run
            grant = self._granted(token, run_id, secrets)
            run_dir = "" if files is not None else str(self._runs_dir / run_id)
            return RunOrder(run_id, run_dir, files, wanted, grant=grant)

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
        if self._lender is not None:
            self._lender.close()

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
        return None if facts is None or facts.error or not self._is_proven(facts, token) else facts.public_key

    def _is_proven(self, facts: NodeFacts, token: str) -> bool:
        expected = sealing.boot_token(self._key(), token)
        return sealing.is_proven(expected, facts.boot, facts.public_key, facts.proof, facts.error)

    # -- reports ----------------------------------------------------------------------------------------------------
    def _report(self, run_id: str) -> RunReport | None:
        """What is known of a run; None if nothing is."""
        token = self._known_machine(run_id)
        if token is None:
            return RunReport(run_id, "absent")
        heard = self._heard(token)
        if self._lender is not None and (public_key := self._public_key(heard, token)) is not None:
            self._lender.lend(token, public_key)
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


def _one(nodes: int) -> None:
    if nodes != 1:
        raise SiteError("runs on several machines are not supported yet", hint="use resources.nodes: 1")


@contextmanager
def _retried() -> Iterator[None]:
    """Turn an error of the store into a SiteError, which is retried."""
    try:
        yield
    except ObjectStoreError as error:
        raise unreachable(error) from error
