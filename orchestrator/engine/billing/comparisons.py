"""Comparisons: the cost of a job next to what other choices would have cost, computed once its books are closed.

The books are closed when the job has ended and each machine is booked to its end. The comparison then keeps the facts
known at that time: prices over the job's life and its own measured speeds. A later entry (a correction, a late charge)
adds a new version with the same machines and speeds, the prices and times known then, and the reason. Older versions
are kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from orchestrator import ledger
from orchestrator.engine.compartment import Compartment, contained_writes
from orchestrator.engine.context import Context
from orchestrator.engine.inputs import snapshot
from orchestrator.errors import NotFoundError, RowError
from orchestrator.installation import Installation
from orchestrator.ledger import (
    BASELINES,
    Baseline,
    Comparison,
    Inputs,
    Prices,
    Rate,
    Stay,
    baseline_nano_usd,
    elsewhere,
)
from orchestrator.model import Job, Run
from orchestrator.perf import InstanceKind, Observation, PerfBook, kind_name, kind_of
from orchestrator.store import Interval, Leadership, Tx
from providers.billing.charges import rate_card
from providers.money import format_usd
from providers.offer import Offer, OfferId, provider_of

AT_ONCE = 50  # jobs in one tick: after an upgrade there may be thousands

NO_STEP = "no step was recorded"
FAILED = "the job failed"
NEVER_PLACED = "no on-demand offer met its constraints when it was placed"


class _NotComparable(Exception):
    """Why a job is not compared with a baseline."""


def compare(ctx: Context) -> bool:
    """Compare up to AT_ONCE jobs whose books are closed and that are not compared yet. Returns whether any was."""
    with ctx.installation.store.read() as tx:
        due = tx.uncompared(AT_ONCE)
    return any(
        contained_writes(ctx, Compartment.COMPARE, due, str, lambda tx, job_id: conclude(ctx.installation, tx, job_id))
    )


def conclude(installation: Installation, tx: Tx, job_id: str, because: str = "") -> bool:
    """Store the comparison of a job whose books are closed, or a new version of it, with the reason `because`, if more
    was booked since then. Returns False, and writes nothing, if its books are open or nothing is new.

    Raises RowError if a row of the job cannot be read.
    """
    if not tx.books_closed(job_id) or tx.job_facts(job_id).compared_at_ms is not None:
        return False
    before = tx.comparisons(job_id)
    reason = _reason(tx, before[0], because) if before else ""
    tx.add_comparisons(comparisons(installation, tx, tx.outline(job_id), before=before, reason=reason))
    return True


def conclude_all(installation: Installation, leadership: Leadership) -> None:
    """Compare the jobs whose books were closed by a final shutdown.

    Unreadable rows are left to the next control plane. Raises NotLeaderError as soon as another one has taken over.
    """
    with installation.store.read() as tx:
        due = tx.uncompared(AT_ONCE)
    for job_id in due:
        with suppress(RowError), installation.store.write(leadership) as tx:
            conclude(installation, tx, job_id)


def comparisons(
    installation: Installation,
    tx: Tx,
    job: Job,
    *,
    before: Sequence[Comparison] = (),
    reason: str = "",
    lenient: bool = False,
) -> tuple[Comparison, ...]:
    """The job as it is now against each baseline: the version after `before`, with the same machines and speeds.

    Raises RowError for an unreadable run; with `lenient`, the job is not compared instead.
    """
    now = installation.clock.now_ms()
    case = _case(installation, tx, job, before, lenient)
    made = []
    for baseline in BASELINES:
        inputs, cost, why = None, None, case.left_out
        if not why:
            try:
                inputs = _OF[baseline](case)
                cost = baseline_nano_usd(inputs)
            except _NotComparable as error:
                inputs, why = None, str(error)
            except ValueError as error:  # a price is missing
                inputs, why = None, str(error)
        made.append(
            Comparison(
                job_id=job.id,
                version=before[0].version + 1 if before else 1,
                baseline=baseline,
                at_ms=now,
                reason=reason,
                paid_nano_usd=case.paid_nano_usd,
                entries=case.entries,
                baseline_nano_usd=cost,
                left_out=why,
                inputs=inputs,
            )
        )
    return tuple(made)


@dataclass(frozen=True)
class _Case:
    """One job, with offers, prices and speeds of the machines it ran on and of those it is compared with."""

    tx: Tx
    job: Job
    now_ms: int
    paid_nano_usd: int
    entries: int
    left_out: str  # why the job is not compared with anything
    stays: Sequence[Stay] = ()
    carried_nano_usd: int = 0
    before: Mapping[Baseline, Comparison] = field(default_factory=dict)
    offers: dict[str, Offer | None] = field(default_factory=dict)
    prices: dict[str, Prices] = field(default_factory=dict)

    def offer(self, offer_id: str) -> Offer:
        if offer_id not in self.offers:
            self.offers[offer_id] = self.tx.offer(offer_id)
        found = self.offers[offer_id]
        if found is None:
            raise _NotComparable(f"{offer_id} is unknown")
        return found

    def kind(self, offer_id: str) -> InstanceKind:
        offer = self.offer(offer_id)
        try:
            return kind_of(offer.gpu, offer.gpu_count)
        except KeyError:
            raise _NotComparable(f"the speed of {offer.gpu} is unknown") from None

    def inputs(self, stays: tuple[Stay, ...], rates: Sequence[Rate] = ()) -> Inputs:
        """These stays, with the prices of their machines since the job started."""
        names = sorted({part.offer_id for stay in stays for part in stay.parts})
        self.look_up_prices(names)
        prices = {name: self.prices[name] for name in names}
        providers = {provider_of(name) for name in names}
        cards = {name: card for name in sorted(providers) if (card := rate_card(name)).declared}
        nodes = self.job.spec.resources.nodes
        return Inputs(stays, prices, cards, self.carried_nano_usd, tuple(rates), nodes)

    def look_up_prices(self, offer_ids: Iterable[str]) -> None:
        """Read the prices of many offers in one query."""
        names = [name for name in offer_ids if name not in self.prices]
        found = self.tx.price_changes_of([Interval(name, self.stays[0].from_ms, self.now_ms) for name in names])
        self.prices.update((name, tuple(changes)) for name, changes in zip(names, found, strict=True))

    def all_on(self, offer_id: str, speeds: _Speeds) -> Inputs:
        """All of the work on one offer."""
        there = self.kind(offer_id)
        kinds = {part.offer_id: self.kind(part.offer_id) for stay in self.stays for part in stay.parts}
        pace = {name: speeds.pace(kind, there) for name, kind in kinds.items()}
        used = {each for each in (*kinds.values(), there) if any(kind != there for kind in kinds.values())}
        rates = [speeds.rate(kind) for kind in sorted(used, key=kind_name)]
        return self.inputs(elsewhere(self.stays, lambda part: (offer_id, pace[part.offer_id])), rates)

    def chosen_before(self, baseline: Baseline) -> str | None:
        """The baseline's offer in the previous version."""
        known = self.before.get(baseline)
        return next(iter(known.offer_ids), None) if known is not None else None


