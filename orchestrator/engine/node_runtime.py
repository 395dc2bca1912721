"""NodeRuntime: the machines and runs of an installation, as the engine sees them, through the store of control objects.

Nothing here waits for the store: orders are written by threads (engine.orders), and reports come from a thread that
polls them. Everything on the machines outlives this object.
"""

from __future__ import annotations

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
from orchestrator.engine.calls import Pending, Threads
from orchestrator.engine.machines.reports import report_of
from orchestrator.engine.orders import PLACE, NotRead, Orders, Step
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
from orchestrator.nodes.messages import Hold, JobFiles, NodeFacts, RunOrder
from trainers.errors import ObjectStoreError
from trainers.objects.base import ObjectStore
from trainers.spec import SetupSpec

HOLD_S = 30.0
AT_ONCE = 16  # objects of the store that are read and written at the same time


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
        self._threads = Threads(AT_ONCE)
        self._orders = Orders(store, lease_s, self._listener.expect, self._threads)
        self._machines: dict[str, str | None] = {}
        self._looking: dict[str, Pending] = {}

    def lead(self, epoch: int) -> None:
        """From now on, orders are those of the control plane with this epoch. What others wrote is read again."""
        self._orders.lead(epoch)
        self._machines.clear()
        self._looking.clear()

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
        return public_key is not None and self._is_read(token)

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
        if self._is_ordered(run_id, token):
            return
        before, grant = self._granted(token, run_id, secrets)

        def recorded(_: Channel) -> None:
            put_run(self._store, run_id, token)

        def prepared(run: RunOrder | None) -> RunOrder:
            if run is not None and run.run_id == run_id:
                return run
            run_dir = "" if files is not None else str(self._runs_dir / run_id)
            return RunOrder(run_id, run_dir, files, wanted, grant=grant)

        self._orders.change(token, prepared, [recorded, *before])
        self._machines[run_id] = token

    def start(self, spec: RunSpec) -> None:
        """See Runtime.start."""
        before, grant = self._granted(self._machine(spec.run_id), spec.run_id, spec.secrets)
        self._change_run(spec.run_id, lambda run: replace(run, spec=dict(spec.trainer), grant=grant), before)

    def reports(self, run_ids: Sequence[str]) -> Mapping[str, RunReport]:
        """See Runtime.reports."""
        found, failed = dict[str, RunReport](), dict[str, SiteError]()
        self._threads.next_tick()
        for run_id in run_ids:
            try:
                report = self._report(run_id)
            except NotRead:
                continue
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
            self._orders.change(token, lambda run: None if run is not None and run.run_id == run_id else run)

    def unwritten(self, run_ids: Sequence[str]) -> Mapping[str, SiteError]:
        """See Runtime.unwritten."""
        machines = {run_id: token for run_id in run_ids if (token := self._machines.get(run_id)) is not None}
        troubles = {run_id: self._orders.unwritten(token) for run_id, token in machines.items()}
        return {run_id: trouble for run_id, trouble in troubles.items() if trouble is not None}

    def known(self) -> Sequence[str]:
        """See Runtime.known."""
        with _retried():
            return runs_known(self._store)

    def forget(self, run_id: str) -> None:
        """See Runtime.forget."""
        token = self._machines.pop(run_id, None)
        if token is not None:
            self._orders.forget(token)
        with _retried():
            forget_run(self._store, run_id)

    def close(self) -> None:
        """See Runtime.close."""
        self._orders.close()
        self._listener.close()
        if self._lender is not None:
            self._lender.close()

    # -- orders -----------------------------------------------------------------------------------------------------
    def _change_run(self, run_id: str, change: Callable[[RunOrder], RunOrder], before: Sequence[Step] = ()) -> None:
        """Change the order of a run. Raises SiteError if its machine has none for it."""

        def changed(run: RunOrder | None) -> RunOrder:
            if run is None or run.run_id != run_id:
                raise SiteError(f"{run_id} was not ordered, or is to end", hint="it is asked again")
            return change(run)

        self._orders.change(self._machine(run_id), changed, before)

    def _is_read(self, token: str) -> bool:
        with suppress(NotRead):
            self._orders.wanted(token)
            return True
        return False

    def _is_ordered(self, run_id: str, token: str) -> bool:
        with suppress(NotRead):
            run, _ = self._orders.wanted(token)
            return run is not None and run.run_id == run_id
        return False

    def _granted(self, token: str, run_id: str, secrets: Mapping[str, str]) -> tuple[list[Step], str | None]:
        """How to write a new grant of these secrets, and its digest; nothing if there are none. Raises SiteError."""
        if not secrets:
            return [], None
        public_key = self._public_key(self._heard(token), token)
        if public_key is None:
            raise SiteError(f"the machine of {run_id} has not started", hint="it is asked again")
        sealed = sealing.seal(public_key, run_id, secrets)
        digest = sealing.digest(sealed)
        return [lambda channel: channel.put_grant(digest, sealed)], digest

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
        run, number = self._orders.wanted(token)
        if run is None or run.run_id != run_id:
            return RunReport(run_id, "absent", silent_s=silent_s)
        if report.order < number and report.run_id != run_id:
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
        """The token of the run's machine; None if it has none. While this control plane leads, no other one prepares
        runs. Raises NotRead at first, and SiteError."""
        if run_id not in self._machines:
            looking = self._looking.pop(run_id, None)
            if looking is None:
                looking = self._threads.carry(run_id, PLACE, lambda: machine_of(self._store, run_id))
            if not looking.over:
                self._looking[run_id] = looking
                raise NotRead(f"the machine of {run_id} is being read", hint="it is asked again")
            with _retried():
                self._machines[run_id] = looking.result()
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
