"""Accrual: makes ledger entries from a run's billed interval and the prices in force during it.

The entry of a period is floor(cost from the machine's start to the period's end) - floor(cost to the period's begin),
for a run on several machines summed over them. So the entries of any split, also into consecutive runs on one machine,
add up to the cost of the whole, to the nano-dollar. Entries are never edited: what is learned later (a late price, an
earlier end of a machine) becomes a correction that names the entry it corrects. What is billed besides a machine's time
(providers.billing.charges) is one entry per run and kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from orchestrator.model import Entry, EntryKind, Job, Member, Run, derived_id
from providers.billing.charges import CHARGE_KINDS, ChargeKind, Usage
from providers.money import cost_nano_usd
from providers.offer import location_of

PriceChanges = Sequence[tuple[int, int]]
"""(effective_at_ms, nano-USD per hour), ascending; the first is at or before the machine's billed start."""


def accrue(
    job: Job, run: Run, price_changes: PriceChanges, upto_ms: int, last_period_end_ms: int | None
) -> list[Entry]:
    """The missing machine-time entry of `run` up to `upto_ms`: at most one period.

    `last_period_end_ms` is the latest period end among its machine-time entries (None if there is none). Ids are
    derived from (run, period start, kind), so that accruing again after a crash gives the same rows. A run that never
    became billable has no entries. Raises ValueError if no price is known at the billed start.
    """
    start = run.billed_from_ms
    if start is None:
        return []
    end = upto_ms if run.billed_to_ms is None else min(upto_ms, run.billed_to_ms)
    begin = start if last_period_end_ms is None else last_period_end_ms
    if end <= begin:
        return []
    return [_entry(job, run, "compute", begin, end, _between(price_changes, run, begin, end), upto_ms)]


def usage_of(run: Run) -> Usage | None:
    """The checkpoints moved to and stored for the run's machine; None if nothing is known."""
    if run.moved_bytes is None and run.kept_bytes is None:
        return None
    return Usage(
        at=location_of(run.offer_id),
        moved_from=tuple(run.moved_from.split("/")) if run.moved_from else (),
        moved_bytes=(run.moved_bytes or 0) if run.moved_from else 0,
        kept_bytes=run.kept_bytes or 0,
    )


def charge(job: Job, run: Run, right: Mapping[ChargeKind, int], entries: Sequence[Entry], at_ms: int) -> list[Entry]:
    """The entries that bring each charge in the run's `entries` to its `right` amount (nano-USD): one entry per kind,
    corrected if its amount changes. A booked kind that is no longer owed is taken back."""
    missing = []
    for kind in CHARGE_KINDS:
        amount = right.get(kind, 0)
        entry = next((each for each in entries if each.kind == kind), None)
        if entry is not None:
            change = correction(entry, amount, at_ms, earlier=entries)
            missing += [] if change is None else [change]
        elif amount:
            begin = at_ms if run.billed_from_ms is None else run.billed_from_ms
            end = at_ms if run.billed_to_ms is None else run.billed_to_ms
            missing.append(_entry(job, run, kind, begin, max(begin, end), amount, at_ms))
    return missing


def correction(entry: Entry, right_nano_usd: int, at_ms: int, *, earlier: Iterable[Entry] = ()) -> Entry | None:
    """The row that makes `entry` and its `earlier` corrections add up to `right_nano_usd`; None if they already do.

    It corrects the last of those corrections, so that each row is corrected at most once.
    """
    chain = _chain(entry, earlier)
    booked = sum(each.amount_nano_usd for each in chain)
    return None if booked == right_nano_usd else _correcting(chain[-1], right_nano_usd - booked, at_ms)


def restate(run: Run, entries: Sequence[Entry], price_changes: PriceChanges, at_ms: int) -> list[Entry]:
    """Corrections of those compute entries of `run` that its prices or its end, as known today, contradict, and of time
    booked by two entries, which stays with the one that begins first.

    Only for facts that were learned late: `price_changes` are the prices that were in force then, not today's. A double
    booking at no price is corrected by 0, which marks it as handled.
    """
    start = run.billed_from_ms
    if start is None:
        return []
    limit = run.billed_to_ms
    upto = start
    earlier = [each for each in entries if each.reverses is not None]
    corrections = []
    for entry in _periods(run, entries):
        begin, end = entry.period_start_ms, entry.period_end_ms
        if limit is not None:
            begin, end = min(begin, limit), min(end, limit)
        begin = max(begin, upto)
        right = _between(price_changes, run, begin, end) if end > begin else 0
        change = correction(entry, right, at_ms, earlier=earlier)
        if change is None and twice_booked(entry, upto, earlier):
            change = _correcting(entry, 0, at_ms)
        if change is not None:
            corrections.append(change)
        upto = max(upto, end)
    return corrections


