"""Corrects the ledger: new entries, with a reason, bring each run's sum to its price times its time. Existing
entries are never changed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import AbstractContextManager

from orchestrator import ledger
from orchestrator.engine.billing.comparisons import conclude
from orchestrator.errors import UsageError
from orchestrator.installation import Installation
from orchestrator.ledger import total_nano_usd
from orchestrator.model import Entry, Event, Job, Run, new_id
from orchestrator.services.caller import Caller
from orchestrator.services.store.views import CorrectedRun, LedgerCorrection
from orchestrator.store import Tx

LONGEST_REASON = 500


def correct(
    installation: Installation, reason: str, ref: str | None = None, *, caller: Caller, dry_run: bool = False
) -> LedgerCorrection:
    """Corrects the ledger of one job, or of all; with `dry_run` it only returns what would be booked.

    It is one transaction, so a control plane may keep running. Raises NotFoundError, UsageError for an invalid reason,
    StoreError.
    """
    opened: AbstractContextManager[Tx] = installation.store.read() if dry_run else installation.store.write()
    found = []
    now_ms = installation.clock.now_ms()
    with opened as tx:
        if not dry_run and tx.unequal_sums():
            tx.renew_sums()
        jobs = tx.outlines() if ref is None else [tx.find_job(ref)]
        reason = _one_line(reason, needed=not dry_run)
        for job in jobs:
            for run in tx.runs(job_id=job.id):
                booked = tx.entries(run_id=run.id)
                fresh = amendments(tx, job, run, booked, now_ms)
                if not fresh:
                    continue
                amount, change = total_nano_usd(booked), total_nano_usd(fresh)
                found.append(
                    CorrectedRun(job.name, job.id, run.id, run.offer_id, amount, amount + change, tuple(fresh))
                )
                if not dry_run:
                    tx.add_entries(fresh)
                    tx.add_event(_event(installation, caller, job, run, reason, fresh))
            if not dry_run:
                conclude(installation, tx, job.id, because=reason)  # its savings were computed from the old sums
    return LedgerCorrection(dry_run, reason, tuple(found), sum(total_nano_usd(each.entries) for each in found))


def amendments(tx: Tx, job: Job, run: Run, booked: Sequence[Entry], at_ms: int) -> list[Entry]:
    """The entries that correct a run's ledger; none if it is correct. For a current run only wrong periods are
    corrected: prices that became known late are booked at its end anyway."""
    if run.billed_from_ms is None or run.machine_billed_from_ms is None or not priced(tx, run):
        return []
    if run.billed_to_ms is None and not wrong_periods(run, booked):
        return []
    upto_ms = run.billed_to_ms if run.billed_to_ms is not None else tx.booked_until_ms(run.id) or run.billed_from_ms
    changes = tx.price_changes(run.offer_id, run.machine_billed_from_ms, upto_ms)
    return ledger.amend(job, run, booked, changes, at_ms)


def priced(tx: Tx, run: Run) -> bool:
    """True if the price at the start of its machine's billing is known; without it nothing can be computed."""
    start_ms = run.machine_billed_from_ms
    assert start_ms is not None
    changes = tx.price_changes(run.offer_id, start_ms, start_ms + 1)
    return bool(changes) and changes[0][0] <= start_ms


def wrong_periods(run: Run, booked: Sequence[Entry]) -> list[str]:
    """Descriptions of seconds of a run's machine that are booked twice or not at all, corrections considered."""
    upto, found = run.billed_from_ms, []
    compute = sorted((each for each in booked if each.kind == "compute"), key=lambda each: each.period_start_ms)
    for entry in compute:
        if upto is None:
            break  # without billing there is no correct amount
        if ledger.twice_booked(entry, upto, booked):
            found.append(f"{run.id} is booked twice at {upto}")
        elif entry.period_start_ms > upto:
            found.append(f"{run.id} is booked with a gap at {upto}")
        upto = max(upto, entry.period_end_ms)
    if run.billed_to_ms is not None and upto is not None and upto < run.billed_to_ms:
        found.append(f"{run.id} is booked up to {upto} only, and ended at {run.billed_to_ms}")
    return found


def _event(
    installation: Installation, caller: Caller, job: Job, run: Run, reason: str, fresh: Sequence[Entry]
) -> Event:
    amount = total_nano_usd(fresh)
    return Event(
        id=new_id("ev", installation.clock.now_ms(), random.SystemRandom()),
        at_ms=installation.clock.now_ms(),
        kind="ledger.corrected",
        message=f"the ledger of {run.id} was corrected by {amount / 1e9:+.9f} USD in {len(fresh)} entries: {reason}",
        actor=caller.actor,
        job_id=job.id,
        run_id=run.id,
        data={"reason": reason, "amount_nano_usd": amount, "first_entry": fresh[0].id, "entries": len(fresh)},
        project=job.project,
        owner=job.owner,
        labels=job.spec.labels,
    )


def _one_line(reason: str, *, needed: bool) -> str:
    reason = reason.strip()
    if needed and not reason:
        raise UsageError(
            "a correction needs a reason", hint="for example: --reason 'booked twice by two control planes'"
        )
    if len(reason) > LONGEST_REASON or not reason.isprintable():
        raise UsageError(
            f"a reason is one line of at most {LONGEST_REASON} printable characters", hint="use fewer words"
        )
    return reason
