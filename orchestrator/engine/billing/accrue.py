"""Accrue: books the cost of machines, while they run and once more when they have ended.

Prices are known up to the last successful poll, so nothing is booked beyond that time: an entry never guesses a price.
Each transaction books the run as it reads it, since another process may have closed its books in the meantime.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from orchestrator import ledger
from orchestrator.engine.billing.machine_cost import charges_of
from orchestrator.engine.compartment import Compartment, contained_writes
from orchestrator.engine.context import Context
from orchestrator.engine.direct_calls import Ask
from orchestrator.engine.inputs.snapshot import left_out
from orchestrator.engine.jobs.checkpoints import CheckpointUnusable, FileCatalog
from orchestrator.engine.machines.collect import collect
from orchestrator.installation import Installation
from orchestrator.model import Member, Migration, Run, Step, billed_together
from orchestrator.store import Leadership, Tx
from providers.base import MetersUsage
from providers.billing.charges import ChargeKind, Usage, disk_nano_usd, rate_card, storage_nano_usd
from providers.errors import NotFoundError, ProviderError
from providers.instance import Instance
from providers.money import MS_PER_HOUR
from providers.offer import provider_of

BOOKED_AT_ONCE = 20  # runs in one tick, so that none takes long
ROUNDED_UP_S = 1.0  # at most, in real time: bills are by the second


def accrue(ctx: Context, every_s: float) -> None:
    """Book running machines up to their provider's last successful poll: each every `every_s` wall seconds, a few of
    them in one tick."""
    living = [run for run in ctx.work.runs if run.billed_from_ms is not None]
    due = ctx.few_due("accrue", living, lambda run: run.id, every_s, BOOKED_AT_ONCE)
    contained_writes(ctx, Compartment.ACCRUE, due, lambda run: run.job_id, partial(_accrue_one, ctx))


def _accrue_one(ctx: Context, tx: Tx, run: Run) -> None:
    """Nothing is booked for the time after a machine may have ended by itself; its last second follows with its end."""
    known_ms = prices_known_until_ms(tx, run.offer_id, ctx.now_ms)
    if known_ms is None or ctx.unheard(run):
        return
    last_ms = round(ROUNDED_UP_S * 1000 * ctx.installation.clock.factor)
    ends = [at_ms - last_ms for each in run.instance_ids if (at_ms := ctx.lived_until_ms(each)) is not None]
    book(tx, run.id, min([known_ms, *ends]))


def settle(
    installation: Installation,
    leadership: Leadership | None,
    run: Run,
    machines: Sequence[Member],
) -> bool:
    """Close the books of a run whose machines are confirmed gone and whose usage the provider knows (`meter`). Returns
    False while some of its prices are not known.

    `machines` are its machines with their billed intervals (`as_described`). A machine that never became billable gets
    an empty interval. The run is over, regardless of what it waited for. Closed books stay closed, with one exception:
    an earlier run's books are corrected if the machine turns out to have ended while that run still had it.
    """
    now_ms = installation.clock.now_ms()
    ended = [each if each.billed_to_ms is not None else replace(each, billed_to_ms=now_ms) for each in machines]
    billed_from_ms, billed_to_ms = billed_together(ended)
    end_ms = now_ms if billed_to_ms is None else billed_to_ms
    if run.machine_from_ms is not None and run.billed_from_ms is not None:
        billed_from_ms = min(run.billed_from_ms, end_ms)  # an earlier run started the machine's bill
    with installation.store.write(leadership) as tx:
        if tx.run(run.id).billed_to_ms is not None:
            return True
        known_ms = prices_known_until_ms(tx, run.offer_id, now_ms)
        if billed_from_ms is not None and (known_ms is None or known_ms < end_ms):
            return False
        if billed_from_ms is not None:
            before, after = _others_on_its_machine(tx, run)
            own_end_ms = min([end_ms, *(each.billed_from_ms for each in after if each.billed_from_ms is not None)])
            tx.set_machines(run.id, ended)
            tx.update_run(run.id, state="ended", billed_from_ms=billed_from_ms, billed_to_ms=own_end_ms)
            book(tx, run.id, own_end_ms)
            for each in before:
                if each.billed_from_ms is not None and each.billed_to_ms is not None and each.billed_to_ms > end_ms:
                    tx.update_run(each.id, billed_to_ms=max(each.billed_from_ms, end_ms))
                    book(tx, each.id, end_ms)
        else:
            tx.set_machines(run.id, ended)
            tx.update_run(run.id, state="ended", billed_to_ms=end_ms)
        _book_charges(tx, run.id, end_ms)
        given_back = run.end in ("finished", "failed", "moved", "paused", "cancelled", "aborted")
        for _ in range(run.nodes if given_back else run.nodes - 1):  # else its loss was counted when it ended
            tx.add_availability(run.offer_id, installation.clock.now_ms(), "released", run.id, "")
    return True


def settle_all(installation: Installation, leadership: Leadership, ask: Ask) -> None:
    """Settle everything after a control plane and all its machines were shut down for good. `ask` makes the calls to
    providers.

    Unreadable rows are left to the next control plane. Raises NotLeaderError as soon as another one has taken over.
    """
    now = installation.clock.now_ms()
    with installation.store.read() as tx:
        moves = tx.migrations(open=True, unreadable=left_out)
        cut_over = [migration.id for migration in moves if _handed_over(installation, tx, migration)]
    with installation.store.write(leadership) as tx:
        open_ones = tx.migrations(open=True, unreadable=left_out)
        tried = {migration.target_run_id for migration in open_ones if migration.attempt > 0}
        for migration in open_ones:
            if migration.id in cut_over:
                tx.advance(migration.id, migration.step, Step.DONE)
            else:
                tx.advance(migration.id, migration.step, Step.ABORTED, error="the control plane was shut down")
        took_over = {migration.target_run_id for migration in open_ones if migration.id in cut_over}
        for run in tx.runs(live=True, unreadable=left_out):
            if run.id in took_over and run.training_from_ms is None:
                tx.update_run(run.id, training_from_ms=now)  # so a resumed job waits until it has ended
            may_appear = not run.complete and (run.end is not None or run.id in tried)  # a machine: the next one checks
            if run.end is None and may_appear:
                tx.update_run(run.id, end="aborted", training_to_ms=now)
            elif run.end is None:
                tx.update_run(run.id, state="ended", end="paused", training_to_ms=now)
            elif not may_appear:
                tx.update_run(run.id, state="ended")
        for job in tx.outlines(ended=False):
            tx.set_job_state(job.id, "cancelled" if job.state == "cancelling" else "paused")
    with installation.store.read() as tx:
        unsettled = [run for run in tx.unsettled_runs(unreadable=left_out) if run.complete]
    ended = []
    for run in unsettled:
        try:
            provider = installation.providers[provider_of(run.offer_id)]
            described = ask(provider.name, partial(provider.describe, run.instance_ids))
        except (ProviderError, KeyError):
            continue  # the next control plane asks again
        known = {each.id: each for each in described}
        if known.keys() == {*run.instance_ids} and not any(each.alive for each in described):
            factor = installation.clock.factor
            machines = [as_described(run, m, known[m.instance_id or ""], now, factor) for m in run.machines]
            ended.append((run, machines))
    last_ms = max((each.billed_to_ms or now for _, machines in ended for each in machines), default=now)
    _wait_until(installation, last_ms)
    collect(installation, leadership, ask)
    for run, machines in ended:
        report_usage = meter(installation, run)
        with suppress(ProviderError):  # the next control plane reports it
            if report_usage is not None:
                ask(provider_of(run.offer_id), report_usage)
            settle(installation, leadership, run, machines)


def as_described(run: Run, machine: Member, instance: Instance | None, gone_ms: int, factor: float) -> Member:
    """A machine of a run that is gone, with the interval for which its provider bills it. If the provider no longer
    knows the machine or its end, it is billed at most until it was found to be gone. That instant must be the same each
    time: prices are never known up to now. One that trained is billed from when it began, even if the provider no
    longer says so. `factor` is that of the clock."""
    if machine.instance_id is None:
        return machine
    if instance is None:
        return replace(machine, billed_to_ms=gone_ms)
    ended_ms = gone_ms if instance.billed_to_ms is None else instance.billed_to_ms
    trained = run.training_from_ms is not None
    began_ms = machine.billed_from_ms if trained and instance.billed_from_ms is None else instance.billed_from_ms
    if began_ms is not None and ended_ms > gone_ms:
        longest_ms = _longest_ms(run, gone_ms, factor)
        ended_ms = ended_ms if longest_ms is None else min(ended_ms, began_ms + longest_ms)
    return replace(machine, billed_from_ms=began_ms, billed_to_ms=ended_ms)


def _longest_ms(run: Run, gone_ms: int, factor: float) -> int | None:
    """For how long a machine can have been billed: from its request until it was found to be gone, both by our clock,
    from which the provider's may differ, and rounded up. None if our clock was set back, or if an earlier run
    requested the machine."""
    if run.machine_from_ms is not None or gone_ms < run.created_at_ms:
        return None
    return gone_ms - run.created_at_ms + round(ROUNDED_UP_S * 1000 * factor)


def _wait_until(installation: Installation, at_ms: int) -> None:
    """Wait (up to ROUNDED_UP_S) for the end of a rounded-up bill: until then its last price is not known."""
    wall_s = (at_ms - installation.clock.now_ms()) / 1000 / installation.clock.factor
    if wall_s > 0:
        installation.clock.sleep(min(wall_s, ROUNDED_UP_S))


def running_nano_usd_per_hour(tx: Tx, runs: Sequence[Run], now_ms: int) -> int:
    """The cost per hour of the running machines of these runs, including disks and stored checkpoints, at the known
    prices."""
    rate = 0
    for run in runs:
        if is_billed(run):
            changes = tx.price_changes(run.offer_id, now_ms, now_ms + 1)
            rate += run.nodes * (changes[-1][1] if changes else 0)
            rate += _kept_nano_usd_per_hour(run)
    return rate


def is_billed(run: Run) -> bool:
    """Whether a machine of the run is billed, as far as it is known."""
    began, booked = run.billed_from_ms is not None, run.billed_to_ms is not None
    return began and not booked and any(each.billed_to_ms is None for each in run.machines)


def _kept_nano_usd_per_hour(run: Run) -> int:
    """For its machines' disks and the stored checkpoints."""
    card = rate_card(provider_of(run.offer_id))
    kept = [(0, run.kept_bytes)] if run.kept_bytes and card.bills_checkpoints else []
    return run.nodes * disk_nano_usd(card, 0, MS_PER_HOUR) + storage_nano_usd(card, kept, 0, MS_PER_HOUR)


