"""Entries from the interval that a run was billed and the prices in force during it.

The entry of a period is floor(cost from the run's start to the period's end) - floor(cost to the period's begin), so
that the entries of any split sum to the cost of the whole, to the nano-dollar. Entries are never edited: what turns out
different later (a price learned late, a machine that ended earlier) becomes a correction that names what it corrects.

Must not know: who pays, where entries are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orchestrator.model import Entry, EntryKind, Job, Run, derived_id
from providers.money import cost_nano_usd

PriceChanges = Sequence[tuple[int, int]]
"""(effective_at_ms, nano-USD per hour), ascending; the first at or before the run's billed start."""


def accrue(
    job: Job,
    run: Run,
    price_changes: PriceChanges,
    upto_ms: int,
    last_period_end_ms: int | None,
    *,
    minimum_ms: int = 0,
) -> list[Entry]:
    """The entries still missing for `run` up to `upto_ms`: at most one period, and a minimum charge once it has ended.

    `last_period_end_ms` is the largest period end among the run's entries (None: it has none yet). Ids are derived from
    (run, period start, kind), so that accruing again after a crash yields the same rows. Nothing is due for a run that
    never became billable. Raises ValueError when no price is known at the billed start.
    """
    start = run.billed_from_ms
    if start is None:
        return []
    end = upto_ms if run.billed_to_ms is None else min(upto_ms, run.billed_to_ms)
    begin = start if last_period_end_ms is None else last_period_end_ms
    entries = []
    if end > begin:
        entries.append(_entry(job, run, "compute", begin, end, _between(price_changes, start, begin, end), upto_ms))
    least_end = start + minimum_ms
    if run.billed_to_ms is not None and begin <= run.billed_to_ms <= upto_ms and run.billed_to_ms < least_end:
        end = run.billed_to_ms
        # The price in force at the end holds for the rest of the minimum: nobody bills a machine that is gone by the
        # market's later moves.
        paid = [(at, price) for at, price in price_changes if at <= end]
        amount = _between(paid, start, end, least_end)
        entries.append(_entry(job, run, "minimum_charge", end, least_end, amount, upto_ms))
    return entries


def correction(entry: Entry, right_nano_usd: int, at_ms: int, *, earlier: Iterable[Entry] = ()) -> Entry | None:
    """The row that makes `entry` and its `earlier` corrections add up to `right_nano_usd`; None if they do."""
    standing = entry.amount_nano_usd + sum(e.amount_nano_usd for e in earlier if e.reverses == entry.id)
    if standing == right_nano_usd:
        return None
    return Entry(
        id=derived_id("ent", at_ms, f"{entry.id} {right_nano_usd} {at_ms}".encode()),
        run_id=entry.run_id,
        job_id=entry.job_id,
        period_start_ms=entry.period_start_ms,
        period_end_ms=entry.period_end_ms,
        kind="correction",
        amount_nano_usd=right_nano_usd - standing,
        basis=entry.basis,
        offer_id=entry.offer_id,
        at_ms=at_ms,
        reverses=entry.id,
        project=entry.project,
        owner=entry.owner,
        labels=entry.labels,
    )


def restate(run: Run, entries: Sequence[Entry], price_changes: PriceChanges, at_ms: int) -> list[Entry]:
    """Corrections for those compute entries of `run` that today's knowledge of its prices and its end contradicts.

    For facts that were learned late only: `price_changes` are the prices that were in force, not today's.
    """
    start = run.billed_from_ms
    if start is None:
        return []
    limit = run.billed_to_ms
    corrected: dict[str | None, list[Entry]] = {}
    for entry in entries:
        corrected.setdefault(entry.reverses, []).append(entry)
    corrections = []
    for entry in entries:
        if entry.run_id != run.id or entry.kind != "compute":
            continue
        begin, end = entry.period_start_ms, entry.period_end_ms
        if limit is not None:
            begin, end = min(begin, limit), min(end, limit)
        right = _between(price_changes, start, begin, end)
        change = correction(entry, right, at_ms, earlier=corrected.get(entry.id, ()))
        if change is not None:
            corrections.append(change)
    return corrections


def _between(price_changes: PriceChanges, start: int, begin: int, end: int) -> int:
    return cost_nano_usd(price_changes, start, end) - cost_nano_usd(price_changes, start, begin)


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
