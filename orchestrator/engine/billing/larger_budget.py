"""Larger budget: which budget is enough for a job (policy.ranking.enough), the command that sets it, and how the job
continues after a change of its budget."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from orchestrator.engine.billing.accrue import reserve_nano_usd, running_nano_usd_per_hour
from orchestrator.engine.billing.group_budget import with_group_order
from orchestrator.engine.inputs.market_reader import MarketReader
from orchestrator.engine.inputs.reserves import release_market_s, stop_market_s
from orchestrator.engine.inputs.snapshot import Inputs, inputs, limits
from orchestrator.engine.inputs.speeds import SpeedReader
from orchestrator.installation import Installation
from orchestrator.model import Job, JobState
from orchestrator.policy.needed_budget import budgets_to_start, needed_budgets
from orchestrator.policy.ranking.enough import CENT_NANO_USD, NOTHING, Needed
from orchestrator.store import Tx


def larger_budget(tx: Tx, job: Job, found: Needed) -> str:
    """The command that sets the budget `found` to be enough, or that of the group first; it ends in "USD" where no
    amount is known."""
    amount = f"{found.enough_cents / 100:.2f}" if found.enough else "USD"
    return with_group_order(tx, job, f"tradewind budget set {tx.typed_name(job.id, job.name)} {amount}")


def how_to_continue(installation: Installation, tx: Tx, job: Job, wanted_nano_usd: int) -> str:
    """What comes after the budget of a job becomes this amount: nothing unless it is paused; else the command that
    continues it, or that sets a budget that is enough. Begins with a semicolon. Raises RowError."""
    if job.state not in ("pausing", "paused"):
        return ""
    resume, found = f"tradewind resume {tx.typed_name(job.id, job.name)}", needed_to_continue(installation, tx, job)
    if wanted_nano_usd >= found.enough:
        return f"; to continue: {resume}"
    short = "it is still too small to finish" if wanted_nano_usd < found.least else "it may be too small to finish"
    return f"; {short}{found.also_late}; to continue: {larger_budget(tx, job, found)}, then {resume}"


@dataclass(frozen=True, slots=True)
class Shortage:
    """The budget of a job may be too small to continue, or surely is (`at_once`: the job is paused again before it
    rents a machine). `late`: see Needed.also_late. `order`: the command that sets a budget which is enough."""

    budget_nano_usd: int
    at_once: bool
    late: str
    order: str


def shortage(
    installation: Installation, tx: Tx, job: Job, markets: MarketReader | None = None, speeds: SpeedReader | None = None
) -> Shortage | None:
    """Why a paused job may be paused again because of its budget if it is resumed; None if that is not likely, or if
    the budget of its group changes before that. Raises RowError."""
    budget = job.spec.budget_nano_usd
    for each in tx.open_commands():
        if each.kind == "group-budget" and job.group_id is not None and each.args.get("group_id") == job.group_id:
            return None
        if each.kind == "budget" and each.job_id == job.id:
            wanted = each.args.get("nano_usd")
            budget = wanted if isinstance(wanted, int) else budget
    if budget is None:
        return None
    seen, ending = _inputs(installation, tx, job, markets, speeds), _ending_nano_usd(installation, tx, job)
    found = _needed(installation, seen, job, ending)
    limit = limits(installation.config)
    to_start = ending + budgets_to_start(seen.demands, seen.market, seen.perf, limits=limit).get(job.id, -ending)
    if budget >= max(to_start, found.enough):
        return None
    order = larger_budget(tx, job, found)
    if not found.enough:
        order += f" (${(to_start // CENT_NANO_USD + 1) / 100:.2f} is enough to rent a machine; training takes more)"
    return Shortage(budget, budget < to_start, found.also_late, order)


def needed_to_continue(
    installation: Installation,
    tx: Tx,
    job: Job,
    *,
    markets: MarketReader | None = None,
    speeds: SpeedReader | None = None,
    used: Collection[str] = (),
) -> Needed:
    """The budget that a job needs to continue from its checkpoint, once the machines that it still has have ended;
    NOTHING where that is not known. `markets`, `speeds` and `used` are as for `snapshot.inputs`. Raises RowError."""
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
    """What the machines of a job cost until they have ended, with a checkpoint if they train."""
    runs, now_ms, factor = (
        tx.runs(job_id=job.id, unsettled=True),
        installation.clock.now_ms(),
        installation.clock.factor,
    )
    steps_s = [run.step_wall_s or 0.0 for run in runs if run.training_from_ms and run.training_to_ms is None]
    stop_s = stop_market_s(factor, max(steps_s)) if steps_s else 0.0
    return reserve_nano_usd(running_nano_usd_per_hour(tx, runs, now_ms), release_market_s(factor) + stop_s)
