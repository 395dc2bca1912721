"""Back-tests of policies for collections of jobs on a trace: all on the same cluster, and least cost with deadlines on
an elastic market at the same prices.

The cluster is simulated in rounds (arena.rounds), the market by events (arena.elastic). Each result is a frozen
dataclass, also for JSON.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from orchestrator.arena.cluster_policies import POLICIES
from orchestrator.arena.elastic import ElasticMarket
from orchestrator.arena.job_traces import JobTrace
from orchestrator.arena.rounds import ROUND_S
from orchestrator.errors import UsageError, did_you_mean
from orchestrator.policy.groups import Supply

LEAST_COST = "cheapest"
RESTART_S = 255.0
"""Wall seconds from the request of a machine to the first step there, as clouds take for one with a GPU."""
LATE_S = 1.0
"""Seconds. A job that is late by less counts as on time."""
_KIND = re.compile(r"([^=@,\s]+)=(0*[1-9]\d{0,6})(?:@(\d{1,6}(?:\.\d*)?|\.\d+))?")
Done = Callable[[int, int], None]
"""Called with the number of ended jobs and of all jobs."""


ALL = (*POLICIES, LEAST_COST)


@dataclass(frozen=True, slots=True)
class GroupPolicyResult:
    """One policy. Completion times are from a job's arrival to its end, in hours; `makespan_h` is until the last job
    ends. `late` counts jobs that missed their deadlines. `elastic`: simulated on the market, not on the cluster."""

    policy: str
    elastic: bool
    mean_h: float
    p95_h: float
    makespan_h: float
    cost_nano_usd: int
    late: int


@dataclass(frozen=True, slots=True)
class GroupBacktest:
    """Policies for a collection of jobs on one trace. `cluster`: the number of GPUs of each kind."""

    kind: ClassVar[str] = "backtest-jobs"

    name: str
    jobs: int
    with_deadline: int
    cluster: Mapping[str, int]
    usd_per_hour: Mapping[str, float]
    policies: tuple[GroupPolicyResult, ...]


def named(policies: str) -> tuple[str, ...]:
    """The policies in a comma-separated list, each once; all policies if the list is empty. Raises UsageError."""
    names = tuple(dict.fromkeys(each.strip() for each in policies.split(",") if each.strip())) or ALL
    for name in names:
        if name not in ALL:
            near = did_you_mean(name, ALL) or f"the policies are {', '.join(ALL)}"
            raise UsageError(f"{name!r} is not a policy for collections of jobs", hint=near)
    return names


def cluster_of(text: str) -> dict[str, tuple[int, float]]:
    """(GPUs, US dollars per hour of one) by kind, in the given order: `v100=8@0.74,p100=16@0.43`; 0 without a price.
    Raises UsageError."""
    found: dict[str, tuple[int, float]] = {}
    for each in text.split(","):
        read = _KIND.fullmatch(each.strip())
        if read is None:
            hint = "write it like v100=8@0.74,k80=24@0.135: the number of GPUs, and US dollars per hour of one"
            raise UsageError(f"{each.strip()!r} is not a valid part of a cluster", hint=hint)
        kind, count, price = read.groups()
        if kind in found:
            raise UsageError(f"the cluster lists {kind} twice", hint="name each kind of GPU once")
        found[kind] = int(count), float(price or 0)
    return found


def room_for(policies: Sequence[str], cluster: Mapping[str, tuple[int, float]]) -> list[int] | None:
    """The number of GPUs of each kind that a job can have under each of the policies; None: any number."""
    return None if set(policies) == {LEAST_COST} else [count for count, _ in cluster.values()]


def backtest(
    trace: JobTrace, cluster: Mapping[str, tuple[int, float]], policies: Sequence[str], done: Callable[[str], Done]
) -> GroupBacktest:
    """Play a trace, whose jobs each fit the cluster (see `room_for`), under each policy."""
    count, price = (np.array(each, dtype=float) for each in zip(*cluster.values(), strict=True))
    jobs = trace.jobs
    results = []
    for name in policies:
        if name == LEAST_COST:
            market = ElasticMarket(jobs, trace.deadline_s, price, round_s=ROUND_S, restart_s=RESTART_S)
            rented = market.run(done(name))
            ended_s, usd = rented.ended_s, rented.usd
        else:
            shared = POLICIES[name].cluster(jobs, Supply(count, price)).run(done(name))
            ended_s, usd = shared.ended_s, shared.usd
        took_h = (ended_s - jobs.at_s) / 3600
        results.append(
            GroupPolicyResult(
                name,
                name == LEAST_COST,
                float(took_h.mean()),
                float(np.quantile(took_h, 0.95)),
                float(ended_s.max() - jobs.at_s.min()) / 3600,
                round(usd * 1e9),
                int((ended_s > trace.deadline_s + LATE_S).sum()),
            )
        )
    return GroupBacktest(
        trace.name,
        len(jobs.at_s),
        int(np.isfinite(trace.deadline_s).sum()),
        {kind: gpus for kind, (gpus, _) in cluster.items()},
        {kind: usd for kind, (_, usd) in cluster.items()},
        tuple(results),
    )
