"""Group budgets: the budget of a group is divided among its jobs, so that no job can spend what another one has.

Each job keeps to its own part, as to any budget (spending_limits), and the parts never add up to more than the whole.
What a job did not spend by its end is free for the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.model import TERMINAL, Job
from orchestrator.store import Tx
from providers.money import about_usd, format_usd


def divided(
    budget_nano_usd: int, expected_nano_usd: Sequence[int], own_nano_usd: Sequence[int | None]
) -> tuple[int, ...]:
    """Each job's part of a budget, in proportion to what it is expected to cost, but at most its own budget. What jobs
    with an own budget do not take is divided among the others. The sum is at most the budget."""
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


def over_group_budget(tx: Tx, job: Job, wanted_nano_usd: int) -> str | None:
    """Why a job of a group may not have this budget; None if it may. Raises RowError."""
    whole = None if job.group_id is None else tx.group(job.group_id).budget_nano_usd
    if whole is None or job.group_id is None:
        return None
    taken = 0
    for other in tx.jobs_of([each for each in tx.job_ids_of_group(job.group_id) if each != job.id]):
        paid = tx.total_nano_usd(job_id=other.id)
        settled = other.state in TERMINAL and not tx.runs(job_id=other.id, unsettled=True)
        own = other.spec.budget_nano_usd
        taken += paid if settled or own is None else max(own, paid)
    if taken + wanted_nano_usd <= whole:
        return None
    left = max(whole - taken, 0)
    return (
        f"{job.name} may have at most {about_usd(left)}: the other jobs of its group have the rest of its "
        f"{format_usd(whole)} budget"
    )
