"""Larger budget: the budget that is enough for a job (policy.ranking.enough), the command that sets it, and how the job
continues after its budget has changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.config.projects import Projects
from orchestrator.config.raising import raising, restarting
from orchestrator.engine.billing.accrue import reserve_nano_usd, running_nano_usd_per_hour
from orchestrator.engine.billing.group_budget import with_group_order
from orchestrator.engine.billing.of_project import spent_by_project_nano_usd
from orchestrator.engine.inputs.market_reader import MarketReader
from orchestrator.engine.inputs.reserves import release_market_s, stop_market_s
from orchestrator.engine.inputs.snapshot import Inputs, inputs, limits
from orchestrator.engine.inputs.speeds import SpeedReader
from orchestrator.installation import Installation
from orchestrator.model import Job, JobState
from orchestrator.policy.needed_budget import budgets_to_start, needed_budgets
from orchestrator.policy.ranking.enough import NOTHING, Needed, enough_to_rent
from orchestrator.store import Tx
from providers.money import usd, whole_usd


def larger_budget(tx: Tx, job: Job, found: Needed, group_nano_usd: int | None = None) -> str:
    """The command that sets the budget in `found`, or first that of the group, which is about to become
    `group_nano_usd` (None: no change). The command ends in "USD" if no amount is known."""
    amount = f"{found.enough_cents / 100:.2f}" if found.enough else "USD"
    order = f"tradewind budget set {tx.typed_name(job.id, job.name)} {amount}"
    return with_group_order(tx, job, order, group_nano_usd)


def how_to_continue(
    installation: Installation,
    tx: Tx,
    job: Job,
    wanted_nano_usd: int,
    group_nano_usd: int | None = None,
    *,
    present: Projects | None = None,
) -> str:
    """The text about what to do after the budget of a job becomes this amount, and that of its group `group_nano_usd`
    (None: no change). It is empty unless the job is paused. Otherwise it gives the command that continues the job,
    after the commands that raise each budget that is too small, including that of its project. `present` is as for
    `shortages`. Begins with a semicolon. Raises RowError."""
    if job.state not in ("pausing", "paused"):
        return ""
    seen = _inputs(installation, tx, job, None, None)
    found, to_start = _missing(installation, tx, job, seen)
    short = ""
    orders: list[str] = []
    if wanted_nano_usd < max(to_start, found.enough):
        still = f"it is still too small to {'finish' if found.enough else 'rent a machine'}"
        surely = wanted_nano_usd < max(to_start, found.least)
        short = f"; {still if surely else 'it may be too small to finish'}{found.also_late}"
        order = larger_budget(tx, job, found, group_nano_usd)
        orders.append(order if found.enough else f"{order} ({enough_to_rent(to_start)})")
    project = _project_shortage(installation, tx, job, seen, present)
    if project is not None and project.at_once:
        short += f"; {project.budget} is too small{project.late}"
        orders.append(project.order)
    orders.append(f"tradewind resume {tx.typed_name(job.id, job.name)}")
    return f"{short}; to continue: {', then '.join(orders)}"


@dataclass(frozen=True, slots=True)
class Shortage:
    """A `budget` (a text) that may be too small for a job to continue, or certainly is (`at_once`: it cannot even rent
    a machine). `effect`: what happens then. `late`: what else is missing; begins with a semicolon, "" if nothing is.
    `order`: the command that raises the budget enough. `of_project`: the amount (nano-USD) missing from the budget of a
    project; None for the job's own budget."""

    budget: str
    effect: str
    at_once: bool
    late: str
    order: str
    of_project: int | None = None


@dataclass(frozen=True, slots=True)
class Together:
    """The other paused jobs of a project that are resumed with a job: by job id, the amount that each needs
    (nano-USD)."""

    needs: Mapping[str, int]

    def beside(self, job_id: str) -> int:
        """The amount that the other jobs need."""
        return sum(need for other, need in self.needs.items() if other != job_id)


ALONE = Together({})


