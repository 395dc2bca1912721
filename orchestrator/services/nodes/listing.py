"""Lists the machines that the store has rented or that a provider lists, with their latest reports.

The store says which machines should exist, the providers which exist, and the machines' agents what they do. Each
source is shown independently: if a provider does not answer, or a report is not valid, the other sources are still
shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from orchestrator.engine.billing.machine_cost import machine_cost_nano_usd
from orchestrator.engine.inputs.snapshot import left_out
from orchestrator.engine.machines.launched import launch_tokens
from orchestrator.engine.machines.poll import impossible
from orchestrator.engine.migration.move import waits
from orchestrator.errors import NotFoundError, RowError
from orchestrator.installation import Installation
from orchestrator.model import Member, Migration, Run
from orchestrator.nodes.channel import Pace, control_store, places
from orchestrator.services.jobs.current import simulated
from orchestrator.services.nodes.latest_report import heard, rank_of
from orchestrator.services.nodes.views import NoAnswer, Node, NodeList, NodeState, UnmanagedNode
from orchestrator.store import Interval, Tx
from providers.errors import ProviderError
from providers.instance import Instance
from providers.offer import provider_of
from trainers.errors import ObjectStoreError, StoreUnavailable
from trainers.objects.base import ObjectStore

AT_ONCE = 16  # reads in a bucket: one takes tens of milliseconds


@dataclass(frozen=True, slots=True)
class _Answers:
    """The answers of the providers at `at_ms`: the running machines, and the providers that did not answer."""

    at_ms: int
    machines: Sequence[Instance]
    missing: Sequence[NoAnswer]


@dataclass(frozen=True, slots=True)
class _Machine:
    """A machine and the run that uses it now (None: unreadable); `instance` if its provider lists it."""

    id: str
    run_id: str
    run: Run | None
    instance: Instance | None

    @property
    def offer_id(self) -> str:
        """The run's offer, or the offer reported by the provider."""
        found = self.run or self.instance
        assert found is not None
        return found.offer_id


def nodes(installation: Installation, ref: str | None = None) -> NodeList:
    """The machines that are up, or those of one job. Asks every enabled provider. Raises NotFoundError."""
    answers = _ask(installation)
    with installation.store.read() as tx:
        job = None if ref is None else tx.find_job(ref)
        owners = {each.id: tx.run_of_token(each.token) for each in answers.machines}
        machines = list(_machines(tx, answers, owners))
        strays = [each for each in answers.machines if owners[each.id] is None]
        if job is not None:
            machines, strays = [each for each in machines if each.run is not None and each.run.job_id == job.id], []
        described = _described(installation, tx, answers, machines)
        unmanaged = _unmanaged(installation, tx, strays, answers.at_ms)
    store, trouble = _reports(installation)
    found = _with_reports(installation, store, trouble, described)
    return NodeList(
        at_ms=installation.clock.now_ms(),
        job=None if job is None else job.name,
        nodes=tuple(sorted(found, key=lambda node: (node.job or "", node.job_id or "", node.instance_id))),
        unmanaged=unmanaged,
        no_answer=tuple(answers.missing),
        silent_after_wall_s=installation.config.suspect_after_s + (0.0 if store is None else Pace.of(store).beat_s),
        clock_factor=installation.clock.factor,
        simulated=any(each.simulated for each in found) or any(each.simulated for each in unmanaged),
    )


def _ask(installation: Installation) -> _Answers:
    """Asks the providers. Call it before reading the store: a launch is stored before it is requested, so its machine
    is never mistaken for an unmanaged one."""
    at_ms = installation.clock.now_ms()
    machines: list[Instance] = []
    missing = []
    for provider in installation.providers.values():
        try:
            machines += provider.list_owned(installation.store.install_id)
        except ProviderError as error:
            missing.append(NoAnswer(provider.name, str(error)))
    return _Answers(at_ms, machines, missing)


def _machines(tx: Tx, answers: _Answers, owners: Mapping[str, str | None]) -> Iterator[_Machine]:
    """The machines of runs that are not settled, and listed machines for which the store has no run."""
    listed = {each.id: each for each in answers.machines}
    latest: dict[str, Run] = {}
    for run in tx.unsettled_runs(unreadable=left_out):
        for instance_id in run.instance_ids:
            if instance_id not in latest or latest[instance_id].generation < run.generation:
                latest[instance_id] = run
    for instance_id, run in latest.items():
        yield _Machine(instance_id, run.id, run, listed.get(instance_id))
    for instance_id, instance in listed.items():
        if instance_id not in latest and (run_id := owners[instance_id]) is not None:
            yield _Machine(instance_id, run_id, _readable(tx, run_id), instance)


def _readable(tx: Tx, run_id: str) -> Run | None:
    try:
        return tx.run(run_id)
    except (RowError, NotFoundError):
        return None


def _described(
    installation: Installation, tx: Tx, answers: _Answers, machines: Sequence[_Machine]
) -> list[tuple[Node, str | None]]:
    """The machines without their reports, and the tokens for finding the reports."""
    job_ids = {each.run.job_id for each in machines if each.run is not None}
    names = {each.id: each.name for each in tx.outlines_of(job_ids)}
    runs, moves = tx.runs_of(job_ids, left_out), tx.migrations_of(job_ids, left_out)
    standbys = {move.target_run_id for found in moves.values() for move in found if waits(move)}
    prices = _prices(tx, [each.offer_id for each in machines], answers.at_ms)
    described = []
    for machine in machines:
        run, instance = machine.run, machine.instance
        node = Node(
            job=None if run is None else names.get(run.job_id),
            job_id=None if run is None else run.job_id,
            run_id=machine.run_id,
            instance_id=machine.id,
            offer_id=machine.offer_id,
            state=_state(run, standbys),
            since_ms=_since_ms(machine, answers.at_ms),
            nano_usd_per_hour=prices[machine.offer_id],
            cost_nano_usd=None if run is None else _cost_nano_usd(tx, machine, runs[run.job_id], answers.at_ms),
            simulated=simulated(installation, machine.offer_id),
            listed=_listed(installation, answers, machine),
            notice_at_ms=None if instance is None else instance.notice_deadline_ms,
            heard=None,
            nodes=1 if run is None else run.nodes,
        )
        described.append((node, _token(machine, runs, moves)))
    return described


