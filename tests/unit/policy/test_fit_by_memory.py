"""A profiled step that does not fit into a GPU's memory bars that GPU, and says by how much; a run that was there knows
better."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.model import Placement, Resources, Sharding
from orchestrator.perf import PerfBook, Work, program_of
from orchestrator.policy import Demand, decide
from tests.unit.policy.conftest import DecisionCase

# 40 GB of weights, gradients and optimizer state, 5 of activations, 1 of the runtime
BIG = Work(1e12, 0, 1e10, 1000, 10**10, 40 * 10**9, 5 * 10**9, 1.0)


SHARDED = replace(BIG, weight_bytes=10**10, gradient_bytes=10**10)


def planned(case: DecisionCase, **spec: object) -> Placement:
    job = case.job(rates={}, **spec)
    perf = PerfBook.as_of(case.now, case.observations, works={program_of(job.spec.train): BIG})
    return decide([Demand(job=job, total_steps=1000)], case.market(), perf, {}).placements[0]


def test_the_cheapest_gpu_that_is_too_small_is_passed_over(case: DecisionCase) -> None:
    small = case.offer("small", 0.5, gpu="V100", provider="aws")
    large = case.offer("large", 9.0, gpu="A100-80GB", provider="aws")
    placed = planned(case)
    assert placed.offer_id == large
    reasons = {each.offer_id: each.reason for each in placed.alternatives}
    assert reasons[small] == "V100 has 16 GB, 30 GB less than a step takes (profiled)"
    assert [(each.topic, each.count) for each in placed.rejected] == [("GPU memory", 1)]


def test_a_job_that_fits_nowhere_names_the_nearest_miss(case: DecisionCase) -> None:
    case.offer("small", 0.5, gpu="T4", provider="aws")
    middle = case.offer("middle", 4.0, gpu="A100-40GB", provider="aws")
    placed = planned(case)
    assert placed.action == "wait"
    assert f"nearest miss {middle}: A100-40GB has 40 GB, 6 GB less than a step takes (profiled)" in placed.reason


def test_a_wish_for_memory_that_is_met_is_not_blamed(case: DecisionCase) -> None:
    case.offer("middle", 4.0, gpu="A100-40GB", provider="aws")
    placed = planned(case, resources=Resources(gpu_memory_bytes=(30 * 10**9, None)))
    assert "6 GB less than a step takes" in placed.reason


def test_where_it_has_run_it_fits(case: DecisionCase) -> None:
    middle = case.offer("middle", 4.0, gpu="A100-40GB", provider="aws")
    case.job(rates={"A100-40GB": 1.0})
    assert planned(case).offer_id == middle


@pytest.mark.parametrize(
    ("sharding", "state_gb"),
    [("none", 40), ("zero1", 20 + 20 / 8), ("zero2", 10 + 30 / 8), ("zero3", 5), ("fsdp", 5)],
)
def test_sharded_state_is_divided_over_the_gpus_of_a_machine(sharding: Sharding, state_gb: float) -> None:
    rest = 6 * 10**9
    assert SHARDED.memory_bytes(8, sharding) == state_gb * 10**9 + rest
    assert SHARDED.memory_bytes(1, sharding) == 40 * 10**9 + rest
    assert SHARDED.shortfall_bytes(("V100", 8), sharding) == max(state_gb * 10**9 + rest - 16 * 10**9, 0)


def test_a_job_that_says_how_it_is_sharded_may_use_machines_of_small_gpus(case: DecisionCase) -> None:
    case.offer("one", 0.5, gpu="V100", provider="aws")
    eight = case.offer("eight", 4.0, gpu="V100", count=8, provider="aws")
    large = case.offer("large", 9.0, gpu="A100-80GB", provider="aws")
    assert planned(case).offer_id == large
    placed = planned(case, sharding="fsdp")
    assert placed.offer_id == eight
    assert [(each.topic, each.count) for each in placed.rejected] == [("GPU memory", 1)]


def test_a_profile_that_did_not_tell_weights_from_optimizer_divides_only_what_is_all_sharded() -> None:
    assert BIG.memory_bytes(8, "zero1") == BIG.memory_bytes(8, "zero2") == BIG.memory_bytes(1, "none")
    assert BIG.memory_bytes(8, "fsdp") == SHARDED.memory_bytes(8, "fsdp")
