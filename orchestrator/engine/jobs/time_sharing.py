"""Time sharing: carries out the turns on owned machines (policy.time_sharing).

Turns are assigned at the end of each round. When a job arrives or ends within a round, they are assigned again, but no
job that runs is interrupted. They follow from what is in the store, so another control plane assigns the same turns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import inf

from orchestrator.engine.context import Context, Round
from orchestrator.engine.inputs import snapshot
from orchestrator.engine.jobs import predecessors
from orchestrator.engine.jobs.reserved import TAKE_PART, end_turns
from orchestrator.model import Job, Run
from orchestrator.policy.groups.time_slices import WINDOW, Fairness
from orchestrator.policy.time_sharing import Given, History, Rules, take_turns
from orchestrator.store import Tx

LEAST_TURN = 0.5
"""Of a round: a turn that began later is not over with it."""
AGAIN_S = 1.0
"""Wall seconds between two looks within a round."""


def share_time(ctx: Context) -> bool:
    """Give turns if it is time to. Returns whether a job has to give way."""
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
    if number == before.number and (seen == before.seen or not ctx.due("turns", AGAIN_S)):
        return False
    ctx.round = Round(number, seen)
    if len(jobs) < 2:
        return False
    if number == before.number:
        least_s = inf  # within a round, no job is interrupted
    elif before.number is None:
        least_s = policy.turn_s  # the first look of this control plane: the round may have begun long ago
    else:
        least_s = LEAST_TURN * policy.turn_s
    with ctx.installation.store.read() as tx:
        able = {job_id: job for job_id, job in jobs.items() if predecessors.waits_for(tx, job) is None}
        given = _given(ctx, tx, able, fairness, least_s)
    if given is None:
        return False
    ctx.round = Round(number, seen, given, {job_id: _told(ctx, job_id, given) for job_id in given.share})
    return end_turns(ctx, ctx.round, given.give_way)


def _given(ctx: Context, tx: Tx, jobs: Mapping[str, Job], fairness: Fairness, least_s: float) -> Given | None:
    config, now_ms = ctx.installation.config, ctx.now_ms
    known = snapshot.inputs(
        tx, now_ms, config, only=list(jobs), markets=ctx.markets, speeds=ctx.speeds, used=ctx.used_offers
    )
    if not known.market.owned.any():
        return None
    runs, window_s = tx.runs_of(jobs), WINDOW * config.policy.turn_s
    past = {job_id: history(job, runs[job_id], now_ms, window_s) for job_id, job in jobs.items()}
    owned = {known.market.ids[row] for row in known.market.owned.nonzero()[0].tolist()}
    rented = sum(run.nodes for run in ctx.work.runs if run.billed_to_ms is None and run.offer_id not in owned)
    most = max(config.limits.max_instances - rented, 0)
    rules = Rules(fairness, config.policy.turn_s, most, least_s)
    return take_turns(known.demands, past, known.market, known.perf, rules)


def history(job: Job, runs: Sequence[Run], now_ms: int, window_s: float) -> History:
    """What a job had in the last `window_s` (market seconds)."""
    age_s = max(now_ms - job.submitted_at_ms, 0) / 1000
    had_s: dict[str, float] = defaultdict(float)
    from_ms, last_ms = now_ms - window_s * 1000, job.submitted_at_ms
    for run in runs:
        if run.training_from_ms is not None:
            to_ms = now_ms if run.training_to_ms is None else run.training_to_ms
            had_s[run.offer_id] += max(to_ms - max(run.training_from_ms, from_ms), 0) / 1000
            last_ms = max(last_ms, to_ms)
    alive = max((run for run in runs if run.end is None), key=lambda run: run.generation, default=None)
    turn_ms = 0 if alive is None else now_ms - (alive.training_from_ms or now_ms)
    return History(
        age_s=age_s,
        waited_s=max(now_ms - last_ms, 0) / 1000,
        there_s=min(age_s, window_s),
        had_s=had_s,
        on=None if alive is None else alive.offer_id,
        turn_s=turn_ms / 1000,
    )


def _told(ctx: Context, job_id: str, given: Given) -> str:
    policy = ctx.installation.config.policy
    fairness = policy.time_sharing.removesuffix("-fairness")
    return (
        f"{len(given.share)} jobs share {given.machines} of your machines ({fairness} fairness, turns of "
        f"{policy.turn_s / 60:g} min; its part is {given.share[job_id]:.0%} of a machine's time)"
    )