def reserve_nano_usd(rate_per_hour: int, market_s: float) -> int:
    """The cost of `market_s` more seconds (nano-USD) at a rate in nano-USD per hour."""
    return int(rate_per_hour * market_s * 1000) // MS_PER_HOUR


def prices_known_until_ms(tx: Tx, offer_id: str, now_ms: int) -> int | None:
    """The market time up to which all price changes of an offer are in the store; None if there are none, or if the
    clock that dated the last poll was ahead of `now_ms`: nothing is known about the time since that poll."""
    known_ms = tx.priced_to_ms(offer_id)
    return None if known_ms is None or known_ms > now_ms else known_ms


def meter(installation: Installation, run: Run) -> Callable[[], None] | None:
    """The call that reports the run's usage to a provider that bills checkpoints but cannot see them; None if there is
    nothing to report. Reporting the same usage again changes nothing. The call raises ProviderError."""
    provider, usage = installation.providers.get(provider_of(run.offer_id)), ledger.usage_of(run)
    if usage is None or run.instance_id is None or not isinstance(provider, MetersUsage):
        return None
    return partial(_meter, provider, run.instance_id, usage)


def _meter(provider: MetersUsage, instance_id: str, usage: Usage) -> None:
    with suppress(NotFoundError):  # it does not bill that machine
        provider.meter(instance_id, usage)


