"""Groups as text: the joint plan, and a submitted group."""

from __future__ import annotations

import math

from orchestrator.cli.render.screens.jobs import queue
from orchestrator.cli.render.screens.shortfalls import needs_accepted_risk, shortfalls
from orchestrator.cli.render.table import Column, numbers, table
from orchestrator.cli.render.text import (
    Screen,
    amount,
    blocks,
    budget_amount,
    clean,
    counted,
    instant,
    lacks_secrets,
    money,
    note_simulated,
    span,
    where,
)
from orchestrator.formats.readable import some_of
from orchestrator.services.groups.views import GroupPlanView, GroupView, PlannedJob, UnitWorth, Without
from orchestrator.services.views import JobList
from providers.money import at_least_usd, rounded_up
from providers.offer import OfferId

OBJECTIVES = {
    "cheapest": "least total cost",
    "max-min-fairness": "the job with the least gets as much as possible",
    "finish-time-fairness": "the longest delay due to sharing is as short as possible",
    "makespan": "the earliest end of the last job",
    "max-throughput": "the most steps per second in total",
    "shortest-job-first": "short jobs first",
    "first-in-first-out": "older jobs first",
}
SHOWN_WORTHS, SHOWN_NAMES = 3, 4
LEAST_SHARE = 0.005  # smaller shares are shown as 0%
LEAST_SAVING_NANO_USD, LEAST_SOONER_S = 5_000_000, 30.0  # half a cent; smaller effects are not shown
RISKY = "with slower speeds, interruptions and moves, the jobs may cost more than"


def group_plan(view: GroupPlanView, screen: Screen) -> str:
    """Per job where it runs, its share, cost and finish; the totals; how good the plan is; what larger quotas would be
    worth."""
    age = "no prices yet" if view.price_age_s is None else f"prices {span(view.price_age_s)} old"
    head = f"{clean(view.group)}: {counted(len(view.jobs))}, {view.policy} ({OBJECTIVES[view.policy]}), {age}"
    columns = (
        Column("job"),
        Column("runs on"),
        numbers("share"),
        numbers("weight", 3),
        numbers("cost"),
        numbers("ends in"),
        Column("", text=True),  # what a job waits for; shown at any width
    )
    rows = [row for each in view.jobs for row in _rows(view, each)]
    return blocks(
        screen(head, "dim"),
        table(columns, rows, screen),
        _sums(view),
        _without_a_machine(view),
        _short(view),
        _late(view),
        _elsewhere(view),
        needs_accepted_risk(view.risk),
        *map(clean, view.cautions),
        lacks_secrets(view.missing_secrets),
        *shortfalls(view.short_projects, view.full_limits),
        _quality(view),
        *(_worth(each) for each in view.worths[:SHOWN_WORTHS]),
        _compared(view, view.without) if view.without is not None else "",
        screen(note_simulated(view.simulated), "dim"),
    )


def group(view: GroupView, screen: Screen) -> str:
    """A submitted group: its limits, then its jobs as in the queue."""
    limits = [] if view.budget_nano_usd is None else [f"budget {budget_amount(view.budget_nano_usd)}"]
    limits += [] if view.deadline_at_ms is None else [f"deadline {instant(view.deadline_at_ms)}"]
    head = ", ".join([f"{clean(view.name)} ({view.id}): {view.policy}", *limits, f"paid {amount(view.paid_nano_usd)}"])
    simulated = any(job.simulated for job in view.jobs)
    listed = JobList(view.submitted_at_ms, view.jobs, view.paid_nano_usd, simulated)
    return blocks(head, queue(listed, screen))


def _rows(view: GroupPlanView, job: PlannedJob) -> list[tuple[str, ...]]:
    ends = "-" if job.finish_at_ms is None else span((job.finish_at_ms - view.at_ms) / 1000)
    after = f"after {some_of(job.after, SHOWN_NAMES)}" if job.after else ""
    own = (f"{job.weight:g}", amount(job.cost_nano_usd), ends, after)
    if not job.parts:
        return [(job.name, "waits", "0%", *own)]
    rows: list[tuple[str, ...]] = []
    for index, part in enumerate(job.parts):
        there = f"{where(part.offer_id)} {OfferId.parse(part.offer_id).instance_type}"
        share = f"{100 * part.share:.0f}%"
        rows.append((job.name, there, share, *own) if index == 0 else ("", there, share, "", "", "", ""))
    return rows


def _sums(view: GroupPlanView) -> str:
    takes = "-" if view.finish_at_ms is None else span((view.finish_at_ms - view.at_ms) / 1000)
    total, budget = at_least_usd(view.cost_nano_usd), ""
    if view.budget_nano_usd is not None:
        budget = f" of the {budget_amount(view.budget_nano_usd)} budget"
        total = total if rounded_up(view.cost_nano_usd) <= view.budget_nano_usd else budget_amount(view.budget_nano_usd)
    ends = f"the last job ends after about {takes}"
    without = "interruptions, moves and waits for limits" if view.full_limits else "interruptions and moves"
    return f"together about {total}{budget}; {ends} (estimates, without {without})"


def _without_a_machine(view: GroupPlanView) -> str:
    """The jobs that could start, but have no machine until others leave one; what they wait for is not in their row."""
    waiting = [job for job in view.jobs if sum(part.share for part in job.parts) < LEAST_SHARE]
    names = [clean(job.name) for job in waiting if job.finish_at_ms is None or job.finish_at_ms > view.at_ms]
    if not names:
        return ""
    why = "the quotas have no room for all jobs at once, so these wait until others leave a machine"
    return f"{why}, unless they get a deadline: {some_of(names, SHOWN_NAMES)}"