def _case(installation: Installation, tx: Tx, job: Job, before: Sequence[Comparison], lenient: bool) -> _Case:
    lost: list[str] = []
    runs = tx.runs(job_id=job.id, unreadable=(lambda _, error: lost.append(str(error))) if lenient else None)
    entries = tx.entries(job_id=job.id)
    now, paid = installation.clock.now_ms(), ledger.total_nano_usd(entries)
    why = _nothing_to_compare(job, runs, lost)
    if why:
        return _Case(tx, job, now, paid, len(entries), why)
    booked = {run.id: until for run in runs if (until := tx.booked_until_ms(run.id)) is not None}
    made = ledger.stays(runs, booked, factor=installation.clock.factor)
    if not made:  # a damaged row, or one without entries
        return _Case(tx, job, now, paid, len(entries), "its runs have no booked time of training")
    carried = ledger.carried_nano_usd(runs, entries)
    return _Case(tx, job, now, paid, len(entries), "", made, carried, {each.baseline: each for each in before})


def _nothing_to_compare(job: Job, runs: Sequence[Run], unreadable: Sequence[str]) -> str:
    if unreadable:
        return f"one of its runs cannot be read: {unreadable[0]}"
    if job.state == "failed":
        return FAILED  # its cost counts, but it saved nothing because it has no result
    if not any(run.last_step > run.start_step and run.billed_from_ms is not None for run in runs):
        return NO_STEP
    return ""


def _same_machine(case: _Case) -> Inputs:
    """Each part on the same machine type on demand, in the same zone or else in another zone of the region."""
    known = case.before.get("same_machine")
    kept = {} if known is None or known.inputs is None else _machines(known.inputs.stays)
    twins = {
        part.offer_id: kept.get(part.run_id) or _twin(case.tx, part.offer_id)
        for stay in case.stays
        for part in stay.parts
    }
    return case.inputs(elsewhere(case.stays, lambda part: (twins[part.offer_id], 1.0)))


def _machines(stays: Sequence[Stay]) -> dict[str, str]:
    return {part.run_id: part.offer_id for stay in stays for part in stay.parts}


