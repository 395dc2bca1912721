"""Truth: the invariants that must hold after every history, checked from outside.

They are derived from the cloud's own records (every instance, its seconds, its bill), from what trainers really did and
from the checkpoints; the store is compared with these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise

from orchestrator.ledger import Comparison, baseline_nano_usd
from orchestrator.model import EVENT_KINDS, TERMINAL, Job, Migration, Run, Step
from providers.billing.charges import egress_nano_usd, egress_rate, rate_card, requests_nano_usd, storage_nano_usd
from providers.fake import Bill
from providers.offer import location_of
from tests.rig.crash_points import BYTE_STANDS_FOR
from tests.rig.installation import SimulatedInstallation
from tests.rig.site import TrainingState
from tests.rig.trainer import BUG

MOST_BILLED = 2  # machines of one job at the same time: the two of a move; and its standby, if it wants one


@dataclass(frozen=True)
class Promises:
    """What a cloud promises. `checkpoints`: its bill has what checkpoints cost; `whole`: a launch of several machines
    starts none if it cannot start all. Of bills for which `ends_unknown` is true, it does not say when the machine
    ended, so the ledger may have more."""

    checkpoints: bool = True
    whole: bool = True
    ends_unknown: Callable[[Bill], bool] = lambda _: False


def findings(
    home: SimulatedInstallation,
    *,
    paused: bool = False,
    culprits: Collection[str] | None = None,
    promises: Promises = Promises(),
) -> list[str]:
    """All violations, one sentence each. With `paused`, jobs may be paused at the end.

    `culprits` are the jobs that may fail or be quarantined; None: unknown.
    """
    with home.store.read() as tx:
        jobs, runs = tx.jobs(), tx.runs()
        booked: Counter[str] = Counter()
        paid: Counter[str] = Counter()
        for entry in tx.entries():
            booked[entry.run_id] += entry.amount_nano_usd
            paid[entry.job_id] += entry.amount_nano_usd
        compared = tx.comparisons()
        quarantined = {each.job_id for each in tx.quarantined()}
        moves = tx.migrations(open=False)
        kinds = {event.kind for event in tx.events()}
        unfinished = [*tx.migrations(open=True), *tx.open_commands(), *tx.unsettled_runs()]
    bills = home.cloud.bills()
    book = home.site.book()
    return [
        *_leaked(home),
        *_doubled(bills, jobs, runs, whole=promises.whole),
        *_money(bills, runs, booked, promises),
        *(line for job in jobs if promises.checkpoints for line in _checkpoints(home, bills, job, runs, moves)),
        *_compared(compared, [job for job in jobs if job.id not in quarantined], paid),
        *(f"unfinished: {each}" for each in unfinished),
        *(f"unknown kind of event: {kind}" for kind in kinds - EVENT_KINDS),
        *(line for job in jobs for line in _state(home, job, book, paused)),
        *(line for job in jobs for line in _generations(home, job, [run for run in runs if run.job_id == job.id])),
        *_lost_work(home, runs, book, culprits or ()),
        *_blamed(home, culprits or ()),
        *(() if culprits is None else _harmed(home, jobs, culprits)),
        *(f"trespass: one that was deposed wrote {what}" for what in home.injector.trespasses),
    ]


def lost_at_most(home: SimulatedInstallation) -> int:
    """Steps between two checkpoints, and the one that was under way."""
    return int(home.timings.checkpoint_every_s / home.timings.step_s) + 1


def _leaked(home: SimulatedInstallation) -> Iterator[str]:
    for instance in home.cloud.instances():
        if instance.alive:
            yield f"leaked: {instance.id} of {instance.offer_id} is {instance.state}"


def _doubled(bills: tuple[Bill, ...], jobs: list[Job], runs: list[Run], *, whole: bool) -> Iterator[str]:
    nodes = {job.id: job.spec.resources.nodes for job in jobs}
    if not whole:  # one that failed is replaced under its name
        bills = tuple({bill.instance_id: bill for bill in bills}.values())
    for what, counted in (
        ("token", Counter((bill.token, bill.tags["tradewind-job"]) for bill in bills)),
        ("run", Counter((bill.tags["tradewind-run"], bill.tags["tradewind-job"]) for bill in bills)),
    ):
        for (name, job_id), count in counted.items():
            if count > nodes[job_id] or (whole and count < nodes[job_id]):
                yield f"doubled: {count} machines of {what} {name}, which wants {nodes[job_id]}"
    with_standby = {job.id for job in jobs if job.spec.standby == "warm"}
    in_order = sorted(runs, key=lambda run: run.generation)
    newest = {instance_id: run for run in in_order for instance_id in run.instance_ids}  # that had the machine
    intervals: dict[str, list[tuple[int, int]]] = {}
    for bill in bills:
        if bill.from_ms is not None and bill.to_ms is not None:
            run = newest.get(bill.instance_id)
            given_up_ms = None if run is None else run.training_to_ms  # from then on its end is being asked for
            to_ms = bill.to_ms if given_up_ms is None else min(bill.to_ms, given_up_ms)
            intervals.setdefault(bill.tags["tradewind-job"], []).append((bill.from_ms, to_ms))
    for job_id, spans in intervals.items():
        most = max(sum(begin <= at < end for begin, end in spans) for at, _ in spans)
        if most > nodes[job_id] * (MOST_BILLED + (job_id in with_standby)):
            yield f"doubled: {most} machines of {job_id} at the same time"


def _money(bills: tuple[Bill, ...], runs: list[Run], booked: Counter[str], promises: Promises) -> Iterator[str]:
    """What each machine cost, over the runs that had it one after the other."""
    unsure = {bill.tags["tradewind-run"] for bill in bills if promises.ends_unknown(bill)}
    rented_for = {bill.instance_id: bill.tags["tradewind-run"] for bill in bills}
    first = {run.id: rented_for.get(run.instance_id or "", run.id) for run in runs}
    billed: Counter[str] = Counter()
    for bill in bills:
        billed[bill.tags["tradewind-run"]] += bill.amount_nano_usd
    paid: Counter[str] = Counter()
    for run_id, amount in booked.items():
        paid[first.get(run_id, run_id)] += amount
    for run_id in sorted(billed.keys() | paid.keys()):
        if billed[run_id] != paid[run_id] and not (run_id in unsure and billed[run_id] < paid[run_id]):
            yield f"money: {run_id} cost {billed[run_id]} nano-USD, the ledger says {paid[run_id]}"


def _checkpoints(
    home: SimulatedInstallation, bills: tuple[Bill, ...], job: Job, runs: list[Run], moves: list[Migration]
) -> Iterator[str]:
    """The machine that took a job over is billed for the way of its checkpoint and for the room that it took there."""
    billed = {bill.instance_id: bill for bill in bills}
    handed_over = {move.target_run_id for move in moves if move.step is Step.DONE and move.manifest is not None}
    trained = [run for run in runs if run.job_id == job.id and run.training_from_ms is not None]
    size_bytes = home.checkpoints.size_bytes(job.id) * BYTE_STANDS_FOR
    for before, after in pairwise(sorted(trained, key=lambda run: run.generation)):
        bill, source, place = (
            billed.get(after.instance_id or ""),
            location_of(before.offer_id),
            location_of(after.offer_id),
        )
        if after.id not in handed_over or after.machine_from_ms is not None or bill is None:
            continue
        if bill.from_ms is None or bill.to_ms is None:
            continue
        room = [(bill.from_ms, size_bytes * job.spec.checkpoint.keep)]
        right = {
            "egress": egress_nano_usd(egress_rate(source, place), size_bytes),
            "requests": requests_nano_usd(source, place, size_bytes),
            "storage": storage_nano_usd(rate_card(place[0]), room, bill.from_ms, bill.to_ms),
        }
        said = {kind: amount for kind, amount in bill.charges.items() if kind in right}
        if said != {kind: amount for kind, amount in right.items() if amount}:
            yield f"money: the checkpoint of {after.id} cost {right} nano-USD, its bill says {said}"


def _compared(compared: list[Comparison], jobs: list[Job], paid: Counter[str]) -> Iterator[str]:
    """Of a job that has ended, what it paid and what it would have cost are kept, as its inputs have it."""
    known = {each.job_id for each in compared}
    for job in jobs:
        if job.state in TERMINAL and job.id not in known:
            yield f"not compared: {job.id} is {job.state}"
    for each in compared:
        if each.paid_nano_usd != paid[each.job_id]:
            yield f"comparison: {each.job_id} paid {paid[each.job_id]}, and {each.paid_nano_usd} is compared"
        if each.inputs is not None and baseline_nano_usd(each.inputs) != each.baseline_nano_usd:
            yield f"comparison: {each.baseline} of {each.job_id} does not follow from its inputs"


def _state(home: SimulatedInstallation, job: Job, book: list[TrainingState], paused: bool) -> Iterator[str]:
    if job.state not in TERMINAL and not (paused and job.state == "paused"):
        yield f"lost: {job.id} ended as {job.state}"
    done = any(trained.job_id == job.id and trained.step == job.spec.train.steps for trained in book)
    if job.state == "finished" and not done and not (job.id in home.site.liars and _ended_by_itself(home, job)):
        yield f"lost: {job.id} is finished, but no run of it made all its steps"


def _ended_by_itself(home: SimulatedInstallation, job: Job) -> bool:
    """Whether its program seemed to end as any program may: a lie about that cannot be distinguished from the truth."""
    (finished,) = home.events(job, "job.finished")
    return "stop()" in finished.message or "never called attach()" in finished.message


def _blamed(home: SimulatedInstallation, culprits: Collection[str]) -> Iterator[str]:
    """No trainer fails but for its own code."""
    for job_id, run_id, error in home.site.failures():
        if BUG not in error and job_id not in culprits:
            yield f"blamed: {run_id} failed for no fault of its job: {error}"


def _harmed(home: SimulatedInstallation, jobs: list[Job], culprits: Collection[str]) -> Iterator[str]:
    """What is done to one job is felt by no other."""
    quarantined = {event.job_id for event in home.read(lambda tx: tx.events(kinds=("job.quarantined",)))}
    for job in jobs:
        if job.id in culprits:
            continue
        if job.id in quarantined:
            yield f"harmed: {job.id} was quarantined, although nothing of it broke"
        if job.state == "failed":
            yield f"harmed: {job.id} failed for no fault of its own"


def _generations(home: SimulatedInstallation, job: Job, runs: list[Run]) -> Iterator[str]:
    """Each run's is newer than those before it; a standby's, which is given when it takes over, than those that trained
    before it."""
    if job.spec.standby == "warm":
        trained = [run for run in runs if run.training_from_ms is not None]
        if len({run.generation for run in runs}) < len(runs):
            yield f"fence: two runs of {job.id} have the same generation"
        numbers = [
            run.generation for run in sorted(trained, key=lambda run: (run.training_from_ms or 0, run.generation))
        ]
    else:
        numbers = [run.generation for run in sorted(runs, key=lambda run: (run.created_at_ms, run.generation))]
    if any(later <= earlier for earlier, later in pairwise(numbers)):
        yield f"fence: the generations of {job.id} do not increase: {numbers}"
    fences = home.checkpoints.fences(job.id)
    if list(fences) != sorted(fences):
        yield f"fence: the fences of {job.id} were made in the order {list(fences)}"
    slipped = home.checkpoints.slipped.get(job.id, set())
    for generation, manifest in fences.items():
        if manifest in slipped:
            yield f"fence: generation {generation} of {job.id} restored {manifest}, written by one shut out"


def _lost_work(
    home: SimulatedInstallation, runs: list[Run], book: list[TrainingState], culprits: Collection[str]
) -> Iterator[str]:
    lost_touch = {run.id for run in runs if run.end == "lost"}
    for before, after in pairwise(book):
        if before.job_id != after.job_id:
            continue
        lost = before.step - after.start_step
        # a notice helps nobody whose code raised, who was ended by force before it was time to act on it, or whose
        # lease had lapsed: that one may not commit any more, or was ended as soon as it woke
        fenced, silent = before.state == "fenced", before.run_id in lost_touch
        lapsed = (silent and fenced) or (before.slept and (silent or fenced))
        helpless = before.state == "failed" or lapsed or before.run_id in home.forced or before.job_id in culprits
        most = 1 if before.noticed and not helpless else lost_at_most(home)
        if lost > most:
            yield (
                f"lost work: {before.run_id} came to step {before.step} ({before.state}"
                f"{', with notice' if before.noticed else ''}), {after.run_id} began at {after.start_step}"
            )
