"""Time sharing: carries out the turns on owned machines (policy.time_sharing).

Turns are assigned at the end of each round. Within a round, they are assigned again when a job arrives or ends, and
from time to time because machines come and go, but no running job is interrupted. They depend only on the store, so
another control plane assigns the same turns.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from orchestrator.engine.context import Context, Round
from orchestrator.engine.jobs.machine_time import known_of, machine_times, machines_at_hand
from orchestrator.engine.jobs.reserved import TAKE_PART, end_turns
from orchestrator.engine.migration.startable import able_to_share
from orchestrator.formats.readable import span
from orchestrator.market import Market
from orchestrator.model import Job
from orchestrator.policy.groups.time_slices import WINDOW, Fairness
from orchestrator.policy.time_sharing import Given, Rules, take_turns
from orchestrator.store import Tx
from providers.money import NANO_USD

LEAST_TURN = 0.5
"""As a share of a round: a turn that has lasted for less than this does not end with the round."""
AGAIN_S, PART = 1.0, 0.1
"""Wall seconds between two assignments within a round; assigning takes at most this share of the time."""
AGAIN_MARKET_S = 60.0
"""Market seconds, and at least AGAIN_S, between two assignments while nothing happens."""


def share_time(ctx: Context) -> bool:
    """Assign turns if it is time. Returns whether a job must give way."""
    policy = ctx.installation.config.policy
    fairness = policy.time_sharing
    if fairness == "none":
        return False
    number = int(ctx.now_ms // (policy.turn_s * 1000))
    jobs = {
        job_id: job
        for job_id, job in ctx.work.jobs.items()
        if job.state in TAKE_PART and job_id not in ctx.work.quarantined
    }
    seen = frozenset((job_id, job.state) for job_id, job in jobs.items())
    before = ctx.round
    clock = ctx.installation.clock
    again_s = max(AGAIN_S, AGAIN_MARKET_S / clock.factor)
    soon_s = max(AGAIN_S, ctx.pacing.get("turns-took", 0.0) / PART)
    key, every_s = ("turns", soon_s) if seen != before.seen else ("turns-again", max(soon_s, again_s))
    if number == before.number and not ctx.due(key, every_s):
        return False
    ctx.round = Round(number, seen)
    if len(jobs) < 2:
        return False
    if number == before.number:
        least_s = inf  # within a round, no job is interrupted
    elif before.number is None:
        least_s = policy.turn_s  # the first assignment of this control plane: the round may have begun long ago
    else:
        least_s = LEAST_TURN * policy.turn_s
    begun_s = clock.monotonic_s()
    with ctx.installation.store.read() as tx:
        given = _given(ctx, tx, able_to_share(ctx, tx, jobs), fairness, least_s)
    ctx.pacing["turns-took"] = clock.monotonic_s() - begun_s
    if given is None:
        return False
    ctx.round = Round(number, seen, given, {job_id: _reason(ctx, job_id, given) for job_id in given.share})
    return end_turns(ctx, ctx.round, given.give_way)


def _given(ctx: Context, tx: Tx, jobs: Mapping[str, Job], fairness: Fairness, least_s: float) -> Given | None:
    config, known = ctx.installation.config, known_of(ctx, tx, jobs)
    market = known.market
    if not market.owned.any():
        return None
    past = machine_times(ctx, tx, jobs, WINDOW * config.policy.turn_s)
    held, others = machines_at_hand(ctx, tx, jobs)
    owned = {market.ids[row] for row in market.owned.nonzero()[0].tolist()}
    here = [(offer, nodes) for offer, nodes in held if offer in owned]
    rented = [(offer, nodes) for offer, nodes in held if offer not in owned]
    elsewhere = [*rented, *((run.offer_id, run.nodes) for run in others)]
    rules = Rules(
        fairness,
        config.policy.turn_s,
        config.limits.max_instances - sum(nodes for _, nodes in elsewhere),
        config.limits.max_usd_per_hour - sum(nodes * _usd_per_h(market, offer) for offer, nodes in elsewhere),
        here,
        least_s,
    )
    return take_turns(known.demands, past, market, known.perf, rules)


def _usd_per_h(market: Market, offer_id: str) -> float:
    row = market.row(offer_id)
    return 0.0 if row is None else max(float(market.price[row]), 0.0) / NANO_USD


def _reason(ctx: Context, job_id: str, given: Given) -> str:
    """Why a job has its turn or waits for it. The part after the semicolon changes often, and a change of it is not
    reported."""
    policy = ctx.installation.config.policy
    fairness = policy.time_sharing.removesuffix("-fairness")
    return (
        f"your machines are shared ({fairness} fairness, turns of {span(policy.turn_s)}); {len(given.share)} jobs "
        f"share {given.machines} of your machines, and its share is about {given.share[job_id]:.0%} of a machine's time"
    )
