"""Which other offers a launch may take as well: about as cheap and early, no less of a machine, and within quotas."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.market import Listing, Market, rooms, units_taken
from orchestrator.model import Alternative, Placement
from orchestrator.policy import Demand, decide
from orchestrator.policy.likewise import with_likewise
from orchestrator.policy.sharing import claimed
from providers.base import Covered, Quota
from providers.hardware import GIB
from providers.offer import Offer, OfferId
from tests.unit.policy.conftest import NOW, DecisionCase

HERE, THERE = "aws/us-east-1/use1-az1/g5.xlarge/spot", "aws/us-east-1/use1-az2/g5.xlarge/spot"
LARGER = HERE.replace("xlarge", "2xlarge")
TYPES = {
    "g5.xlarge": ("A10G", 1, 4, 16),
    "g5.2xlarge": ("A10G", 1, 8, 32),
    "g5.12xlarge": ("A10G", 4, 48, 192),
    "g6.xlarge": ("L4", 1, 4, 16),
    "g5.lean": ("A10G", 1, 8, 8),
    "g5.slow": ("A10G", 1, 2, 32),
    "m7i.large": (None, 0, 2, 8),
    "m7i.2xlarge": (None, 0, 8, 32),
}


def offered(offer_id: str) -> Offer:
    parts = OfferId.parse(offer_id)
    gpu, count, vcpu, gib = TYPES[parts.instance_type]
    kind = parts.capacity_type
    return Offer(parts.provider, parts.region, parts.zone, parts.instance_type, gpu, count, vcpu, gib * GIB, kind)


def offer(offer_id: str, price: int = 1000, cost: int | None = 5000, seconds: float | None = 100.0) -> Alternative:
    return Alternative(offer_id, price, 0.0, 1.0, 1.0, cost, cost, cost, seconds, True, "")


def placed(*others: Alternative, here: str = HERE, job: str = "job") -> Placement:
    return Placement(job, "place", here, "", 5000, 0, 0, (offer(here), *others), None, None)


def market_of(*placements: Placement, quotas: tuple[Quota, ...] = ()) -> Market:
    names = {each.offer_id for placement in placements for each in placement.alternatives}
    listing = Listing.of(offered(name) for name in names)
    return Market.as_of(NOW, offers=listing, prices=[], rooms=rooms(listing, {"aws": quotas}))


def also(*placements: Placement, quotas: tuple[Quota, ...] = (), nodes: int = 1) -> list[tuple[str, ...]]:
    case, names = DecisionCase(), [each.job_id for each in placements]
    made = {name: case.job(name) for name in names}
    resources = {name: replace(job.spec.resources, nodes=nodes) for name, job in made.items()}
    demands = {
        name: Demand(replace(job, spec=replace(job.spec, resources=resources[name])), 1000)
        for name, job in made.items()
    }
    return [each.also for each in with_likewise(placements, demands, (), market_of(*placements, quotas=quotas))]


def vcpus(limit: int, *types: str) -> tuple[Quota, ...]:
    return (Quota("vCPUs", "us-east-1", limit, 0, Covered("vcpus", instance_types=types)),)


def test_a_zone_as_good_is_taken_in_the_order_of_the_plan() -> None:
    third = THERE.replace("az2", "az3")
    assert also(placed(offer(third, 1040), offer(THERE, 1020))) == [(third, THERE)]
    assert also(placed()) == [()]


def test_a_larger_machine_with_the_same_gpus_is_as_good_in_any_zone() -> None:
    other = LARGER.replace("az1", "az2")
    assert also(placed(offer(LARGER, 1030), offer(THERE), offer(other, 1050))) == [(LARGER, THERE, other)]


@pytest.mark.parametrize(
    "other",
    [
        offer(THERE, price=1051),
        offer(THERE, cost=5251),
        offer(THERE, seconds=105.1),
        offer(LARGER, price=1051),
        offer(LARGER, seconds=105.1),
        replace(offer(THERE), feasible=False),
        offer(THERE.replace("spot", "on_demand")),
        offer(THERE.replace("us-east-1", "us-east-2")),
        offer(THERE.replace("aws", "gcp")),
        offer(THERE.replace("use1-az2", "")),
        *(offer(HERE.replace("g5.xlarge", name)) for name in ("g5.12xlarge", "g6.xlarge", "g5.lean", "g5.slow")),
    ],
)
def test_one_that_costs_more_comes_later_or_is_something_else_is_not(other: Alternative) -> None:
    assert also(placed(other)) == [()]


def test_without_gpus_nothing_says_that_another_type_is_as_fast() -> None:
    here = HERE.replace("g5.xlarge", "m7i.large")
    there = here.replace("az1", "az2")
    assert also(placed(offer(here.replace("large", "2xlarge")), offer(there), here=here)) == [(there,)]


def test_without_forecasts_the_price_decides() -> None:
    unknown = Placement(
        "job", "place", HERE, "", None, None, 0,
        (offer(HERE, 1000, None, None), offer(THERE, 1050, None, None)), None, None,
    )  # fmt: skip
    assert also(unknown) == [(THERE,)]


@pytest.mark.parametrize("action", ["move", "stay", "wait", "none"])
def test_only_a_job_that_needs_a_place_takes_any(action: str) -> None:
    assert also(replace(placed(offer(THERE)), action=action)) == [()]  # type: ignore[arg-type]


def test_a_job_that_may_miss_its_limits_takes_the_one_that_was_chosen() -> None:
    assert also(replace(placed(offer(THERE)), chance=0.9)) == [()]


def test_a_larger_machine_must_fit_the_quota_beside_those_of_all_other_jobs() -> None:
    """Other zones take nothing more of it."""
    one, two = (placed(offer(LARGER), offer(THERE), job=name) for name in "ab")
    assert also(one, two, quotas=vcpus(16)) == [(LARGER, THERE), (LARGER, THERE)]
    assert also(one, two, quotas=vcpus(15)) == [(LARGER, THERE), (THERE,)]
    assert also(one, two, quotas=vcpus(8)) == [(THERE,), (THERE,)]
    assert also(one, quotas=vcpus(16), nodes=2) == [(LARGER, THERE)]
    assert also(one, quotas=vcpus(15), nodes=2) == [(THERE,)]


def test_a_quota_of_another_type_counts_for_that_type() -> None:
    assert also(placed(offer(LARGER)), quotas=vcpus(7, "g5.2xlarge")) == [()]
    assert also(placed(offer(LARGER)), quotas=vcpus(8, "g5.2xlarge")) == [(LARGER,)]


def test_decisions_name_them() -> None:
    case = DecisionCase()
    chosen, larger = case.offer("small", 1.0), case.offer("large", 1.02, memory_gb=32)
    case.offer("dear", 2.0, memory_gb=32)
    (placement,) = decide([Demand(case.job(), 1000)], case.market(), case.perf(), {}).placements
    assert (placement.offer_id, placement.also) == (chosen, (larger,))


@given(
    st.lists(st.lists(st.sampled_from(["g5.xlarge", "g5.2xlarge"]), min_size=1, max_size=4), min_size=1, max_size=4),
    st.integers(0, 64),
)
def test_whatever_all_launches_take_they_fit_the_quota_together(kinds: list[list[str]], spare: int) -> None:
    """If the chosen machines do."""
    placements = [
        placed(
            *(offer(HERE.replace("g5.xlarge", kind).replace("az1", f"az{2 + n}")) for n, kind in enumerate(others)),
            job=f"job-{number}",
        )
        for number, others in enumerate(kinds)
    ]
    quotas = vcpus(4 * len(placements) + spare)
    market = market_of(*placements, quotas=quotas)
    demands = {each.job_id: Demand(DecisionCase().job(each.job_id), 1000) for each in placements}
    taken = 0
    for placement in with_likewise(placements, demands, (), market):
        claims = [claimed(placement, demands[placement.job_id], market)]
        rows = [market.row(each) for each in placement.also]
        claims += [units_taken(market.rooms, [(row, 1)]) for row in rows if row is not None]
        taken += max(claim.total() for claim in claims)
    assert taken <= quotas[0].limit
