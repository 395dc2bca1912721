"""Larger budget: which budget is enough for a job (policy.ranking.enough), the command that sets it, and how the job
continues after a change of its budget."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from orchestrator.engine.billing.accrue import reserve_nano_usd, running_nano_usd_per_hour
from orchestrator.engine.billing.group_budget import with_group_order
from orchestrator.engine.inputs.market_reader import MarketReader
from orchestrator.engine.inputs.reserves import release_market_s, stop_market_s
from orchestrator.engine.inputs.snapshot import inputs, limits
from orchestrator.engine.inputs.speeds import SpeedReader
from orchestrator.installation import Installation
from orchestrator.model import Job, JobState
from orchestrator.policy.needed_budget import needed_budgets
from orchestrator.policy.ranking.enough import NOTHING, Needed
from orchestrator.store import Tx


def larger_budget(tx: Tx, job: Job, found: Needed) -> str:
    """The command that sets the budget `found` to be enough, or that of the group first; it ends in "USD" where no
    amount is known."""
    amount = "USD" if found == NOTHING else f"{found.enough_cents / 100:.2f}"
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
    return f"; {short}; to continue: {larger_budget(tx, job, found)}, then {resume}"


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
    now_ms, config = installation.clock.now_ms(), installation.config
    also: tuple[JobState, ...] = ("pausing", "paused")
    seen = inputs(tx, now_ms, config, only=[job.id], also=also, markets=markets, speeds=speeds, used=used)
    found = needed_budgets(seen.demands, seen.market, seen.perf, limits=limits(config)).get(job.id, NOTHING)
    if found == NOTHING:
        return found
    ending = _ending_nano_usd(installation, tx, job, now_ms)
    return replace(found, least=found.least + ending, enough=found.enough + ending)


def _ending_nano_usd(installation: Installation, tx: Tx, job: Job, now_ms: int) -> int:
    """What the machines of a job cost until they have ended, with a checkpoint if they train."""
    runs, factor = tx.runs(job_id=job.id, unsettled=True), installation.clock.factor
    steps_s = [run.step_wall_s or 0.0 for run in runs if run.training_from_ms and run.training_to_ms is None]
    stop_s = stop_market_s(factor, max(steps_s)) if steps_s else 0.0
    return reserve_nano_usd(running_nano_usd_per_hour(tx, runs, now_ms), release_market_s(factor) + stop_s)
