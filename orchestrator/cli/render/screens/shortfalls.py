"""Budgets, deadlines and limits that may be too small for a plan, as lines below it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orchestrator.cli.render.text import clean
from orchestrator.config.raising import raising
from orchestrator.services.shortfalls import FullLimit, ProjectMoney
from providers.money import at_least_usd, at_most_usd, whole_usd


def shortfalls(short: Sequence[ProjectMoney], full: Sequence[FullLimit]) -> Iterator[str]:
    """A line for each project whose budget is too small, and for each limit that has no room."""
    for money in short:
        name, left = clean(money.project), at_most_usd(max(money.budget_nano_usd - money.spent_nano_usd, 0))
        cost = at_least_usd(money.cost_nano_usd)
        yield (
            f"project {name} has {left} left, less than the {cost} of this plan, so its jobs "
            f"will wait or be paused; to avoid that, {raising(f'projects.{name}.budget')}"
        )
    yield from map(_full, full)


def needs_accepted_risk(risk: str) -> str:
    """The line about deadlines and budgets that may not be met; empty if `risk` is."""
    return f"{clean(risk)}; submit --yes needs --accept-risk" if risk else ""


def _full(limit: FullLimit) -> str:
    if limit.of_money:
        most, used, wanted = (f"{whole_usd(each)}/h" for each in (limit.most, limit.used, limit.wanted))
    else:
        most, wanted = str(limit.most), str(limit.wanted)
        used = f"{limit.used} machine{'s' * (limit.used != 1)}"
    in_use = f"{used} in use, " if limit.used else ""
    more = "more " if limit.used else ""
    return f"{clean(limit.setting)} is {most}: {in_use}{wanted} {more}wanted, so jobs wait until others end"
