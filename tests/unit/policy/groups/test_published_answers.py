"""The policies find the optima of Gavel's own programs, and better ones where Gavel stops early.

Instances: shared/jobs/lp_instances (stanford-futuredata/gavel, MIT); the exact column was found with an independent
solver (finish-time fairness: by a bisection that ends at a width of 1e-6).
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from orchestrator.policy.groups import Collection, Program, Supply, collection, solve
from orchestrator.policy.groups.policies.fairness import max_min_fairness
from orchestrator.policy.groups.policies.finishing import finish_time_fairness, makespan
from orchestrator.policy.groups.policies.throughput import throughput_per_dollar, throughput_per_dollar_on_time
from tests.shared_data import shared

POLICIES = {
    "max_min_fairness_perf": max_min_fairness,
    "min_total_duration_perf": makespan,
    "finish_time_fairness_perf": finish_time_fairness,
    "max_sum_throughput_normalized_by_cost_perf": throughput_per_dollar,
    "max_sum_throughput_normalized_by_cost_perf_SLOs": throughput_per_dollar_on_time,
}


def instance(path: Path) -> Collection:
    data = np.load(path)
    supply = Supply(data["cluster"].astype(float), data["price"])
    return collection(
        data["T"],
        supply,
        gpus=data["sf"].astype(float),
        steps=data["steps"],
        age_s=data["age"],
        alone_s=data["cum_iso"],
        deadline_s=np.where(np.isnan(data["slo"]), np.inf, data["slo"]),
    )


@pytest.mark.parametrize("jobs", [32, 128, 512])
@pytest.mark.parametrize("name", POLICIES)
def test_the_optimum_is_the_exact_one(name: str, jobs: int) -> None:
    with shared("jobs/lp_reference.csv").open() as file:
        known = {row["instance"]: row for row in csv.DictReader(file)}
    row = known[f"{name}_n{jobs}_t0"]
    program: Program = POLICIES[name](instance(shared(f"jobs/lp_instances/{row['instance']}.npz")))
    (certificate,) = solve(program).certificates
    assert certificate.value == pytest.approx(float(row["exact_objective"]), rel=1e-6)
    assert certificate.gap < 1e-8
    if name == "min_total_duration_perf":
        assert certificate.value < float(row["gavel_ecos_objective"]) * 0.995