def _twin(tx: Tx, offer_id: str) -> str:
    spot = OfferId.parse(offer_id)
    if not spot.spot:
        return offer_id
    sold = tx.find_offers(provider=spot.provider, region=spot.region, spot=False)
    found = [offer for offer in sold if offer.instance_type == spot.instance_type]
    if not found:
        raise _NotComparable(f"no on-demand offer of {spot.instance_type} is known in {spot.provider}/{spot.region}")
    return min(found, key=lambda offer: (offer.zone != spot.zone, offer.id)).id


def _at_submission(case: _Case) -> Inputs:
    """All of the work on the on-demand offer that was expected to cost least when the job was first placed."""
    offer_id = case.chosen_before("at_submission") or case.tx.job_facts(case.job.id).baseline_offer_id
    if offer_id is None:
        raise _NotComparable(NEVER_PLACED)
    return case.all_on(offer_id, _Speeds(case))


def _in_hindsight(case: _Case) -> Inputs:
    """All of the work on the offer where it would have cost least, among the offers that its first plan found possible
    and those where it ran; on a spot offer, as if it had never been preempted."""
    known = case.chosen_before("in_hindsight")
    candidates = {known} if known is not None else _candidates(case)
    case.look_up_prices(candidates)
    speeds = _Speeds(case)
    best: tuple[int, str, Inputs] | None = None
    why = ""
    for offer_id in sorted(candidates):
        try:
            inputs = case.all_on(offer_id, speeds)
            cost = baseline_nano_usd(inputs)
        except (_NotComparable, ValueError) as error:
            why = why or str(error)
            continue
        if best is None or cost < best[0]:
            best = (cost, offer_id, inputs)
    if best is None:
        raise _NotComparable(why)
    return best[2]


_OF: Mapping[Baseline, Callable[[_Case], Inputs]] = {
    "same_machine": _same_machine,
    "at_submission": _at_submission,
    "in_hindsight": _in_hindsight,
}


def _candidates(case: _Case) -> set[str]:
    found = {part.offer_id for stay in case.stays for part in stay.parts}
    first = case.tx.job_facts(case.job.id).baseline_offer_id
    found |= {first} if first is not None else set()
    planned = [each.plan_id for each in case.tx.migrations(job_id=case.job.id, unreadable=snapshot.left_out)]
    plan_id = next((each for each in planned if each is not None), None)
    if plan_id is not None:
        try:
            placement = case.tx.plan(plan_id).placement(case.job.id)
        except (NotFoundError, KeyError):
            return found
        found |= {each.offer_id for each in placement.alternatives if each.feasible}
    return found


class _Speeds:
    """How fast the job is on each kind of machine: from an earlier version, else from its own measurements."""

    def __init__(self, case: _Case) -> None:
        self._case = case
        self._rates = {
            rate.machine: rate
            for each in case.before.values()
            for rate in (each.inputs.rates if each.inputs is not None else ())
        }
        self._book: PerfBook | None = None

    def pace(self, here: InstanceKind, there: InstanceKind) -> float:
        """The time of a step there divided by the time of a step here."""
        if here == there:
            return 1.0
        pace = self.rate(here).steps_per_s / self.rate(there).steps_per_s
        if not (math.isfinite(pace) and pace > 0):
            raise _NotComparable(f"its speed on {kind_name(there)} is unknown")
        return pace

    def rate(self, kind: InstanceKind) -> Rate:
        name = kind_name(kind)
        if name not in self._rates:
            if self._book is None:
                self._book = _own_book(self._case)
            of = self._book.estimate_kinds(self._case.job, (kind,))[0]
            self._rates[name] = Rate(name, of.value, of.low, of.high, of.provenance)
        return self._rates[name]


def _own_book(case: _Case) -> PerfBook:
    """The job's own measurements; other jobs are not used, since later ones would change the result."""
    points = case.tx.perf([case.job.id])
    if not points:
        raise _NotComparable("its speed was not measured")
    seen = [Observation(row.job_id, row.gpu, row.gpu_count, row.steps_per_s, row.steps, row.at_ms) for row in points]
    return PerfBook.as_of(case.now_ms, seen, works=case.tx.works(), tables=case.tx.rates())


def _reason(tx: Tx, before: Comparison, because: str) -> str:
    """A text about the amounts booked since the previous version."""
    sums = ledger.totals(tx.entries(job_id=before.job_id)[before.entries :], "kind")
    reported = ", ".join(f"{kind} {format_usd(amount, 6)}" for kind, amount in sums.items())
    return f"booked after the books had closed: {reported}" + (f" ({because})" if because else "")