def together(
    installation: Installation, tx: Tx, jobs: Sequence[Job], markets: MarketReader, speeds: SpeedReader
) -> Together:
    """The amount that each of these paused jobs needs from the budget of its project to continue. Raises RowError."""
    needs = {}
    for job in jobs:
        spent, seen = _of_project(installation, tx, job, _inputs(installation, tx, job, markets, speeds))
        found, to_start = _missing(installation, tx, job, seen)
        needs[job.id] = max(to_start, found.enough) - spent
    return Together(needs)


def shortages(
    installation: Installation,
    tx: Tx,
    job: Job,
    markets: MarketReader | None = None,
    speeds: SpeedReader | None = None,
    *,
    present: Projects | None = None,
    others: Together = ALONE,
) -> tuple[Shortage, ...]:
    """The budgets that may pause a paused job again if it is resumed: its own, and that of its project, which must also
    be enough for the `others`. `present` are the projects as the control plane has read them (None: as they are
    configured). Raises RowError."""
    projects = installation.config.projects if present is None else present
    if job.spec.budget_nano_usd is None and projects.of(job.project).budget is None:
        return ()
    seen = _inputs(installation, tx, job, markets, speeds)
    found = [
        _own_shortage(installation, tx, job, seen),
        _project_shortage(installation, tx, job, seen, present, others),
    ]
    return tuple(each for each in found if each is not None)


def _own_shortage(installation: Installation, tx: Tx, job: Job, seen: Inputs) -> Shortage | None:
    """None if its budget is likely to be enough, or if the budget of its group changes before that."""
    budget = job.spec.budget_nano_usd
    for each in tx.open_commands():
        if each.kind == "group-budget" and job.group_id is not None and each.args.get("group_id") == job.group_id:
            return None
        if each.kind == "budget" and each.job_id == job.id:
            wanted = each.args.get("nano_usd")
            budget = wanted if isinstance(wanted, int) else budget
    if budget is None:
        return None
    found, to_start = _missing(installation, tx, job, seen)
    if budget >= max(to_start, found.enough):
        return None
    order = larger_budget(tx, job, found)
    if not found.enough:
        order += f" ({enough_to_rent(to_start)})"
    at_once, effect = budget < to_start, "would be paused again at once"
    return Shortage(f"its {whole_usd(budget)} budget", effect, at_once, found.also_late, order)


def project_shortage(
    installation: Installation, tx: Tx, job: Job, markets: MarketReader | None, speeds: SpeedReader | None
) -> Shortage | None:
    """Why the budget of a job's project may pause the job again; None if that is unlikely. Raises RowError."""
    if installation.config.projects.of(job.project).budget is None:
        return None
    return _project_shortage(installation, tx, job, _inputs(installation, tx, job, markets, speeds))


def _project_shortage(
    installation: Installation,
    tx: Tx,
    job: Job,
    seen: Inputs,
    present: Projects | None = None,
    others: Together = ALONE,
) -> Shortage | None:
    """None if the budget of its project is likely to be enough for this job and the `others`. It is treated as the
    job's own budget, as if the job had spent what all jobs of the project have spent and what the others need."""
    configured = installation.config.projects.of(job.project).budget
    dollars = configured if present is None else present.of(job.project).budget
    if dollars is None:
        return None
    budget, beside = usd(dollars), others.beside(job.id)
    alone, to_start = _missing(installation, tx, job, _of_project(installation, tx, job, seen)[1])
    at_once, found = budget < to_start, alone
    if beside:
        found, to_start = _missing(installation, tx, job, _of_project(installation, tx, job, seen, beside)[1])
    needed = max(to_start, found.enough)
    if budget >= needed:
        return None
    setting = f"projects.{job.project}.budget"
    order = raising(setting, f"{found.enough_cents / 100:.2f}" if found.enough else "")
    if configured is None or usd(configured) >= needed:
        order = restarting(setting)
    elif not found.enough:
        order += f" ({enough_to_rent(to_start)})"
    whole = f"the {whole_usd(budget)} budget of project {job.project}"
    late = found.also_late + _also_open(tx, job, others)
    return Shortage(whole, "could rent no machine", at_once, late, order, needed - budget)


