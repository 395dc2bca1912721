"""Spending limits: how close a job is to its budget and to its max_duration.

A budget is never exceeded. So the amount spent is added to the cost of ending the job now: the time until the control
plane checks again, the provider's delay, a possible rise of spot prices since the last poll, and the least that
launches under way will cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from orchestrator.engine.billing.accrue import (
    is_billed,
    prices_known_until_ms,
    reserve_nano_usd,
    running_nano_usd_per_hour,
)
from orchestrator.engine.billing.egress_estimates import estimated_nano_usd, fetched
from orchestrator.engine.billing.larger_budget import (
    larger_budget,
    needed_to_continue,
    orders_to_continue,
    project_shortage,
)
from orchestrator.engine.billing.machine_cost import job_cost_nano_usd, unbooked_nano_usd
from orchestrator.engine.context import Context
from orchestrator.engine.inputs.reserves import (
    LOOK_EVERY_S,
    STOP_TIMEOUT_WALL_S,
    release_market_s,
    stop_market_s,
)
from orchestrator.engine.inputs.snapshot import checkpoint_at, left_out
from orchestrator.installation import Installation
from orchestrator.market import Location
from orchestrator.model import Job, Member, Run
from orchestrator.policy.demand import Reserve
from orchestrator.policy.ranking.enough import CENT_NANO_USD
from orchestrator.policy.ranking.renting import promised_by_start
from orchestrator.store import Tx
from providers.billing.charges import Usage, charges, rate_card
from providers.money import about_usd, whole_usd
from providers.offer import CapacityType, location_of, provider_of


@dataclass(frozen=True, slots=True)
class Spending:
    """nano-USD. `spent`: so far; `release`: the cost of ending all machines now; `promised`: the additional cost of
    launches under way, however soon their machines end; `stop`: what may be spent before that on waiting for a
    checkpoint; `per_hour`: the cost of all machines if prices rise."""

    spent: int
    release: int
    promised: int
    stop: int
    per_hour: int

    @property
    def to_end(self) -> int:
        """The cost of ending all machines now, including those being launched."""
        return self.release + self.promised

    @property
    def reserve(self) -> int:
        """The amount reserved for a checkpoint and the end of the machines."""
        return self.to_end + self.stop

    def used_up(self, budget_nano_usd: int) -> bool:
        """Whether waiting any longer would exceed the budget."""
        return self.spent + self.to_end >= budget_nano_usd

    def nearly_used_up(self, budget_nano_usd: int) -> bool:
        """Whether the rest is needed for a checkpoint and the end of the machines."""
        return self.spent + self.reserve >= budget_nano_usd

    def lasts_s(self, budget_nano_usd: int) -> float:
        """Market seconds until the rest of the budget only covers the end of the machines, even if prices rise."""
        left = max(0, budget_nano_usd - self.spent - self.to_end)
        return left * 3600 / self.per_hour if self.per_hour else inf

    def too_little_for_two(self, budget_nano_usd: int) -> bool:
        """Whether a second machine would soon force a pause; there is still time to end that machine first."""
        return self.spent + self.release + self.reserve >= budget_nano_usd


@dataclass(frozen=True, slots=True)
class Coming:
    """Machines that are not billed yet: their cost per hour, how much it may rise, and what they will cost in any case
    (nano-USD)."""

    rate: int = 0
    rise: int = 0
    least: int = 0


def spending(
    ctx: Context, job: Job, current: Run | None, look_every_s: float = LOOK_EVERY_S, *, beside: str | None = None
) -> Spending:
    """The spending of a job with a budget on all its machines, and on the additional machines `beside` them on an
    offer. The control plane checks again within `look_every_s` wall seconds."""
    budget = job.spec.budget_nano_usd
    assert budget is not None
    more = () if beside is None else ((beside, job.spec.resources.nodes),)
    with ctx.installation.store.read() as tx:
        runs = [described(ctx, run) for run in tx.runs(job_id=job.id, unsettled=True)]
        spent = job_cost_nano_usd(tx, job.id, runs, ctx.now_ms)
        step_wall_s = current.step_wall_s or 0.0 if current is not None else 0.0
        return spending_on(ctx, tx, runs, more, spent, budget, step_wall_s=step_wall_s, look_every_s=look_every_s)


def spending_on(
    ctx: Context,
    tx: Tx,
    runs: Sequence[Run],
    more: Sequence[tuple[str, int]],
    spent: int,
    budget: int,
    *,
    step_wall_s: float,
    look_every_s: float,
) -> Spending:
    """The spending of a budget (nano-USD) on the machines of these runs, which have cost `spent`, and on `more`: (offer
    id, how many). The other arguments are as for `reserved`."""
    now = reserved(
        ctx.installation.clock.factor,
        spent,
        running_nano_usd_per_hour(tx, runs, ctx.now_ms),
        *possible_rise(tx, runs, ctx.now_ms),
        budget,
        to_come(ctx.installation, tx, runs, ctx.now_ms, more),
        step_wall_s=step_wall_s,
        look_every_s=look_every_s,
    )
    return replace(now, promised=now.promised + to_bring_nano_usd(ctx, tx, runs))


def to_come(
    installation: Installation, tx: Tx, runs: Sequence[Run], now_ms: int, more: Sequence[tuple[str, int]] = ()
) -> Coming:
    """The future cost of the machines of these runs that are not billed yet, and of `more`: (offer id, how many). An
    abandoned launch counts until it is known that it created no machine. A machine is billed for a minimum time, during
    which the price of a spot machine may double."""
    coming = [((run.offer_id, *_also(tx, run)), run.nodes) for run in runs if run.billed_from_ms is None]
    found = Coming()
    for offers, nodes in (*coming, *(((offer_id,), nodes) for offer_id, nodes in more)):
        price, dearest = max((nodes * price_now(tx, each, now_ms), each) for each in offers)
        spot, least = dearest.endswith(CapacityType.SPOT), shortest_nano_usd(dearest, price)
        release = reserve_nano_usd(price, release_market_s(installation.clock.factor))
        found = Coming(
            found.rate + price,
            found.rise + (price if spot else 0),
            found.least + int(promised_by_start(least, release, spot)),
        )
    return found


def _also(tx: Tx, run: Run) -> Sequence[str]:
    """The other offers that a launch under way may use."""
    if run.instance_id is not None:
        return ()
    moves = tx.migrations(job_id=run.job_id, unreadable=left_out)
    return [offer_id for move in moves if move.target_run_id == run.id for offer_id in move.also]


def to_bring_nano_usd(ctx: Context, tx: Tx, runs: Sequence[Run]) -> int:
    """The cost of fetching checkpoints for those of these runs that have none yet, in nano-USD."""
    found = 0
    for run in runs:
        if run.end is None and run.training_from_ms is None and run.moved_bytes is None:
            found += bringing_nano_usd(tx, run.job_id, run.offer_id, ctx.bucket_of(tx.outline(run.job_id)))
    return found


def reserved(
    factor: float,
    spent: int,
    rate: int,
    unheard: int,
    rise: int,
    budget: int,
    coming: Coming,
    *,
    step_wall_s: float,
    look_every_s: float,
) -> Spending:
    """The spending on machines that have cost `spent` and cost `rate` per hour, or, if prices have risen since the last
    poll, `unheard` and `rise` more (nano-USD), and on those that are `coming`. `step_wall_s` is the longest of their
    steps (wall seconds). The market clock runs `factor` times as fast as the wall clock."""
    rate, rise = rate + coming.rate, rise + coming.rise
    stop_s = stop_market_s(factor, step_wall_s, look_every_s)
    stop = max(reserve_nano_usd(rate + rise, stop_s), budget // Reserve.SHARE)
    longest = reserve_nano_usd(rate + rise, STOP_TIMEOUT_WALL_S * factor)
    release = reserve_nano_usd(rate, release_market_s(factor, look_every_s)) + unheard
    return Spending(spent, release, coming.least, min(stop, longest), rate + rise)


def to_end_nano_usd(installation: Installation, tx: Tx, job: Job) -> int:
    """The approximate cost of a job's machines, in addition to what is booked, until they have been ended with a
    checkpoint, if prices double meanwhile. This much of a budget is reserved."""
    runs, now_ms, factor = (
        tx.runs(job_id=job.id, unsettled=True),
        installation.clock.now_ms(),
        installation.clock.factor,
    )
    rate = sum(run.nodes * price_now(tx, run.offer_id, now_ms) for run in runs if run.billed_to_ms is None)
    longest = max([run.step_wall_s or 0.0 for run in runs], default=0.0)
    try:
        unbooked = unbooked_nano_usd(tx, runs, now_ms)
    except ValueError:  # a price is not known for all of the time
        unbooked = 0
    release = reserve_nano_usd(rate, release_market_s(factor)) + to_come(installation, tx, runs, now_ms).least
    return unbooked + release + reserve_nano_usd(2 * rate, stop_market_s(factor, longest))


def least_budget_nano_usd(installation: Installation, tx: Tx, job: Job) -> int:
    """The smallest budget that a job may get now, in whole cents: it covers the amount spent and the end of the
    machines."""
    unheard, _ = possible_rise(tx, tx.runs(job_id=job.id, unsettled=True), installation.clock.now_ms())
    least = tx.total_nano_usd(job_id=job.id) + to_end_nano_usd(installation, tx, job) + unheard
    return (least // CENT_NANO_USD + 1) * CENT_NANO_USD


def refuses(ctx: Context, job: Job, offer_id: str, leaves: Run | None = None) -> str | None:
    """Why a job with a budget may not rent a machine of this offer; None if it may. Either the machine could not be
    ended before the budget is exceeded, or a voluntary move away from the run `leaves` would force a pause. The reason
    names a budget that is enough or, if that is not known, one that covers the machine."""
    budget = job.spec.budget_nano_usd
    if budget is None:
        return None
    with ctx.installation.store.read() as tx:
        brought = bringing_nano_usd(tx, job.id, offer_id, ctx.bucket_of(job))
    egress = f", and transferring its checkpoint there costs {about_usd(brought)}" if brought else ""
    if leaves is not None:
        two = refuses_second(ctx, job, leaves, offer_id, brought)
        return None if two is None else two + egress
    then = spending(ctx, job, None, beside=offer_id)
    if not then.nearly_used_up(budget - brought):
        return None
    least = then.spent + brought + then.reserve
    why = f"the rest of its budget does not cover a machine on {offer_id}: {spent_of(then.spent, budget)}"
    why += egress
    with ctx.installation.store.read() as tx:
        late, order = larger_budget_now(ctx, tx, job)
        orders = with_project_order(ctx, tx, job, order)
    if order.endswith("USD"):
        why += f"; ${(least // CENT_NANO_USD + 1) / 100:.2f} is enough to rent it, but training costs more"
    return f"{why}{late}; to continue: {orders}"


def no_longer_covers(ctx: Context, job: Job, target: Run) -> str | None:
    """Why the machines of `target`, which are about to be launched, may no longer be rented; None if they may. The
    budget was checked when the launch was decided, which may be long ago."""
    budget = job.spec.budget_nano_usd
    if budget is None or not spending(ctx, job, None).nearly_used_up(budget):
        return None
    return f"the rest of its budget no longer covers a machine on {target.offer_id}"


def refuses_second(ctx: Context, job: Job, current: Run, offer_id: str, also_nano_usd: int = 0) -> str | None:
    """Why a running job may not rent a second machine of an offer, to move to or as a standby; None if it may. It may
    not if the cost of both (`also_nano_usd`) and of ending all machines would exceed the budget and force a pause."""
    budget = job.spec.budget_nano_usd
    if budget is None:
        return None
    now = spending(ctx, job, current, beside=offer_id)
    if not replace(now, spent=now.spent + also_nano_usd).too_little_for_two(budget):
        return None
    return "the rest of its budget does not cover two machines"


def shortest_nano_usd(offer_id: str, nano_usd_per_hour: int) -> int:
    """The minimum bill for a machine of an offer, even if it ends at once or never starts, in nano-USD."""
    card = rate_card(provider_of(offer_id))
    return max(reserve_nano_usd(nano_usd_per_hour, card.minimum_ms / 1000), card.failed_launch_nano_usd)


def bringing_nano_usd(tx: Tx, job_id: str, offer_id: str, bucket: Location | None) -> int:
    """The charge for fetching a job's checkpoint, which is kept in `bucket`, to a machine of an offer: egress and
    requests, in nano-USD; on real clouds an estimate."""
    size, saved_at = tx.job_facts(job_id).checkpoint_bytes, checkpoint_at(tx.runs(job_id=job_id))
    place = fetched(location_of(offer_id), saved_at, bucket)
    if not size or place is None:
        return 0
    usage = Usage(location_of(offer_id), moved_from=place, moved_bytes=size)
    billed = charges(rate_card(provider_of(offer_id)), [], None, None, 0, ended=False, usage=usage)
    return estimated_nano_usd(usage) + sum(billed.values())


def spent_of(spent_nano_usd: int, budget_nano_usd: int) -> str:
    """The beginning of a message about the budget. It does not change when the end of the machine has cost more."""
    return f"{about_usd(spent_nano_usd)} of its {whole_usd(budget_nano_usd)} budget is spent so far"


def why_paused(ctx: Context, job: Job, current: Run | None, now: Spending) -> str:
    """How much is spent, what the rest of the budget is reserved for, and how to continue."""
    budget = job.spec.budget_nano_usd
    assert budget is not None
    why = spent_of(now.spent, budget)
    why += f"; {about_usd(now.reserve)} is reserved to save a checkpoint and end its machines"
    rest = _to_finish_nano_usd(ctx, job, current)
    if rest is not None:
        why += f"; finishing at the present speed and price costs about {about_usd(rest)} more"
    with ctx.installation.store.read() as tx:
        late, order = orders_to_continue(
            ctx.installation, tx, job, markets=ctx.markets, speeds=ctx.speeds, used=ctx.used_offers
        )
        orders = with_project_order(ctx, tx, job, order)
    return f"{why}{late}; to continue: {orders}, then tradewind resume {ctx.typed_name(job)}"


def larger_budget_now(ctx: Context, tx: Tx, job: Job) -> tuple[str, str]:
    """(a note if more than money is missing, else ""; the command that sets a budget that is enough)."""
    found = needed_to_continue(ctx.installation, tx, job, markets=ctx.markets, speeds=ctx.speeds, used=ctx.used_offers)
    return found.also_late, larger_budget(tx, job, found)


def with_project_order(ctx: Context, tx: Tx, job: Job, order: str) -> str:
    """`order`, which raises a job's budget, and the command that raises its project's budget if that pays for no
    machine."""
    project = project_shortage(ctx.installation, tx, job, ctx.markets, ctx.speeds)
    return order if project is None or not project.at_once else f"{order}, then {project.order}"


def _to_finish_nano_usd(ctx: Context, job: Job, current: Run | None) -> int | None:
    """The cost of the rest of the job at the present price; None if its steps or their speed are not known."""
    with ctx.installation.store.read() as tx:
        facts = tx.job_facts(job.id)
        steps = job.spec.train.steps if facts.total_steps is None else facts.total_steps
        if current is None or steps is None or not current.step_wall_s:
            return None
        price = current.nodes * price_now(tx, current.offer_id, ctx.now_ms)
    market_s = max(0, steps - current.last_step) * current.step_wall_s * ctx.installation.clock.factor
    return reserve_nano_usd(price, market_s)


def trained_s(runs: Sequence[Run], now_ms: int) -> float:
    """Market seconds for which a job held a machine to train on, over all its runs. max_duration limits this."""
    return sum(
        ((now_ms if run.training_to_ms is None else run.training_to_ms) - run.training_from_ms) / 1000
        for run in runs
        if run.training_from_ms is not None
    )


def price_now(tx: Tx, offer_id: str, now_ms: int) -> int:
    """The last known price in nano-USD per hour; 0 if none is known (then no machine is rented)."""
    changes = tx.price_changes(offer_id, now_ms, now_ms + 1)
    return changes[-1][1] if changes else 0


def described(ctx: Context, run: Run) -> Run:
    """The run with the start of its billing, and the ends of its machines' bills, which are known before they are
    stored."""
    instance = ctx.instance(run)
    if instance is not None and run.billed_from_ms is None and instance.billed_from_ms is not None:
        began_ms = instance.billed_from_ms
        members = tuple(replace(each, billed_from_ms=began_ms) for each in run.members)
        run = replace(run, billed_from_ms=began_ms, members=members)
    if run.billed_from_ms is None or run.billed_to_ms is not None:
        return run
    ended = tuple(_ended(ctx, each) for each in run.machines)
    return run if ended == run.machines else replace(run, members=ended)


def _ended(ctx: Context, machine: Member) -> Member:
    """The machine with the end of its bill, if the provider has reported that, or if the machine has ended by itself
    because it was not renewed."""
    if machine.instance_id is None or machine.billed_to_ms is not None:
        return machine
    instance, lived_until_ms = ctx.instances.get(machine.instance_id), ctx.lived_until_ms(machine.instance_id)
    if instance is not None and not instance.alive and instance.billed_to_ms is not None:
        return replace(machine, billed_to_ms=instance.billed_to_ms)
    return machine if lived_until_ms is None else replace(machine, billed_to_ms=lived_until_ms)


def possible_rise(tx: Tx, runs: Sequence[Run], now_ms: int) -> tuple[int, int]:
    """Assuming that prices of running spot machines have doubled since the last poll: (the extra cost by now, the extra
    cost per hour), in nano-USD."""
    more = rise = 0
    for run in runs:
        began_ms = run.billed_from_ms
        if began_ms is not None and is_billed(run) and run.offer_id.endswith(CapacityType.SPOT):
            known_ms = prices_known_until_ms(tx, run.offer_id, now_ms)
            since_ms = began_ms if known_ms is None else max(known_ms, began_ms)
            price = run.nodes * price_now(tx, run.offer_id, now_ms)
            more += reserve_nano_usd(price, max(0, now_ms - since_ms) / 1000)
            rise += price
    return more, rise
