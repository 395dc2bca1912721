"""Project budgets: the total cost of a project's jobs never exceeds the budget of the project.

It is enforced like a job's budget (spending_limits), with the sums over its jobs: the cost of ending all their machines
now counts as spent, and so does the least that a launch under way will cost. When the rest is needed to save
checkpoints and end the machines, all jobs of the project are paused (engine.jobs.stopping).
"""

from __future__ import annotations

from orchestrator.config.raising import raising
from orchestrator.engine.billing.machine_cost import unbooked_nano_usd
from orchestrator.engine.billing.of_project import unsettled_runs_of
from orchestrator.engine.billing.spending_limits import (
    Spending,
    bringing_nano_usd,
    described,
    spending_on,
)
from orchestrator.engine.context import Context
from orchestrator.engine.inputs.reserves import LOOK_EVERY_S
from orchestrator.model import Job
from orchestrator.store import Tx
from providers.money import about_usd, usd, whole_usd


def budget_of(ctx: Context, project: str) -> int | None:
    """The budget of a project in nano-USD; None without one."""
    dollars = ctx.installation.config.projects.of(project).budget
    return None if dollars is None else usd(dollars)


def project_spending(
    ctx: Context,
    tx: Tx,
    project: str,
    budget: int,
    look_every_s: float = LOOK_EVERY_S,
    *,
    beside: tuple[str, int] | None = None,
    besides: str | None = None,
) -> Spending:
    """The spending of a project on all machines of its jobs, and on more machines `beside` them (an offer, and how
    many); the run `besides` does not count. The control plane checks again within `look_every_s` wall seconds."""
    runs = [described(ctx, run) for run in unsettled_runs_of(tx, project) if run.id != besides]
    more = () if beside is None else (beside,)
    spent = tx.project_nano_usd(project) + unbooked_nano_usd(tx, runs, ctx.now_ms)
    step_wall_s = max((run.step_wall_s or 0.0 for run in runs if run.end is None), default=0.0)
    return spending_on(ctx, tx, runs, more, spent, budget, step_wall_s=step_wall_s, look_every_s=look_every_s)


def over_project_budget(ctx: Context, tx: Tx, job: Job, offer_id: str, besides: str | None = None) -> str | None:
    """Why a job may not rent a machine of this offer; None if the budget of its project allows it and all machines of
    the project can then continue for a while. The run `besides` does not count."""
    budget = budget_of(ctx, job.project)
    if budget is None:
        return None
    beside = (offer_id, job.spec.resources.nodes)
    then = project_spending(ctx, tx, job.project, budget, beside=beside, besides=besides)
    brought = bringing_nano_usd(tx, job.id, offer_id, ctx.bucket_of(job))
    if not then.nearly_used_up(budget - brought):
        return None
    reserve = then.reserve + brought
    return (
        f"the rest of the budget of project {job.project} does not cover another machine; "
        f"{_spent_of(then.spent, budget)}, and {about_usd(reserve)} would be reserved to end its machines"
    )


def why_paused(ctx: Context, job: Job, budget: int, now: Spending) -> str:
    """How much of a project's budget is spent, what the rest is reserved for, and how the job continues."""
    return (
        f"project {job.project}: {_spent_of(now.spent, budget)}; {about_usd(now.reserve)} is reserved "
        f"to save checkpoints and end its machines; to continue: {raising(f'projects.{job.project}.budget')}, "
        f"then tradewind resume {ctx.typed_name(job)}"
    )


def _spent_of(spent: int, budget: int) -> str:
    return f"{about_usd(spent)} of its {whole_usd(budget)} is spent"