def _short(view: GroupPlanView) -> str:
    """The least possible budget, if it exceeds the cost; or that the budget pays for the jobs, but not for all
    risks."""
    least = sum(job.least_budget_nano_usd for job in view.jobs)
    if view.budget_nano_usd is None and least > rounded_up(view.cost_nano_usd):
        must = f"the budget must be at least {at_least_usd(least)} to cover likely interruptions and price changes"
        own = _own_short(view)
        return f"{must}\n{own}" if own else must
    if view.budget_nano_usd is not None and view.budget_nano_usd < view.enough_budget_nano_usd:
        return f"{RISKY} the budget; {_cents(view.enough_budget_nano_usd)} would be enough"
    return _own_short(view)


def _own_short(view: GroupPlanView) -> str:
    names = [
        f"{clean(job.name)} ({_cents(job.enough_budget_nano_usd)} would be enough)"
        for job in view.jobs
        if job.budget_nano_usd is not None and job.budget_nano_usd < job.enough_budget_nano_usd
    ]
    if not names:
        return ""
    return f"{RISKY} the budget{'s' * (len(names) > 1)} of {some_of(names, SHOWN_NAMES)}"


def _cents(nano_usd: int) -> str:
    """The amount in cents, rounded up."""
    return money(-(-nano_usd // 10_000_000) * 10_000_000)


def _late(view: GroupPlanView) -> str:
    names = [clean(job.name) for job in view.jobs if job.late]
    if not names:
        return ""
    return f"may miss the deadline, because of the jobs before it: {some_of(names, SHOWN_NAMES)}"


def _elsewhere(view: GroupPlanView) -> str:
    names = [f"{clean(each.name)} (about {amount(each.cost_nano_usd)})" for each in view.elsewhere]
    if not names:
        return ""
    jobs = some_of(names, SHOWN_NAMES)
    return f"no time left to lose a spot machine; placed on other offers with room, at their cost: {jobs}"


def _quality(view: GroupPlanView) -> str:
    ordered = any(job.after for job in view.jobs)
    due = any(job.deadline_at_ms is not None for job in view.jobs)
    by_course = (ordered or due) and view.policy == "makespan" and view.finish_at_ms is not None
    uncounted = ["moves" if by_course or view.policy == "cheapest" else "starts"]
    uncounted += ["the order of jobs"] if ordered and not by_course else []
    uncounted += ["limits in tradewind.toml"] if view.full_limits else []
    certified = f"(certified, not counting {' and '.join(uncounted)})"
    if view.stopped_after_s is not None:
        stopped = f"the solver was stopped after {view.stopped_after_s:g} s"
        return f"{stopped}; this plan is within {_percent(view.gap)} of the best {certified}"
    if view.gap < 1e-6:
        return f"no plan with these speeds and prices is better {certified}"
    return f"at most {_percent(view.gap)} from the best plan with these speeds and prices {certified}"


def _percent(part: float) -> str:
    """A percentage with two digits, rounded up."""
    percent = 100 * max(part, 1e-9)
    digits = max(1 - math.floor(math.log10(percent)), 0)
    return f"{math.ceil(percent * 10**digits - 1e-9) / 10**digits:g}%"


def _worth(worth: UnitWorth) -> str:
    unit = {"machines": "machine", "vcpus": "vCPU", "gpus": "GPU"}.get(worth.unit, "unit")
    more = f"one more {unit}" if worth.more == 1 else f"{worth.more} more {unit}s"
    if worth.owned:
        there = f"{more} on {clean(worth.scope)}"
    else:
        of = "" if worth.quota.casefold() == worth.unit else f" of {clean(worth.quota)}"
        there = f"{more}{of} in {worth.cloud}/{clean(worth.scope)}"
    saves = worth.saving_nano_usd >= LEAST_SAVING_NANO_USD
    sooner = worth.sooner_s >= LEAST_SOONER_S
    effects = [f"save about {amount(worth.saving_nano_usd)}"] if saves else []
    effects += [f"let the last job end about {span(worth.sooner_s)} earlier"] if sooner else []
    effects = effects or ([f"improve the objective by about {worth.value:.3g}"] if worth.value > 0 else [])
    if not effects:
        return ""
    costs = (
        "" if worth.saving_nano_usd > -LEAST_SAVING_NANO_USD else f", for about {amount(-worth.saving_nano_usd)} more"
    )
    return f"{there} ({worth.used} of {worth.limit} used) would {' and '.join(effects)}{costs}"


def _compared(view: GroupPlanView, without: Without) -> str:
    supposed = ", ".join(clean(each) for each in view.supposed)
    if without.cost_nano_usd is None:
        return f"this plan needs {supposed}; without it, no plan is possible: {clean(without.why_not)}"
    change = view.cost_nano_usd - without.cost_nano_usd
    less = "less" if change < 0 else "more"
    before = "-" if without.finish_at_ms is None else span((without.finish_at_ms - view.at_ms) / 1000)
    after = "-" if view.finish_at_ms is None else span((view.finish_at_ms - view.at_ms) / 1000)
    costs = "the same cost" if abs(change) < 5_000_000 else f"{amount(abs(change))} {less}"
    return (
        f"with {supposed}: {costs} ({amount(without.cost_nano_usd)} before, {amount(view.cost_nano_usd)} then); "
        f"the last job ends after {after} (before: {before})"
    )