def _state(run: Run | None, standbys: set[str]) -> NodeState:
    if run is None:
        return "unknown"
    if run.end is not None or run.state == "ended":
        return "ending"
    if run.id in standbys:
        return "standby"
    return "starting" if run.state == "provisioning" else run.state


def _since_ms(machine: _Machine, now_ms: int) -> int | None:
    """When billing began, as stored; else as reported by its provider, if plausible."""
    run, instance = machine.run, machine.instance
    if run is not None and (began_ms := _alone(run, machine.id).machine_billed_from_ms) is not None:
        return began_ms
    return None if instance is None or impossible(instance, now_ms) else instance.billed_from_ms


def _alone(run: Run, instance_id: str) -> Run:
    """The run as if it had only this machine; one-time charges count for the first machine."""
    if not run.members:
        return run
    own = next((each for each in run.members if each.instance_id == instance_id), Member(instance_id))
    if instance_id != run.instance_id:
        run = replace(run, moved_bytes=None, kept_bytes=None)
    return replace(
        run,
        members=(),
        instance_id=instance_id,
        billed_from_ms=own.billed_from_ms,
        billed_to_ms=own.billed_to_ms if run.billed_to_ms is None else run.billed_to_ms,
    )


def _cost_nano_usd(tx: Tx, machine: _Machine, runs: Sequence[Run], now_ms: int) -> int | None:
    """The cost of all runs on the machine; None if its price is unknown for part of the time."""
    assert machine.run is not None
    if machine.run.members and machine.run.billed_to_ms is not None:
        return None  # its run is booked as a whole
    run = _alone(machine.run, machine.id)
    earlier = [each for each in runs if each.instance_id == run.instance_id and each.id != run.id]
    try:
        return sum(machine_cost_nano_usd(tx, each, now_ms) for each in (run, *(earlier if run.instance_id else ())))
    except ValueError:
        return None


def _listed(installation: Installation, answers: _Answers, machine: _Machine) -> bool | None:
    """See Node.listed."""
    if machine.instance is not None:
        return True
    name = provider_of(machine.offer_id)
    provider = installation.providers.get(name)
    if provider is None or any(each.provider == name for each in answers.missing) or machine.run is None:
        return None
    certain_ms = machine.run.created_at_ms + provider.listing_lag_s * 1000
    return False if certain_ms < answers.at_ms else None


def _token(
    machine: _Machine, runs: Mapping[str, Sequence[Run]], moves: Mapping[str, Sequence[Migration]]
) -> str | None:
    if machine.instance is not None:
        return machine.instance.token
    if machine.run is None:
        return None
    return next(reversed(launch_tokens(machine.run, runs[machine.run.job_id], moves[machine.run.job_id])), None)


def _unmanaged(
    installation: Installation, tx: Tx, strays: Sequence[Instance], now_ms: int
) -> tuple[UnmanagedNode, ...]:
    prices = _prices(tx, [each.offer_id for each in strays], now_ms)
    return tuple(
        UnmanagedNode(
            each.id,
            each.offer_id,
            None if impossible(each, now_ms) else each.billed_from_ms,
            prices[each.offer_id],
            simulated(installation, each.offer_id),
        )
        for each in sorted(strays, key=lambda each: each.id)
    )


def _prices(tx: Tx, offer_ids: Sequence[str], now_ms: int) -> dict[str, int | None]:
    """The current price of each offer, in nano-USD per hour."""
    found = tx.price_changes_of([Interval(each, now_ms, now_ms + 1) for each in offer_ids])
    return {offer_id: changes[-1][1] if changes else None for offer_id, changes in zip(offer_ids, found, strict=True)}


def _reports(installation: Installation) -> tuple[ObjectStore | None, str]:
    """The store of the machines' reports; or None, and why it cannot be opened."""
    try:
        return control_store(installation.control_root), ""
    except ObjectStoreError as error:
        return None, error.message


def _with_reports(
    installation: Installation,
    store: ObjectStore | None,
    trouble: str,
    described: Sequence[tuple[Node, str | None]],
) -> Sequence[Node]:
    """The machines with their reports. If the store fails to answer once, it is not asked again."""
    silent = [trouble] if trouble else []

    def reported(node: Node, token: str | None) -> Node:
        if store is None or token is None or silent:
            return replace(node, unreadable=silent[0] if silent else "")
        try:
            rank = rank_of(store, token, node.nodes, node.instance_id)
            if rank is None:
                return node
            said = heard(installation, store, places(token, node.nodes)[rank], node.run_id)
            return replace(node, heard=said, rank=rank)
        except ObjectStoreError as error:
            if isinstance(error, StoreUnavailable):
                silent.append(error.message)
            return replace(node, unreadable=error.message)

    with ThreadPoolExecutor(AT_ONCE, "reports") as pool:
        return list(pool.map(lambda each: reported(*each), described))
