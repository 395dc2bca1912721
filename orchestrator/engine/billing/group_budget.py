"""Group budgets: the budget of a group is divided among its jobs, so that no job can spend another job's part.

Each job stays within its part, as within any budget (spending_limits), and the sum of the parts never exceeds the
whole. When a job has ended, the other jobs can use what it did not spend.

When the whole changes, the parts stay the same, with one exception: if the only job that has not ended has all of the
remaining budget, its part changes with the whole. A group may also get its first budget after it was submitted: then
the budget is divided among the jobs without one, and what they have spent by then counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.errors import RowError, UsageError
from orchestrator.model import TERMINAL, Group, Job, JobForecast
from orchestrator.store import Tx
from providers.money import at_least_usd, at_most_usd, usd, whole_usd

ToEnd = Callable[[Tx, Job], int]
CENT_NANO_USD = 10_000_000


@dataclass(frozen=True, slots=True)
class Division:
    """How the budget of a group is divided (nano-USD). `whole` is the budget, `held` each job's part of it, and `paid`
    the amount that each job has spent. `living` are the jobs that have not ended."""

    group: Group
    whole: int
    living: tuple[Job, ...]
    held: Mapping[str, int]
    paid: Mapping[str, int]
    unsettled: tuple[Job, ...]
    """Jobs without a budget that have ended, and whose last bill is not known yet."""

    def left_for(self, job_id: str) -> int:
        """The part of the budget that no other job has."""
        return self.whole - (sum(self.held.values()) - self.held[job_id])

    @property
    def follower(self) -> Job | None:
        """The job whose part changes with the whole."""
        if len(self.living) != 1 or self.living[0].spec.budget_nano_usd is None:
            return None
        return self.living[0] if sum(self.held.values()) >= self.whole else None


def divided(
    budget_nano_usd: int, expected_nano_usd: Sequence[int], own_nano_usd: Sequence[int | None]
) -> tuple[int, ...]:
    """Each job's part of a budget, in proportion to its expected cost, but at most its own budget. What jobs with their
    own budgets do not take is divided among the others. The sum is at most the budget."""
    parts: dict[int, int] = {}
    free = list(range(len(expected_nano_usd)))
    left = budget_nano_usd
    while free:
        weights = {job: max(expected_nano_usd[job], 1) for job in free}
        whole = sum(weights.values())
        capped: Mapping[int, int] = {
            job: own for job in free if (own := own_nano_usd[job]) is not None and own <= left * weights[job] // whole
        }
        if not capped:
            parts |= {job: left * weights[job] // whole for job in free}
            break
        parts |= capped
        left -= sum(capped.values())
        free = [job for job in free if job not in capped]
    return tuple(parts[job] for job in range(len(expected_nano_usd)))


def division(tx: Tx, group: Group) -> Division | None:
    """How the budget of a group is divided now; None if it has none. Raises RowError."""
    return None if group.budget_nano_usd is None else _division(tx, group, group.budget_nano_usd)


def _division(tx: Tx, group: Group, whole: int) -> Division:
    jobs = tx.jobs_of(tx.job_ids_of_group(group.id))
    paid = {job.id: tx.total_nano_usd(job_id=job.id) for job in jobs}
    held, unsettled = {}, list[Job]()
    for job in jobs:
        settled = job.state in TERMINAL and not tx.runs(job_id=job.id, unsettled=True)
        own = job.spec.budget_nano_usd
        held[job.id] = paid[job.id] if settled or own is None else max(own, paid[job.id])
        unsettled += [job] if own is None and job.state in TERMINAL and not settled else []
    living = tuple(job for job in jobs if job.state not in TERMINAL)
    return Division(group, whole, living, held, paid, tuple(unsettled))


def over_group_budget(tx: Tx, job: Job, wanted_nano_usd: int) -> str | None:
    """Why a job of a group may not have this budget; None if it may. Raises RowError."""
    divided = _division_for(tx, job)
    if divided is None or wanted_nano_usd <= (left := divided.left_for(job.id)):
        return None
    name, may = divided.group.name, f"{job.name} can get at most {at_most_usd(max(left, 0))}"
    if left == divided.whole:
        return f"{may}, the budget of its group {name}"
    return f"{may}: the other jobs of group {name} have the rest of the group's {whole_usd(divided.whole)} budget"


def group_remedy(tx: Tx, job: Job, wanted_nano_usd: int) -> str:
    """The command that makes room for a budget that `over_group_budget` refuses. Raises RowError."""
    divided = _division_for(tx, job)
    assert divided is not None
    raised = _raised(tx, divided, job, wanted_nano_usd)
    if divided.follower is not None:
        return f"raise the budget of the group instead: {raised}"
    spare = {each.id: divided.held[each.id] - divided.paid[each.id] for each in divided.living if each.id != job.id}
    richest = max(divided.living, key=lambda each: spare.get(each.id, 0))
    if spare.get(richest.id, 0) <= 0:
        return f"raise the budget of the group first: {raised}"
    order = f"tradewind budget set {tx.typed_name(richest.id, richest.name)} USD"
    return f"raise the budget of the group first: {raised}; or lower that of another job: {order}"


def with_group_order(tx: Tx, job: Job, text: str, whole_nano_usd: int | None = None) -> str:
    """`text`, which may say to raise the job's budget. If the budget of its group (`whole_nano_usd` if it is about to
    change to that) is too small for that, the text says to raise the group's budget first, or instead."""
    named = rf"tradewind budget set (?:{re.escape(job.name)}|{job.id}) (USD|\d+\.\d\d)"
    if not re.search(named, text):
        return text
    try:
        divided = _division_for(tx, job, whole_nano_usd)
    except RowError:  # a damaged row of another job must not prevent this job from being paused
        return text
    if divided is None:
        return text

    def orders(found: re.Match[str]) -> str:
        unknown = found[1] == "USD"
        wanted = (job.spec.budget_nano_usd or 0) + CENT_NANO_USD if unknown else usd(found[1])
        if wanted <= divided.left_for(job.id):
            return found[0]
        raised = _raised(tx, divided, job, None if unknown else wanted)
        return raised if divided.follower is not None else f"{raised}, then {found[0]}"

    return re.sub(named, orders, text)


