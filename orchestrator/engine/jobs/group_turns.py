"""Group turns: carries out the joint plan of each group (policy.group_turns) if quotas are too small for its jobs.

The plan is recomputed when a job of the group arrives, starts, stops or ends, at the end of each round, and once a
minute in between, because prices and capacity change. A round is as long as the time between two decisions
(`policy.decide_every_s`). If a plan cannot be made in time, the last plan applies.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf

from orchestrator.engine.compartment import Compartment, contained
from orchestrator.engine.context import Context, Round
from orchestrator.engine.inputs import snapshot
from orchestrator.engine.jobs import predecessors
from orchestrator.engine.jobs.machine_time import known_of, machine_times, machines_at_hand
from orchestrator.engine.jobs.reserved import TAKE_PART, end_turns
from orchestrator.engine.jobs.time_sharing import LEAST_TURN
from orchestrator.engine.migration.startable import able_to_share
from orchestrator.model import Group, Job
from orchestrator.policy.group_turns import GroupRules, GroupTurns, Later, Parts, group_turns
from orchestrator.policy.groups.order import Order
from orchestrator.policy.groups.time_slices import WINDOW
from orchestrator.policy.time_sharing import Given, History
from orchestrator.store import Tx

AGAIN_MARKET_S, AGAIN_WALL_S = 60.0, 1.0
"""Market seconds between two plans while nothing happens, but at least this many wall seconds."""
LIMIT_S, PART = 2.0, 0.05
"""A plan may take this many wall seconds, and all plans of a group together this share of the time."""


def share_quotas(ctx: Context) -> bool:
    """Make the plans that are due. Returns whether a job has to give way."""
    groups: dict[str, list[Job]] = defaultdict(list)
    for job_id, job in ctx.work.jobs.items():
        able = job.state in TAKE_PART and job_id not in ctx.work.quarantined
        if job.group_id is not None and able:
            groups[job.group_id].append(job)
    return any(
        [
            contained(ctx, Compartment.DECIDE, partial(_share, ctx, group_id, jobs), False, about=f"group {group_id}")
            for group_id, jobs in groups.items()
        ]
    )


def _share(ctx: Context, group_id: str, jobs: list[Job]) -> bool:
    clock, round_s = ctx.installation.clock, ctx.installation.config.policy.decide_every_s
    number = int(ctx.now_ms // (round_s * 1000))
    seen = frozenset((job.id, job.state) for job in jobs)
    before = ctx.group_rounds.get(group_id, Round())
    begun_s = clock.monotonic_s()
    if begun_s < ctx.pacing.get(f"group-turns-after/{group_id}", -inf):
        return False
    again_s = max(AGAIN_WALL_S, AGAIN_MARKET_S / clock.factor)
    if (number, seen) == (before.number, before.seen) and not ctx.due(f"group-turns/{group_id}", again_s):
        return False
    ctx.group_rounds.pop(group_id, None)  # if this fails, the jobs of the group are decided alone
    within = before.number is None or number == before.number  # within a round, no turn is over
    with ctx.installation.store.read() as tx:
        group = tx.group(group_id)
        able = able_to_share(ctx, tx, {job.id: job for job in jobs})
        later = [job.id for job in jobs if job.id not in able and predecessors.waits_for(tx, job) is not None]
        counts = group.policy == "makespan" or any(ctx.work.jobs[each].deadline_at_ms is not None for each in later)
        asked = _asked(ctx, tx, group_id, able, later if counts else []) if able else None
    found = GroupTurns()
    if asked is not None:
        least_s = inf if within else LEAST_TURN * round_s
        rules = GroupRules(
            group.policy, round_s, least_s, again_s * clock.factor, snapshot.limits(ctx.installation.config), LIMIT_S
        )
        found = _found(ctx, asked, before.parts, rules)
    took_s = clock.monotonic_s() - begun_s
    ctx.pacing[f"group-turns-after/{group_id}"] = begun_s + took_s / PART
    given = found.given
    why = {} if given is None else {job_id: _reason(group, found, given, job_id) for job_id in given.share}
    ctx.group_rounds[group_id] = Round(number, seen, given, why, found.parts)
    return given is not None and end_turns(ctx, ctx.group_rounds[group_id], given.give_way)


@dataclass(frozen=True, slots=True)
class _Asked:
    known: snapshot.Inputs
    past: Mapping[str, History]
    held: Sequence[tuple[str, int]]
    later: Order
    """The jobs that must wait until others have finished, with the jobs that they wait for."""


def _asked(ctx: Context, tx: Tx, group_id: str, jobs: Mapping[str, Job], later: Sequence[str]) -> _Asked:
    of_group = {job_id for job_id, job in ctx.work.jobs.items() if job.group_id == group_id}  # also ended jobs
    held, _ = machines_at_hand(ctx, tx, jobs, of=of_group)
    window_s = WINDOW * ctx.installation.config.policy.decide_every_s
    known = known_of(ctx, tx, [*jobs, *later])
    return _Asked(
        known, machine_times(ctx, tx, jobs, window_s), held, {job_id: ctx.work.jobs[job_id].after for job_id in later}
    )


def _found(ctx: Context, asked: _Asked, last: Parts, rules: GroupRules) -> GroupTurns:
    demands, market = asked.known.demands, asked.known.market
    if ctx.installation.config.policy.time_sharing != "none":  # owned machines have their own rounds
        owned = tuple(market.ids[row] for row in market.owned.nonzero()[0].tolist())
        demands = tuple(replace(each, reserved=owned) for each in demands)
    later = Later([each for each in demands if each.job.id in asked.later], asked.later)
    demands = tuple(each for each in demands if each.job.id not in asked.later)
    known = asked.known
    return group_turns(demands, asked.past, market, known.perf, known.running, asked.held, rules, last, later)


def _reason(group: Group, found: GroupTurns, given: Given, job_id: str) -> str:
    """Why a job has its turn or waits for it. The part after the semicolon changes often, and a change of it is not
    reported. So it may be read long after it was written, and describes the state at that time."""
    older = ", from an earlier plan because the solver exceeded its time limit" if found.late else ""
    return (
        f"by the joint plan of group {group.name} ({group.policy}{older}); {given.machines} of its {len(given.share)} "
        f"jobs had a machine then, and the planned share of this job was about {given.share[job_id]:.0%} of the time"
    )