def _of_project(installation: Installation, tx: Tx, job: Job, seen: Inputs, more: int = 0) -> tuple[int, Inputs]:
    """(the amount that the jobs of its project have spent, the inputs as if the job had spent that amount and
    `more`)."""
    spent = spent_by_project_nano_usd(tx, job.project, installation.clock.now_ms())
    return spent, replace(seen, demands=tuple(replace(each, spent_nano_usd=spent + more) for each in seen.demands))


def _also_open(tx: Tx, job: Job, others: Together) -> str:
    """A note that an amount does not cover all jobs of the project; begins with a semicolon, "" if it does."""
    known = {job.id, *others.needs}
    open_jobs = sum(each.project == job.project and each.id not in known for each in tx.outlines(ended=False))
    if not open_jobs:
        return ""
    if open_jobs == 1:
        return "; 1 other job of the project has not ended and also needs money"
    return f"; {open_jobs} other jobs of the project have not ended and also need money"


def _missing(installation: Installation, tx: Tx, job: Job, seen: Inputs) -> tuple[Needed, int]:
    """The budget that a paused job needs, and the smallest one with which it rents a machine (nano-USD)."""
    ending = _ending_nano_usd(installation, tx, job)
    starts = budgets_to_start(seen.demands, seen.market, seen.perf, limits=limits(installation.config))
    return _needed(installation, seen, job, ending), ending + starts.get(job.id, -ending)


def orders_to_continue(
    installation: Installation, tx: Tx, job: Job, *, markets: MarketReader, speeds: SpeedReader, used: Collection[str]
) -> tuple[str, str]:
    """(a note if more than money is missing, else ""; the command that sets a budget that is enough, or, if that is not
    known, the budget that rents a machine). The arguments are as for `needed_to_continue`. Raises RowError."""
    found, to_start = _missing(installation, tx, job, _inputs(installation, tx, job, markets, speeds, used))
    order = larger_budget(tx, job, found)
    return found.also_late, order if found.enough or not to_start else f"{order} ({enough_to_rent(to_start)})"


def needed_to_continue(
    installation: Installation,
    tx: Tx,
    job: Job,
    *,
    markets: MarketReader | None = None,
    speeds: SpeedReader | None = None,
    used: Collection[str] = (),
) -> Needed:
    """The budget that a job needs to continue from its checkpoint, once its present machines have ended; NOTHING if
    that is not known. `markets`, `speeds` and `used` are as for `snapshot.inputs`. Raises RowError."""
    seen = _inputs(installation, tx, job, markets, speeds, used)
    return _needed(installation, seen, job, _ending_nano_usd(installation, tx, job))


def _inputs(
    installation: Installation,
    tx: Tx,
    job: Job,
    markets: MarketReader | None,
    speeds: SpeedReader | None,
    used: Collection[str] = (),
) -> Inputs:
    now_ms, config = installation.clock.now_ms(), installation.config
    also: tuple[JobState, ...] = ("pausing", "paused")
    return inputs(tx, now_ms, config, only=[job.id], also=also, markets=markets, speeds=speeds, used=used)


def _needed(installation: Installation, seen: Inputs, job: Job, ending_nano_usd: int) -> Needed:
    found = needed_budgets(seen.demands, seen.market, seen.perf, limits=limits(installation.config))
    known = found.get(job.id, NOTHING)
    if known == NOTHING:
        return known
    return replace(known, least=known.least + ending_nano_usd, enough=known.enough + ending_nano_usd)


def _ending_nano_usd(installation: Installation, tx: Tx, job: Job) -> int:
    """The cost of a job's machines until they have ended, including a checkpoint if they train."""
    runs, now_ms, factor = (
        tx.runs(job_id=job.id, unsettled=True),
        installation.clock.now_ms(),
        installation.clock.factor,
    )
    steps_s = [run.step_wall_s or 0.0 for run in runs if run.training_from_ms and run.training_to_ms is None]
    stop_s = stop_market_s(factor, max(steps_s)) if steps_s else 0.0
    return reserve_nano_usd(running_nano_usd_per_hour(tx, runs, now_ms), release_market_s(factor) + stop_s)
