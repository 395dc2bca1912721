"""Spot risk: jobs that a joint plan puts on offers that the job's own decision would reject because of the deadline.
Pure.

A joint plan counts no interruptions. The decision about a single job does: it uses a spot machine only while there is
time to lose it and still finish on demand (ranking.limits). Where the control plane lets each job decide, such a job is
placed on another offer than in the joint plan, and can cost more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite

import numpy as np

from orchestrator.market import Market
from orchestrator.perf import PerfBook
from orchestrator.policy.decide import considered
from orchestrator.policy.demand import Demand, MoveLimits, Running
from orchestrator.policy.explanation.nearest import hopeless
from orchestrator.policy.groups.course import Course
from orchestrator.policy.groups.planning import NOWHERE
from orchestrator.policy.ranking.eligible import Filters, RejectionReason
from orchestrator.policy.ranking.order import rank


@dataclass(frozen=True, slots=True)
class Refused:
    """A job whose own decision rejects an offer of its joint plan; on the offer of its own decision it would cost
    `alone_usd`."""

    job_id: str
    alone_usd: float


def refused_alone(
    demands: Sequence[Demand],
    market: Market,
    perf: PerfBook,
    unfolded: Course,
    running: Mapping[str, Running] = NOWHERE,
    *,
    limits: MoveLimits,
) -> tuple[Refused, ...]:
    """The jobs with a deadline that are planned on spot machines which they would not use alone when they can start,
    though these are fast enough if they are not lost."""
    of_job = {each.job_id: each for each in unfolded.jobs}
    filters = Filters(market, limits)
    found = []
    for demand in demands:
        planned, due_ms = of_job[demand.job.id], demand.job.deadline_at_ms
        spot = [each.offer_id for each in planned.parts if each.offer_id.endswith("/spot")]
        if due_ms is None or not spot or not isfinite(planned.ready_s):
            continue
        left = replace(demand.job.spec, deadline_s=None, deadline_at_ms=due_ms - round(1000 * planned.ready_s))
        then = replace(demand, job=replace(demand.job, spec=left))
        filtering = filters.of(demand.nodes)
        filtered, forecast = considered(then, filtering, filtering.market, perf, running.get(demand.job.id), None)
        ranking = rank(then, forecast, filtered)
        rows = np.array([row for each in spot if (row := market.row(each)) is not None], dtype=np.int64)
        refused = rows[ranking.rejection_reasons[rows] == RejectionReason.DEADLINE]
        if ranking.order.size and not hopeless(then, forecast, refused).all():
            found.append(Refused(demand.job.id, ranking.cost(int(ranking.order[0])) / 1e9))
    return tuple(found)
