"""Which other offers a launch may take as well: about as cheap and early, no less of a machine, and within quotas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.market import AvailabilityPoint, Listing, Market, rooms, units_taken
from orchestrator.model import CHEAPEST, CheckpointSpec, Job, JobSpec, Placement, Resources, TrainSpec
from orchestrator.perf import Observation, PerfBook
from orchestrator.policy import Demand, Running, decide
from orchestrator.policy.equivalent_offers import MOST, within_quotas
from orchestrator.policy.sharing import claimed
from providers.base import Covered, Quota
from providers.hardware import GIB
from providers.money import usd
from providers.offer import Offer, OfferId
from providers.price import PricePoint
from tests.unit.policy.conftest import HOUR, NOW

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
Priced = tuple[str, float]


def offered(offer_id: str) -> Offer:
    parts = OfferId.parse(offer_id)
    gpu, count, vcpu, gib = TYPES[parts.instance_type]
    kind = parts.capacity_type
    return Offer(parts.provider, parts.region, parts.zone, parts.instance_type, gpu, count, vcpu, gib * GIB, kind)


def market_of(priced: Sequence[Priced], quotas: Sequence[Quota] = (), refused: Sequence[str] = ()) -> Market:
    listing = Listing.of(offered(name) for name, _ in priced)
    prices = [PricePoint(name, usd(dollars), NOW - 60_000, NOW - 60_000, "test") for name, dollars in priced]
    seen = [AvailabilityPoint(name, NOW - 1000, "refused") for name in refused]
    return Market.as_of(NOW, offers=listing, prices=prices, availability=seen, rooms=rooms(listing, {"aws": quotas}))


def demand(name: str = "job", *, nodes: int = 1, **fields: object) -> Demand:
    train = TrainSpec("m:f", None, {}, "/w", {}, (), 100_000, None)
    options = {"objective": CHEAPEST, "checkpoint": CheckpointSpec(max_overhead=0.0), **fields}
    spec = JobSpec(name, train, resources=Resources(nodes=nodes), **options)  # type: ignore[arg-type]
    return Demand(Job(name, spec, "me", NOW, "queued"), 100_000)


def decided(
    *priced: Priced,
    jobs: Sequence[Demand] = (),
    quotas: Sequence[Quota] = (),
    refused: Sequence[str] = (),
    running: dict[str, Running] | None = None,
    measured: bool = True,
) -> list[Placement]:
    jobs = jobs or [demand()]
    seen = [Observation(each.job.id, "A10G", 1, 1.0, 2209, NOW) for each in jobs if measured]
    book = PerfBook.as_of(NOW, seen)
    return list(decide(jobs, market_of(priced, quotas, refused), book, running or {}).placements)


def also(*others: Priced, **more: object) -> tuple[str, ...]:
    (placement,) = decided((HERE, 1.0), *others, **more)  # type: ignore[arg-type]
    assert placement.offer_id == HERE, placement.reason
    return placement.also


def vcpus(limit: int, *types: str) -> tuple[Quota, ...]:
    return (Quota("vCPUs", "us-east-1", limit, 0, Covered("vcpus", instance_types=types)),)


def test_a_zone_as_good_is_taken_in_the_order_of_the_plan() -> None:
    third = THERE.replace("az2", "az3")
    assert also((third, 1.04), (THERE, 1.02)) == (THERE, third)
    assert also() == ()


def test_a_larger_machine_with_the_same_gpus_is_as_good_in_any_zone() -> None:
    other = LARGER.replace("az1", "az2")
    assert also((LARGER, 1.03), (THERE, 1.01), (other, 1.04)) == (THERE, LARGER, other)


@pytest.mark.parametrize(
    "other",
    [
        (THERE, 1.06),
        (LARGER, 1.06),
        (THERE.replace("spot", "on_demand"), 1.01),
        (THERE.replace("us-east-1", "us-east-2"), 1.01),
        (THERE.replace("aws", "gcp"), 1.01),
        (THERE.replace("use1-az2", ""), 1.01),
        *((HERE.replace("g5.xlarge", name), 1.01) for name in ("g5.12xlarge", "g6.xlarge", "g5.lean", "g5.slow")),
    ],
)
def test_one_that_costs_more_or_is_something_else_is_not(other: Priced) -> None:
    (placement,) = decided((HERE, 1.0), other)
    assert placement.also == ()


def test_one_that_may_not_be_used_now_is_not() -> None:
    assert also((THERE, 1.01), (LARGER, 1.01), refused=[THERE]) == (LARGER,)


def test_without_gpus_nothing_says_that_another_type_is_as_fast() -> None:
    here = HERE.replace("g5.xlarge", "m7i.large")
    there = here.replace("az1", "az2")
    (placement,) = decided((here, 0.10), (here.replace("large", "2xlarge"), 0.101), (there, 0.102))
    assert (placement.offer_id, placement.also) == (here, (there,))


def test_without_forecasts_the_price_decides() -> None:
    (placement,) = decided((HERE, 1.0), (THERE, 1.04), (LARGER, 1.06), measured=False)
    assert placement.cost_nano_usd is None
    assert placement.also == (THERE,)


def test_only_a_job_that_needs_a_place_takes_any() -> None:
    expensive = HERE.replace("az1", "az4")
    where = {"job": Running(expensive, NOW - 24 * HOUR)}
    (moves,) = decided((HERE, 1.0), (THERE, 1.01), (expensive, 9.0), running=where)
    assert (moves.action, moves.also) == ("move", ())
    (placed,) = decided(
        (HERE, 1.0), (THERE, 1.01), (expensive, 9.0), running={"job": replace(where["job"], leaving=True)}
    )
    assert (placed.action, placed.also) == ("place", (THERE,))


def test_a_job_that_may_miss_its_limits_takes_the_one_that_was_chosen() -> None:
    late, sure = demand(deadline_s=30 * 3600.0), demand(deadline_s=90 * 3600.0)
    (placement,) = decided((HERE, 1.0), (THERE, 1.01), jobs=[late])
    assert placement.chance is not None
    assert placement.also == ()
    assert decided((HERE, 1.0), (THERE, 1.01), jobs=[sure])[0].also == (THERE,)


def test_all_that_do_as_well_are_found_however_short_the_list_that_is_shown() -> None:
    """Whatever other regions offer in between."""
    zones = [(HERE.replace("az1", f"az{number}"), 1.0 + number / 1000) for number in range(2, 7)]
    larger = [(name.replace("xlarge", "2xlarge"), price + 0.001) for name, price in [(HERE, 1.0), *zones]]
    elsewhere = [(name.replace("us-east-1", f"eu-{n}"), price) for n in range(3) for name, price in [*zones, *larger]]
    found = also(*zones, *larger, *elsewhere)
    assert set(found) == {name for name, _ in [*zones, *larger]}
    assert len(found) < MOST


def test_a_larger_machine_must_fit_the_quota_beside_those_of_all_other_jobs() -> None:
    """Other zones take nothing more of it."""
    priced = ((HERE, 1.0), (LARGER, 1.01), (THERE, 1.02))

    def found(limit: int, *jobs: Demand) -> list[tuple[str, ...]]:
        return [each.also for each in decided(*priced, jobs=jobs, quotas=vcpus(limit))]

    one, two = demand("a"), demand("b")
    assert found(16, one, two) == [(LARGER, THERE), (LARGER, THERE)]
    assert found(15, one, two) == [(LARGER, THERE), (THERE,)]
    assert found(8, one, two) == [(THERE,), (THERE,)]
    assert found(16, demand("a", nodes=2)) == [(LARGER, THERE)]
    assert found(15, demand("a", nodes=2)) == [(THERE,)]


def test_a_quota_of_another_type_counts_for_that_type() -> None:
    assert also((LARGER, 1.01), quotas=vcpus(7, "g5.2xlarge")) == ()
    assert also((LARGER, 1.01), quotas=vcpus(8, "g5.2xlarge")) == (LARGER,)


@given(
    st.lists(st.lists(st.sampled_from(["g5.xlarge", "g5.2xlarge"]), min_size=1, max_size=4), min_size=1, max_size=4),
    st.integers(0, 64),
)
def test_whatever_all_launches_take_they_fit_the_quota_together(kinds: list[list[str]], spare: int) -> None:
    """If the chosen machines do."""
    names = {(number, n): HERE.replace("g5.xlarge", kind).replace("az1", f"az{2 + n}")
             for number, others in enumerate(kinds) for n, kind in enumerate(others)}  # fmt: skip
    placements = [
        Placement(
            f"job-{number}", "place", HERE, "", 1, 0, 0, (), None, None,
            also=tuple(names[number, n] for n in range(len(others))),
        )
        for number, others in enumerate(kinds)
    ]  # fmt: skip
    quotas = vcpus(4 * len(placements) + spare)
    market = market_of([(name, 1.0) for name in {HERE, *names.values()}], quotas)
    demands = {each.job_id: demand(each.job_id) for each in placements}
    taken = 0
    for placement in within_quotas(placements, demands, (), market):
        claims = [claimed(placement, demands[placement.job_id], market)]
        rows = [market.row(each) for each in placement.also]
        claims += [units_taken(market.rooms, [(row, 1)]) for row in rows if row is not None]
        taken += max(claim.total() for claim in claims)
    assert taken <= quotas[0].limit
