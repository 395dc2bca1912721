"""Spending limits: how near a job is to its budget and to its max_duration.

A budget is never passed, so what is spent counts together with what ending the job now would still cost: the time
until the control plane looks again, the provider's delay, and a rise of a spot price since prices were last heard of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from orchestrator.engine.billing.accrue import cost_so_far, prices_known_until_ms, reserve_nano_usd
from orchestrator.engine.context import Context
from orchestrator.model import Job, Run
from orchestrator.store import Tx
from providers.money import format_usd
from providers.offer import CapacityType

LOOK_EVERY_S = 0.5  # wall
RELEASE_WALL_S = 2.0  # from the decision to end a machine until it is no longer billed: on this host,
RELEASE_MARKET_S = 30.0  # of a real provider, whose answers take longer
STOP_WALL_S = 3.0  # a checkpoint and what surrounds it; two steps come on top
STOP_SHARE = 100  # of a large budget a hundredth may be spent on waiting for a step boundary
MARGIN = 1.2  # what finishing is thought to cost, so many times over, is a budget that will do
STOP_TIMEOUT_WALL_S = 120.0  # but no longer than this


@dataclass(frozen=True, slots=True)
class Spending:
    """nano-USD. `spent` up to this look; `release` is what it costs besides to end all machines at once, `stop` what
    may be spent before that on waiting for a checkpoint."""

    spent: int
    release: int
    stop: int

    def used_up(self, budget_nano_usd: int) -> bool:
        """Any later, and the budget is passed."""
        return self.spent + self.release >= budget_nano_usd

    def nearly_used_up(self, budget_nano_usd: int) -> bool:
        """What is left is needed for a checkpoint and the end of the machines."""
        return self.spent + self.release + self.stop >= budget_nano_usd

    def too_little_for_two(self, budget_nano_usd: int) -> bool:
        """A second machine would soon make the job pause; there is still time to end that one before."""
        return self.spent + 2 * self.release + self.stop >= budget_nano_usd


def spending(
    ctx: Context, job: Job, current: Run | None, look_every_s: float = LOOK_EVERY_S, *, beside: int = 0
) -> Spending:
    """Of all machines of a job with a budget, and of one more at `beside` nano-USD per hour; the control plane looks
    again within `look_every_s` wall seconds."""
    factor, budget = ctx.installation.clock.factor, job.spec.budget_nano_usd
    assert budget is not None
    with ctx.installation.store.read() as tx:
        runs = [_described(ctx, run) for run in tx.runs(job_id=job.id, unsettled=True)]
        wanted = [run for run in runs if run.billed_from_ms is None and run.end is None]
        rate_to_come = sum(price_now(tx, run.offer_id, ctx.now_ms) for run in wanted)
        unheard, rise = _unheard(tx, runs, ctx.now_ms)
    spent, rate = cost_so_far(ctx, job.id, runs)
    rate += rate_to_come + beside
    step_wall_s = current.step_wall_s or 0.0 if current is not None else 0.0
    stop_s = STOP_WALL_S + 2 * step_wall_s + 2 * look_every_s
    stop = max(reserve_nano_usd(rate + rise, stop_s * factor), budget // STOP_SHARE)
    longest = reserve_nano_usd(rate + rise, STOP_TIMEOUT_WALL_S * factor)
    return Spending(spent, _release_nano_usd(rate, factor, look_every_s) + unheard, min(stop, longest))


def refuses(ctx: Context, job: Job, offer_id: str, leaves: Run | None = None) -> str | None:
    """Why a job may not have a machine of this offer: it could not be ended before the budget is passed; or the job
    trains on a machine that it `leaves` of its own accord, and would have to pause where it now goes on. Or None."""
    budget = job.spec.budget_nano_usd
    if budget is None:
        return None
    with ctx.installation.store.read() as tx:
        price = price_now(tx, offer_id, ctx.now_ms)
    if leaves is not None:
        return refuses_second(ctx, job, leaves, price)
    now = spending(ctx, job, None)
    least = now.spent + now.release + _release_nano_usd(price, ctx.installation.clock.factor, LOOK_EVERY_S)
    if least < budget:
        return None
    return (
        f"what is left of its budget pays for no machine on {offer_id} and its end; {spent_of(now.spent, budget)}: "
        f"raise it with tradewind budget set {job.name} USD"
    )


def refuses_second(ctx: Context, job: Job, current: Run, second_nano_usd_per_hour: int, to_come: int = 0) -> str | None:
    """Why a job that trains may have no second machine, to move to or as a standby: what both will cost (`to_come`,
    nano-USD) and the end of all its machines would pass the budget, so that it would pause for its sake. Or None."""
    budget = job.spec.budget_nano_usd
    if budget is None:
        return None
    now = spending(ctx, job, current, beside=second_nano_usd_per_hour)
    if not replace(now, spent=now.spent + to_come).too_little_for_two(budget):
        return None
    return "what is left of its budget would not last for both machines"


def spent_of(spent_nano_usd: int, budget_nano_usd: int) -> str:
    """How a reason begins."""
    return f"${spent_nano_usd / 1e9:.4f} of its budget of {format_usd(budget_nano_usd)} are spent"


def why_paused(ctx: Context, job: Job, current: Run | None, now: Spending) -> str:
    """What is spent, what the rest of the budget is kept for, and what it takes to go on."""
    budget = job.spec.budget_nano_usd
    assert budget is not None
    reserve = now.release + now.stop
    why = spent_of(now.spent, budget)
    why += f"; {format_usd(reserve, 4)} are kept for its checkpoint and the end of its machines"
    rest = _to_finish_nano_usd(ctx, job, current)
    if rest is None:
        return f"{why}; to go on: tradewind budget set {job.name} USD, then tradewind resume {job.name}"
    cents = -(-(now.spent + reserve + round(MARGIN * rest)) // 10_000_000)
    more = f"to finish at its present speed and price takes about {format_usd(rest, 4)} more"
    order = f"tradewind budget set {job.name} {cents / 100:.2f}, then tradewind resume {job.name}"
    return f"{why}; {more}: {order}"


def _to_finish_nano_usd(ctx: Context, job: Job, current: Run | None) -> int | None:
    """None where the number of its steps or their speed is not known."""
    with ctx.installation.store.read() as tx:
        facts = tx.job_facts(job.id)
        steps = job.spec.train.steps if facts.total_steps is None else facts.total_steps
        if current is None or steps is None or not current.step_wall_s:
            return None
        price = price_now(tx, current.offer_id, ctx.now_ms)
    market_s = max(0, steps - current.last_step) * current.step_wall_s * ctx.installation.clock.factor
    return reserve_nano_usd(price, market_s)


def trained_s(runs: Sequence[Run], now_ms: int) -> float:
    """Market seconds in which a job held a machine to train on, over all its runs: what max_duration limits."""
    return sum(
        ((now_ms if run.training_to_ms is None else run.training_to_ms) - run.training_from_ms) / 1000
        for run in runs
        if run.training_from_ms is not None
    )


def price_now(tx: Tx, offer_id: str, now_ms: int) -> int:
    """nano-USD per hour as last heard; 0 while no price is known (no machine is rented then)."""
    changes = tx.price_changes(offer_id, now_ms, now_ms + 1)
    return changes[-1][1] if changes else 0


def _release_nano_usd(rate_per_hour: int, factor: float, look_every_s: float) -> int:
    market_s = max(RELEASE_WALL_S * factor, RELEASE_MARKET_S) + look_every_s * factor
    return reserve_nano_usd(rate_per_hour, market_s)


def _described(ctx: Context, run: Run) -> Run:
    """With the begin of its billing, which a provider tells before it is written down."""
    instance = ctx.instance(run)
    if run.billed_from_ms is not None or instance is None or instance.billed_from_ms is None:
        return run
    return replace(run, billed_from_ms=instance.billed_from_ms)


def _unheard(tx: Tx, runs: Sequence[Run], now_ms: int) -> tuple[int, int]:
    """If the prices of living spot machines have doubled since they were last heard of: (what these have cost more by
    now, how much more they cost per hour)."""
    more = rise = 0
    for run in runs:
        if run.billed_to_ms is None and run.billed_from_ms is not None and run.offer_id.endswith(CapacityType.SPOT):
            known_ms = prices_known_until_ms(tx, run.offer_id)
            since_ms = run.billed_from_ms if known_ms is None else max(known_ms, run.billed_from_ms)
            price = price_now(tx, run.offer_id, now_ms)
            more += reserve_nano_usd(price, max(0, now_ms - since_ms) / 1000)
            rise += price
    return more, rise