def _handed_over(installation: Installation, tx: Tx, migration: Migration) -> bool:
    """Whether the target owns the job. The fence determines that, not the store."""
    if migration.step is not Step.CUTOVER:
        return migration.step is Step.RELEASE
    root = installation.checkpoint_root(tx.outline(migration.job_id).spec.checkpoint.to)
    try:
        return FileCatalog().fenced(root, migration.job_id) >= migration.generation
    except CheckpointUnusable:
        return False


def book(tx: Tx, run_id: str, upto_ms: int) -> None:
    """Book the rest of a run's time up to `upto_ms` at the known prices, and corrections once it has ended."""
    run = tx.run(run_id)
    start_ms = run.machine_billed_from_ms
    if run.billed_from_ms is None or start_ms is None or upto_ms < start_ms:
        return
    if upto_ms == start_ms and run.billed_to_ms is None:
        return  # a machine that ended at once may have been booked meanwhile: that booking is reversed
    job = tx.outline(run.job_id)  # it costs money even if its job file cannot be read
    changes = tx.price_changes(run.offer_id, start_ms, upto_ms)
    fresh = ledger.accrue(job, run, changes, upto_ms, tx.booked_until_ms(run.id))
    if run.billed_to_ms is not None:  # only once, at its end, because all of its entries are read
        fresh += ledger.restate(run, tx.entries(run_id=run.id), changes, upto_ms)
    if fresh:
        tx.add_entries(fresh)


def _others_on_its_machine(tx: Tx, run: Run) -> tuple[list[Run], list[Run]]:
    """The runs that had the run's machine before it, and those that had it after."""
    others = [each for each in tx.runs(job_id=run.job_id, unreadable=left_out) if each.instance_id == run.instance_id]
    before = [each for each in others if each.generation < run.generation]
    return before, [each for each in others if each.generation > run.generation]


def _book_charges(tx: Tx, run_id: str, at_ms: int) -> None:
    """Book the charges of an ended machine other than its time, as its provider declares them or as estimated: on its
    last run, for the whole life of the machine. Charges booked on an earlier run, before the later run was known, are
    reversed."""
    run = tx.run(run_id)
    card = rate_card(provider_of(run.offer_id))
    if run.instance_id is None:
        return
    before, after = _others_on_its_machine(tx, run)
    start_ms = run.machine_billed_from_ms
    right: Mapping[ChargeKind, int] = {}
    if not after:
        changes = [] if start_ms is None else tx.price_changes(run.offer_id, start_ms, at_ms)
        right = charges_of(run, card, changes, at_ms)
    owed = [(run, right), *((each, {}) for each in before)]
    for each, amounts in owed:
        if fresh := ledger.charge(tx.outline(run.job_id), each, amounts, tx.entries(run_id=each.id), at_ms):
            tx.add_entries(fresh)
