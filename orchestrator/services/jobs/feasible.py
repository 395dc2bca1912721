"""Whether the jobs of a plan can be started: what is rejected, why, and the remedy."""

from __future__ import annotations

from orchestrator.config.raising import raising
from orchestrator.errors import InfeasibleError, LimitError
from orchestrator.policy import FOR_MONEY, MAY_PASS, OTHER_GPU, OVER_LIMITS
from orchestrator.services.secrets.submission import require_secrets
from orchestrator.services.views import Decision, PlanView

LIKELY_ENOUGH = 0.8  # the chance of meeting deadline and budget that `--yes` requires


def require_feasible(view: PlanView, *, shown: bool = False) -> None:
    """Raises InfeasibleError, with the reasons, if no offer fits a new job, now or later. If the plan is `shown`, its
    reasons are not repeated."""
    from orchestrator.prices.sources import collecting

    for decided in hopeless(view):
        money = lacks_money(view, decided)
        unfit = () if money else sorted({choice.reason for choice in decided.choices if choice.role == "no"})
        reasons = (*unfit[:8], *(f"{each.place}: {each.reason}; {each.remedy}" for each in view.not_rentable[:8]))
        limited = any(each.topic == OVER_LIMITS for each in decided.rejected)
        said = f"{decided.name}: {decided.reason}" + "".join(f"\n  - {reason}" for reason in reasons)
        limit = "that limit" if any(table in said for table in (" limits.", " projects.")) else "the limits on machines"
        raise InfeasibleError(
            f"{decided.name}: no offer fits" if shown else said,
            hint="the simulated market has no such GPUs: enable a cloud or your own machines with `tradewind init`, or "
            * (view.simulated and {each.topic for each in decided.rejected} == {OTHER_GPU})
            + f"collect new prices ({collecting(view.outdated)}), or " * bool(view.outdated)
            + f"{raising(limit)}, or " * limited
            + ("raise the budget" if money else "relax these")
            + " in the job file"
            + ("" if view.anywhere or limited else ", or try plan --anywhere"),
        )


def risk(view: PlanView) -> str:
    """The new jobs whose chance of meeting their deadline and budget is below LIKELY_ENOUGH, as text; empty if there
    are none."""
    new = {job.id: job for job in view.new_jobs}
    chances = [each for each in view.decisions if each.job_id in new and each.chance is not None]
    risky = [each for each in chances if (each.chance or 0.0) < LIKELY_ENOUGH]
    jobs = [new[each.job_id] for each in risky]
    limits = ["deadline"] * any(job.deadline_at_ms is not None for job in jobs)
    limits += ["budget"] * any(job.spec.budget_nano_usd is not None for job in jobs)
    reported = ", ".join(f"{each.name} {each.chance:.0%}" for each in risky)
    waiting = any(job.after for job in jobs)  # the chance does not count the wait
    as_if = f", if {'it' if len(jobs) == 1 else 'they'} could start now" if waiting else ""
    return f"{' and '.join(limits)} may not be met: {reported} likely{as_if}" if risky else ""


def require_accepted_risk(view: PlanView) -> None:
    """Raises LimitError if the plan has a `risk`. A person who reads the plan may accept this risk; a script that
    accepts every plan may not."""
    if risky := risk(view):
        raise LimitError(
            f"{risky}; --yes requires {LIKELY_ENOUGH:.0%}",
            hint="relax them in the job file, or add --accept-risk",
        )


def require_startable(view: PlanView, *, shown: bool = False) -> None:
    """Like `require_feasible`; also raises InfeasibleError for a plan on clouds that are not enabled, where nothing can
    be started, and UsageError if the environment lacks a secret of a new job."""
    require_feasible(view, shown=shown)
    if view.anywhere:
        names, clouds = ", ".join(decided.name for decided in view.decisions), ", ".join(view.not_enabled)
        raise InfeasibleError(
            f"{names}: this plan uses clouds that are not enabled: {clouds}",
            hint=f"{_how_to_rent(view)}, or relax the job file",
        )
    for job in view.new_jobs:
        require_secrets(job.spec)


def _how_to_rent(view: PlanView) -> str:
    """How to make the clouds of a plan with `anywhere` rentable."""
    if set(view.not_enabled) <= set(view.no_provider):
        return "Tradewind cannot rent there: install a provider package (docs/providers.md)"
    return "enable one in tradewind.toml (providers.enabled)"


def hopeless(view: PlanView) -> list[Decision]:
    """The jobs that no offer fits, now or later, including jobs whose budget is too small for every offer, available
    now or not. Waiting does not change the offers of the catalogue."""
    new = {job.id for job in view.new_jobs}
    return [
        decided
        for decided in view.decisions
        if (view.anywhere or decided.job_id in new)
        and decided.offer_id is None
        and (view.anywhere or lacks_money(view, decided) or not _may_fit_later(decided))
    ]


def lacks_money(view: PlanView, decided: Decision) -> bool:
    """Whether only a larger budget would help."""
    if decided.offer_id is None and view.anywhere and any(each.topic == FOR_MONEY for each in decided.rejected):
        return True
    return view.plan.placement(decided.job_id).lacks_money


def _may_fit_later(decided: Decision) -> bool:
    return any(choice.role == "next" for choice in decided.choices) or any(
        rejection.topic in MAY_PASS for rejection in decided.rejected
    )