def twice_booked(entry: Entry, upto_ms: int, entries: Iterable[Entry]) -> bool:
    """Whether a compute entry begins before `upto_ms`, up to where other entries have booked its run, and no correction
    has handled that yet."""
    return entry.period_start_ms < upto_ms and all(each.reverses != entry.id for each in entries)


def amend(job: Job, run: Run, entries: Sequence[Entry], price_changes: PriceChanges, at_ms: int) -> list[Entry]:
    """Everything that is missing for the entries of `run` to be its price times its time, each period once:
    corrections, and entries for gaps, up to its end or, while it runs, to the end of its last entry."""
    start = run.billed_from_ms
    if start is None:
        return []
    missing, upto = [], start
    ends = [entry.period_end_ms for entry in _periods(run, entries)]
    known = [(entry.period_start_ms, entry.period_end_ms) for entry in _periods(run, entries)]
    last = run.billed_to_ms if run.billed_to_ms is not None else max(ends, default=start)
    for begin, end in [*known, (last, last)]:
        until = min(begin, last)
        if until > upto:
            amount = _between(price_changes, run, upto, until)
            missing.append(_entry(job, run, "compute", upto, until, amount, at_ms))
        upto = max(upto, end)
    return restate(run, entries, price_changes, at_ms) + missing


def _periods(run: Run, entries: Iterable[Entry]) -> list[Entry]:
    compute = (entry for entry in entries if entry.run_id == run.id and entry.kind == "compute")
    return sorted(compute, key=lambda entry: entry.period_start_ms)


def _chain(entry: Entry, entries: Iterable[Entry]) -> list[Entry]:
    """An entry, its correction, the correction of that, and so on."""
    corrections = [each for each in entries if each.reverses is not None]
    chain, names = [entry], {entry.id}
    for each in corrections:  # in the order written: a corrected entry comes before its correction
        if each.reverses in names:
            chain.append(each)
            names.add(each.id)
    return chain


def _correcting(entry: Entry, amount_nano_usd: int, at_ms: int) -> Entry:
    return replace(
        entry,
        id=derived_id("ent", at_ms, f"{entry.id} {amount_nano_usd} {at_ms}".encode()),
        kind="correction",
        amount_nano_usd=amount_nano_usd,
        at_ms=at_ms,
        reverses=entry.id,
    )


def _between(price_changes: PriceChanges, run: Run, begin: int, end: int) -> int:
    """The cost of the run's machines from `begin` to `end`, of each within the interval for which it is billed."""
    return sum(cost_between(price_changes, run, each, begin, end) for each in run.machines)


def cost_between(price_changes: PriceChanges, run: Run, machine: Member, begin_ms: int, end_ms: int) -> int:
    """nano-USD for one machine of a run from `begin_ms` to `end_ms`, as far as the run is billed for it then."""
    own = machine.billed_from_ms
    if own is None:
        return 0
    start = own if run.machine_from_ms is None else run.machine_from_ms
    end = end_ms if machine.billed_to_ms is None else min(end_ms, machine.billed_to_ms)
    begin = max(begin_ms, own)
    return 0 if end <= begin else cost_nano_usd(price_changes, start, end) - cost_nano_usd(price_changes, start, begin)


def _entry(job: Job, run: Run, kind: EntryKind, begin: int, end: int, amount: int, at_ms: int) -> Entry:
    return Entry(
        id=derived_id("ent", begin, f"{run.id} {begin} {kind}".encode()),
        run_id=run.id,
        job_id=run.job_id,
        period_start_ms=begin,
        period_end_ms=end,
        kind=kind,
        amount_nano_usd=amount,
        basis="estimated",
        offer_id=run.offer_id,
        at_ms=at_ms,
        project=job.project,
        owner=job.owner,
        labels=job.spec.labels,
    )
