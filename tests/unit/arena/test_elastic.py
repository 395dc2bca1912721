"""Jobs that rent what they need cost as little as is possible, and are on time. The elastic optimum and what Gavel pays
for the same jobs are in shared/jobs (elastic_cost.json, reference_results.csv)."""

from __future__ import annotations

import csv
import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.shared_cluster import TYPES, USD_PER_H
from orchestrator.arena.elastic import ElasticMarket
from orchestrator.arena.job_traces import JobTrace, read_jobs
from orchestrator.arena.rounds import Arrivals
from orchestrator.policy.groups import Supply, collection, solve
from orchestrator.policy.groups.policies.cost import least_cost
from tests.shared_data import shared

HARDLY_S = 1e-3
RESTART_S = 255.0
"""What a machine of a cloud takes to start, where none was measured (orchestrator.engine.inputs.latencies)."""


def with_deadlines() -> JobTrace:
    return read_jobs(shared("jobs/traces/slo120_s0.csv"), shared("jobs/throughputs_isolated.csv"), TYPES)


def test_without_overheads_a_group_with_deadlines_costs_what_the_optimum_does_and_all_are_on_time() -> None:
    trace = with_deadlines()
    optimum = json.loads(shared("jobs/elastic_cost.json").read_text())["slo120_s0"]["min_cost_with_slo"]
    found = ElasticMarket(trace.jobs, trace.deadline_s, USD_PER_H).run()
    assert optimum * (1 - 1e-6) <= found.usd <= 1.03 * optimum
    assert (found.ended_s <= trace.deadline_s + HARDLY_S).all()


def test_with_rounds_and_restarts_it_costs_a_tenth_more_at_most_and_a_third_less_than_with_gavel() -> None:
    trace = with_deadlines()
    optimum = json.loads(shared("jobs/elastic_cost.json").read_text())["slo120_s0"]["min_cost_with_slo"]
    with shared("jobs/reference_results.csv").open() as file:
        (gavel,) = (
            row
            for row in csv.DictReader(file)
            if (row["trace"], row["prices"], row["solver"]) == ("slo120_s0", "gcp_static", "ECOS")
            and row["policy"].endswith("_SLOs")
        )
    found = ElasticMarket(trace.jobs, trace.deadline_s, USD_PER_H, round_s=360.0, restart_s=RESTART_S).run()
    assert found.usd <= 1.10 * optimum
    assert found.usd < 0.69 * float(gavel["cost_usd"])
    assert (found.ended_s <= trace.deadline_s + HARDLY_S).all()
    assert int(gavel["slo_missed_true"]) == 6


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_job_that_could_be_on_time_is(data: st.DataObject) -> None:
    """On its fastest way, with one start. No job costs less than its plan without overheads."""
    ways = data.draw(st.integers(1, 4))
    number = st.floats(0.05, 20, allow_subnormal=False)
    rate = np.array([data.draw(st.lists(number, min_size=ways, max_size=ways)) for _ in range(3)])
    usd_per_h = np.array(data.draw(st.lists(number, min_size=ways, max_size=ways)))
    round_s, restart_s = data.draw(st.sampled_from([0.0, 60.0, 360.0])), data.draw(st.sampled_from([0.0, 30.0, 255.0]))
    steps = np.array(data.draw(st.lists(st.floats(1e3, 1e6), min_size=3, max_size=3)))
    at_s = np.sort(np.array(data.draw(st.lists(st.floats(0, 1e5), min_size=3, max_size=3))))
    slack = np.array(data.draw(st.lists(st.floats(1.0, 20.0), min_size=3, max_size=3)))
    jobs = Arrivals(at_s, rate, np.ones(3), steps)
    least_s = steps / rate.max(axis=1)
    on_time_s = at_s + restart_s + least_s * slack
    found = ElasticMarket(jobs, on_time_s, usd_per_h, round_s=round_s, restart_s=restart_s).run()
    assert (found.ended_s <= on_time_s * (1 + 1e-6) + HARDLY_S).all()
    assert found.launches <= 6
    plan = collection(
        rate, Supply(np.full(ways, np.inf), usd_per_h), steps=steps, deadline_s=(on_time_s - at_s) * (1 + 1e-6)
    )
    shares = solve(least_cost(plan)).shares
    least_usd = float((shares * plan.usd_per_h * plan.deadline_s[:, None]).sum()) / 3600
    assert found.usd >= least_usd * (1 - 1e-5)
