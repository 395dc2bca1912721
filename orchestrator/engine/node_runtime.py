"""NodeRuntime: the engine's view of the machines and runs of an installation, through the store of control objects.

No method here waits for the store: threads write orders (engine.orders), and another thread polls reports. Everything
on the machines outlives this object.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from secrets import randbits
from types import MappingProxyType

from orchestrator.engine.calls import Pending, Threads
from orchestrator.engine.machines.gang_report import Ends, combined
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
    DamagedOrder,
    Pace,
    control_store,
    forget_run,
    machines_of,
    places,
    put_run,
    runs_known,
    unreachable,
)
from orchestrator.nodes.handover import BOOT_FD
from orchestrator.nodes.key_file import KEY_FILE, KeyFile
from orchestrator.nodes.listener import Heard, Listener
from orchestrator.nodes.messages import Hold, JobFiles, NodeFacts, RunOrder
from trainers.control import Risk
from trainers.errors import ObjectStoreError
from trainers.objects.base import ObjectStore
from trainers.spec import SetupSpec

HOLD_S = 30.0
AT_ONCE = 16  # objects of the store that may be read and written at the same time


def node_runtime(installation: Installation) -> NodeRuntime:
    """The runtime of an installation. Raises StoreError, ObjectStoreError."""
    config = installation.config
    installation.prepare_control()
    store, key = control_store(installation.control_root), KeyFile(installation.state_dir / KEY_FILE)
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
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._key, self._launching, self._lender = store, key, launching, lender
        self._runs_dir, self._environments, self._temp_dir = runs_dir, environments, temp_dir
        self._lease_s = lease_s
        self._listener, self._beat_s = Listener(store), Pace.of(store).beat_s
        self._threads = Threads(AT_ONCE)
        self._orders = Orders(store, lease_s, self._listener.expect, self._threads)
        self._machines: dict[str, tuple[str, ...]] = {}
        self._looking: dict[str, Pending] = {}
        self._monotonic = monotonic
        self._ends = Ends()

    def lead(self, epoch: int) -> None:
        """From now on, write orders for the control plane with this epoch. Orders that others wrote are read again."""
        self._orders.lead(epoch)
        self._machines.clear()
        self._looking.clear()

    @property
    def outranked_by(self) -> int | None:
        """The epoch of a later control plane that has given orders here; None if none is known."""
        return self._orders.outranked_by

    def bootstrap(self, *, token: str, nodes: int = 1, remote: Remote | None = None) -> str:
        """See Runtime.bootstrap."""
        try:
            require_ray()
        except MissingExtraError as error:
            raise SiteError(str(error), hint=error.hint) from error
        if remote is not None:
            assert self._launching is not None
            try:
                put_run(self._store, remote.run_id, token, nodes)  # so that the stored objects are deleted with the run
                return self._launching.user_data(token, remote, nodes)
            except ObjectStoreError as error:
                raise unusable(error) from error
        command = [sys.executable, "-m", "orchestrator.nodes.agent", self._store.url, token, str(self._temp_dir)]
        command += [] if nodes == 1 else [str(nodes)]
        secret = sealing.boot_token(self._key(), token)
        end = [sys.executable, "-m", "orchestrator.nodes.session"]
        given = shlex.quote(dumps({"boot_token": secret}))
        # A machine does not outlive its agent. The agent handles SIGTERM; the shell waits for it.
        return (
            f"#!/usr/bin/env bash\ntrap : TERM\nexec 4< <(printf %s {given})\n"
            f"{BOOT_FD}=4 {shlex.join(command)}\nexec {shlex.join(end)} 4<&-\n"
        )

    def joined(self, token: str, nodes: int = 1) -> bool:
        """See Runtime.joined."""
        return all([self._has_joined(place) for place in places(token, nodes)])

    def _has_joined(self, place: str) -> bool:
        public_key = self._public_key(self._heard(place), place)
        if public_key is not None and self._lender is not None:
            self._lender.lend(place, public_key)
        return public_key is not None and self._is_read(place)

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
        wanted = None if setup is None else {**setup.to_json(), "root": str(self._environments)}
        machines = places(token, nodes)
        for rank, place in enumerate(machines):
            if self._is_ordered(run_id, place):
                continue
            own = None if files is None else replace(files, rank=rank)
            before, grant = self._granted(place, run_id, secrets)
            order = self._order(run_id, self._run_dir(run_id, rank), wanted, grant, own)

            def prepared(run: RunOrder | None, order: RunOrder = order) -> RunOrder:
                return run if run is not None and run.run_id == run_id else order

            def recorded(_: Channel) -> None:
                put_run(self._store, run_id, token, nodes)

            self._orders.change(place, prepared, [recorded, *before])
        self._machines[run_id] = machines

    def _order(
        self, run_id: str, folder: Path, setup: Mapping[str, object] | None, grant: str | None, files: JobFiles | None
    ) -> RunOrder:
        """The order to prepare one machine's part of a run, in `folder` unless it has folders of its own (`files`)."""
        if files is not None:
            return RunOrder(run_id, "", files, setup, grant=grant)
        return RunOrder(
            run_id, str(folder), None, None if setup is None else {**setup, "log": str(folder / "log")}, grant=grant
        )

    def start(self, spec: RunSpec) -> None:
        """See Runtime.start."""
        machines = self._places(spec.run_id)
        joint = {} if len(machines) == 1 else self._joint(machines)
        for rank, place in enumerate(machines):
            trainer = {**spec.trainer, **joint, **({"node_rank": rank} if joint else {})}
            if rank > 0 and trainer.get("control_dir"):  # otherwise it has its own folders
                trainer["control_dir"] = str(self._run_dir(spec.run_id, rank) / "control")
            before, grant = self._granted(place, spec.run_id, spec.secrets)

            def ordered(run: RunOrder, trainer: dict[str, object] = trainer, grant: str | None = grant) -> RunOrder:
                return replace(run, spec=trainer, grant=grant)

            self._change_order(place, spec.run_id, ordered, before)

    def _joint(self, machines: Sequence[str]) -> dict[str, object]:
        """What the trainers of several machines need to find one another, from what machine 0 published."""
        facts = self._heard(machines[0]).facts
        if facts is None:
            raise SiteError(f"{machines[0]} has not started", hint="Tradewind tries again")
        return {"nodes": len(machines), "master_addr": facts.address, "master_port": facts.master_port}

    def _run_dir(self, run_id: str, rank: int) -> Path:
        """The folder of a run on its machine; on this host, each machine of a gang has its own folder."""
        return self._runs_dir / run_id if rank == 0 else self._runs_dir / run_id / "machines" / str(rank)

    def reports(self, run_ids: Sequence[str]) -> Mapping[str, RunReport]:
        """See Runtime.reports."""
        found, failed, damaged = dict[str, RunReport](), dict[str, SiteError](), dict[str, SiteError]()
        self._threads.next_tick()
        for run_id in run_ids:
            try:
                report = self._report(run_id)
            except NotRead:
                continue
            except DamagedOrder as error:
                damaged[run_id] = error
            except SiteError as error:  # perhaps only one machine's objects failed: the others count
                failed[run_id] = error
            else:
                if report is not None:
                    found[run_id] = report
        if failed and not found:
            raise next(iter(failed.values()))
        for run_id, why in (
            failed | damaged
        ).items():  # the other machines' reports can be read, so this concerns the machine
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

    def risk(self, run_id: str, risk: Risk) -> None:
        """See Runtime.risk."""
        self._change_run(run_id, lambda run: replace(run, risk=risk))

    def kill(self, run_id: str) -> None:
        """See Runtime.kill."""
        for place in self._known_places(run_id):
            self._orders.change(place, lambda run: None if run is not None and run.run_id == run_id else run)

    def parted(self, run_id: str) -> bool:
        """See Runtime.parted."""
        for place in self._known_places(run_id):
            run, number = self._orders.wanted(place)
            report = self._heard(place).report
            if run is not None and run.run_id == run_id:
                return False
            if report is not None and report.order < number:
                return False
        return True

    def unwritten(self, run_ids: Sequence[str]) -> Mapping[str, SiteError]:
        """See Runtime.unwritten."""
        found = {}
        for run_id in run_ids:
            troubles = [self._orders.unwritten(place) for place in self._machines.get(run_id, ())]
            if (trouble := next((each for each in troubles if each is not None), None)) is not None:
                found[run_id] = trouble
        return found

    def known(self) -> Sequence[str]:
        """See Runtime.known."""
        with _retried():
            return runs_known(self._store)

    def forget(self, run_id: str) -> None:
        """See Runtime.forget."""
        self._ends.forget(run_id)
        for place in self._machines.pop(run_id, ()):
            self._orders.forget(place)
        with _retried():
            forget_run(self._store, run_id)

    def close(self) -> None:
        """See Runtime.close."""
        self._orders.close()
        self._listener.close()
        if self._lender is not None:
            self._lender.close()

    # -- orders -----------------------------------------------------------------------------------------------------
    def _change_run(self, run_id: str, change: Callable[[RunOrder], RunOrder]) -> None:
        """Change the orders of a run on all its machines. Raises SiteError if a machine has no order for the run."""
        machines = self._places(run_id)
        for place in machines:
            self._orders.wanted(place)  # all of them, or none
        for place in machines:
            self._change_order(place, run_id, change)

    def _change_order(
        self, place: str, run_id: str, change: Callable[[RunOrder], RunOrder], before: Sequence[Step] = ()
    ) -> None:
        def changed(run: RunOrder | None) -> RunOrder:
            if run is None or run.run_id != run_id:
                raise SiteError(f"{run_id} has no order, or was ordered to end", hint="Tradewind tries again")
            return change(run)

        self._orders.change(place, changed, before)

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
        """How to write a new grant of these secrets, and its digest; nothing if there are no secrets. Raises
        SiteError."""
        if not secrets:
            return [], None
        public_key = self._public_key(self._heard(token), token)
        if public_key is None:
            raise SiteError(f"the machine of {run_id} has not started", hint="Tradewind tries again")
        sealed = sealing.seal(public_key, run_id, secrets)
        digest = sealing.digest(sealed)
        return [lambda channel: channel.put_grant(digest, sealed)], digest

    def _public_key(self, heard: Heard, token: str) -> str | None:
        """The key of the machine's agent, if it has proved that it is the machine that was booted."""
        facts = heard.facts
        return None if facts is None or facts.error or not self._is_proven(facts, token) else facts.public_key

    def _is_proven(self, facts: NodeFacts, token: str) -> bool:
        expected = sealing.boot_token(self._key(), token.partition("/")[0])
        return sealing.is_proven(expected, facts.boot, facts.public_key, facts.proof, facts.error)

    # -- reports ----------------------------------------------------------------------------------------------------
    def _report(self, run_id: str) -> RunReport | None:
        """The known state of a run; None if nothing is known."""
        machines = self._known_places(run_id)
        reports = [self._report_of(run_id, each) for each in machines] or [RunReport(run_id, "absent")]
        return combined(reports, ended_for_s=self._ends.since_s(run_id, reports, self._monotonic()))

    def _report_of(self, run_id: str, token: str) -> RunReport | None:
        """The known state of a run on one of its machines; None if nothing is known."""
        heard = self._heard(token)
        if self._lender is not None and (public_key := self._public_key(heard, token)) is not None:
            self._lender.lend(token, public_key)
        silent_s = max(0.0, heard.read_s - heard.since_s - self._beat_s)
        if heard.garbled is not None:
            return RunReport(run_id, "malformed", error=heard.garbled, silent_s=silent_s)
        report = heard.report
        run, number = self._orders.wanted(token)
        if report is None:  # deleted: a run that was ordered to train counts as silent, so that its lease can expire
            trains = run is not None and run.run_id == run_id and run.spec is not None and heard.read_s > 0.0
            return RunReport(run_id, "silent", silent_s=silent_s) if trains else None
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

    def _places(self, run_id: str) -> tuple[str, ...]:
        machines = self._known_places(run_id)
        if not machines:
            raise SiteError(f"{run_id} has no machine", hint="Tradewind tries again")
        return machines

    def _known_places(self, run_id: str) -> tuple[str, ...]:
        """The channels of the run's machines, by rank; empty if no machine was ordered to execute it. While this
        control plane leads, no other one prepares runs. Raises NotRead at first, and SiteError."""
        if run_id not in self._machines:
            looking = self._looking.pop(run_id, None)
            if looking is None:
                looking = self._threads.carry(run_id, PLACE, lambda: machines_of(self._store, run_id))
            if not looking.over:
                self._looking[run_id] = looking
                raise NotRead(f"the machine of {run_id} is being read", hint="Tradewind tries again")
            with _retried():
                self._machines[run_id] = looking.result()
        return self._machines[run_id]


@contextmanager
def _retried() -> Iterator[None]:
    """Turn an error of the store into a SiteError, which is retried."""
    try:
        yield
    except ObjectStoreError as error:
        raise unreachable(error) from error
