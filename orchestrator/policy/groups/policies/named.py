"""The policies by the names that users give them. `cheapest` is not among them, because it also needs a horizon
(total_cost.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from orchestrator.model import GroupPolicy
from orchestrator.policy.groups.collection import Collection
from orchestrator.policy.groups.policies.fairness import max_min_fairness
from orchestrator.policy.groups.policies.finishing import finish_time_fairness, makespan
from orchestrator.policy.groups.policies.in_order import first_in_first_out, shortest_first
from orchestrator.policy.groups.policies.throughput import total_throughput
from orchestrator.policy.groups.program import Program

PROGRAMS: Mapping[GroupPolicy, Callable[[Collection], Program]] = {
    "max-min-fairness": max_min_fairness,
    "finish-time-fairness": finish_time_fairness,
    "makespan": makespan,
    "max-throughput": total_throughput,
    "shortest-job-first": shortest_first,
    "first-in-first-out": first_in_first_out,
}