def changed_parts(tx: Tx, group: Group, wanted_nano_usd: int, to_end: ToEnd) -> list[tuple[Job, int]]:
    """The jobs whose parts change if the group gets this budget, with their new parts; empty if no part changes.

    The first budget of a group is divided now: what jobs have spent counts, and jobs' own budgets stay the same.
    `to_end` is the cost of a job's machines until they have been ended, in addition to what is booked: a part should
    cover that, too, so that a job with little work left is not paused at once.

    Raises UsageError, naming what is spent or what the jobs have, if the budget is less than that; and if the group has
    no job that has not ended. Raises RowError.
    """
    before = group.budget_nano_usd
    divided = _division(tx, group, wanted_nano_usd if before is None else before)
    if not divided.living:
        hint = f"list them: tradewind queue --all --group {group.id}"
        raise UsageError(f"all jobs of {group.name} have ended", hint=hint)
    if before is None:
        return _first_parts(tx, divided, to_end)
    held, paid, follower = sum(divided.held.values()), sum(divided.paid.values()), divided.follower
    if follower is None:
        if wanted_nano_usd < held:
            raise UsageError(
                f"the jobs of {group.name} have {at_least_usd(held)} of its budget; {at_most_usd(paid)} is spent",
                hint="set at least that amount, or lower the budget of a job first: tradewind budget set JOB USD",
            )
        return []
    part = wanted_nano_usd - (divided.whole - divided.left_for(follower.id))
    if part <= divided.paid[follower.id]:
        least = _raised(tx, divided, follower, divided.paid[follower.id] + to_end(tx, follower) + 1)
        stop = f"tradewind pause {tx.typed_name(follower.id, follower.name)}"
        hint = f"the smallest that is accepted: {least}; or stop spending: {stop}"
        raise UsageError(f"the jobs of {group.name} have already spent {at_least_usd(paid)}", hint=hint)
    return [(follower, part)]


def _first_parts(tx: Tx, now: Division, to_end: ToEnd) -> list[tuple[Job, int]]:
    """The parts of the first budget of a group. Each job without a budget gets the amount that it has spent, and a
    share of the rest in proportion to its expected cost, including the end of its machines."""
    if now.unsettled:
        raise UsageError(
            f"{now.unsettled[0].name} has ended without a budget, and its last bill is not known yet",
            hint="set the budget again in a minute",
        )
    free = [job for job in now.living if job.spec.budget_nano_usd is None]
    least = sum(now.held.values()) + len(free) * CENT_NANO_USD
    if now.whole < least:
        name, paid = now.group.name, sum(now.paid.values())
        raise UsageError(
            f"the jobs of {name} need at least {at_least_usd(least)}: {at_most_usd(paid)} is spent, and some may have "
            f"budgets of their own",
            hint=f"set a larger budget, or stop spending: tradewind pause --group {now.group.id}",
        )
    forecasts = tx.job_forecasts([job.id for job in free], 0)
    known = {job_id: max(each.cost_nano_usd, 1) for job_id, each in forecasts.items() if isinstance(each, JobForecast)}
    average = sum(known.values()) // len(known) if known else 1
    to_come = [known.get(job.id, average) + to_end(tx, job) for job in free]
    more = divided(now.whole - least, to_come, [None] * len(free))
    return [(job, now.paid[job.id] + CENT_NANO_USD + part) for job, part in zip(free, more, strict=True)]


def _division_for(tx: Tx, job: Job, whole_nano_usd: int | None = None) -> Division | None:
    if job.group_id is None:
        return None
    group = tx.group(job.group_id)
    return division(tx, group) if whole_nano_usd is None else _division(tx, group, whole_nano_usd)


def _raised(tx: Tx, divided: Division, job: Job, wanted_nano_usd: int | None) -> str:
    """The command that raises the budget of the group so that a job can have its own. None: the amount that the job
    needs is not known."""
    group = divided.group
    amount = "USD"
    if wanted_nano_usd is not None:
        cents = -(-(divided.whole - divided.left_for(job.id) + wanted_nano_usd) // CENT_NANO_USD)
        amount = f"{cents / 100:.2f}"
    try:
        named = tx.only_group(group.name).id == group.id
    except (UsageError, RowError):  # several projects have a group of this name, or the newest one is damaged
        named = False
    return f"tradewind budget set --group {group.name if named else group.id} {amount}"
