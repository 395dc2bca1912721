"""Machine cost: the cost of a run's machines up to a market time, at the known prices, for spending limits and
messages.

If the books are closed, it is the booked amount; if the run has not ended, it is computed as if it ended then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from orchestrator.engine.billing.egress_estimates import estimated_nano_usd
from orchestrator.ledger import cost_between, usage_of
from orchestrator.model import Run
from orchestrator.store import Tx
from providers.billing.charges import ChargeKind, RateCard, charges, rate_card
from providers.offer import provider_of


def job_cost_nano_usd(tx: Tx, job_id: str, unsettled: Sequence[Run], upto_ms: int) -> int:
    """The amount that counts against a job's budget at a market time, in nano-USD: everything that is booked, and the
    unbooked cost of its machines: time since the last booking, and disk, storage and the egress of a move, which are
    booked when a machine has ended. `unsettled` are its runs with open books."""
    return tx.total_nano_usd(job_id) + unbooked_nano_usd(tx, unsettled, upto_ms)


def unbooked_nano_usd(tx: Tx, unsettled: Sequence[Run], upto_ms: int) -> int:
    """The unbooked cost of the machines of runs with open books by a market time, in nano-USD."""
    return sum(machine_cost_nano_usd(tx, run, upto_ms) - tx.total_nano_usd(run.job_id, run.id) for run in unsettled)


def machine_cost_nano_usd(tx: Tx, run: Run, upto_ms: int) -> int:
    """nano-USD for the run's time on the machine, plus all other charges on the machine's last run; if it was never
    billed, the cost of its launch."""
    if run.billed_to_ms is not None:
        return tx.total_nano_usd(run.job_id, run.id)
    booked = tx.charged_nano_usd(run.id)
    own_ms, start_ms = run.billed_from_ms, run.machine_billed_from_ms
    if own_ms is None or start_ms is None or upto_ms < own_ms:
        return booked
    changes = tx.price_changes(run.offer_id, start_ms, upto_ms)
    spent = booked + sum(cost_between(changes, run, each, own_ms, upto_ms) for each in run.machines)
    return spent + sum(charges_of(run, rate_card(provider_of(run.offer_id)), changes, upto_ms).values())


def charges_of(run: Run, card: RateCard, changes: Sequence[tuple[int, int]], at_ms: int) -> Mapping[ChargeKind, int]:
    """The charges for a run's machines other than their time if they end by `at_ms`, in nano-USD: those of each
    machine, and once those of the checkpoint. For a provider that declares no charges, only what other clouds are
    expected to bill for the checkpoint."""
    owed: Counter[ChargeKind] = Counter()
    usage = usage_of(run)
    for each in run.machines:
        if each.instance_id is None or (each.billed_from_ms is None and each.billed_to_ms is None):
            continue  # it does not exist, or is not billable yet
        owed["egress_estimate"] = estimated_nano_usd(usage_of(run))
        if not card.declared:
            continue
        start_ms = each.billed_from_ms if run.machine_from_ms is None else run.machine_from_ms
        end_ms = at_ms if each.billed_to_ms is None else each.billed_to_ms
        owed.update(charges(card, changes, start_ms, end_ms, at_ms, ended=True, usage=usage))
        usage = None
    return +owed
