"""Jobs decided together never plan on the same last machine of a quota; the job that would lose most keeps it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.market import Listing, Market, rooms
from orchestrator.model import CHEAPEST, FASTEST, GpuRequest, Objective, Placement, Resources
from orchestrator.policy import Demand, Underway, decide
from providers.base import Covered, Quota
from tests.unit.policy.conftest import HOUR, NOW, DecisionCase


def quota(limit: int, used: int = 0, name: str = "machines", **covers) -> Quota:
    return Quota(name, "eu-1", limit, used, Covered("machines", **covers))


def market_of(case: DecisionCase, *quotas: Quota) -> Market:
    listing = Listing.of(case.offers)
    return Market.as_of(
        case.now,
        offers=listing,
        prices=case.prices,
        startup_s={"local": case.startup_s},
        rooms=rooms(listing, {"local": quotas}),
    )


def demand(case: DecisionCase, name: str, *, steps: int = 1000, **spec) -> Demand:
    found = case.job(name, **spec)
    return Demand(replace(found, spec=replace(found.spec, train=replace(found.spec.train, steps=steps))), steps)


def decided(case: DecisionCase, demands: list[Demand], *quotas: Quota, **more) -> dict[str, Placement]:
    plan = decide(demands, market_of(case, *quotas), case.perf(), {}, complete=True, **more)
    return {each.job_id: each for each in plan.placements}


def test_the_last_machine_goes_to_the_job_that_saves_most_with_it(case: DecisionCase) -> None:
    cheap, expensive = case.offer("cheap", 1.0), case.offer("dear", 10.0)
    demands = [demand(case, "short", steps=1000), demand(case, "long", steps=100_000)]
    assert {each.offer_id for each in decided(case, demands).values()} == {cheap}, "without a quota"
    chosen = decided(case, demands, quota(1, instance_types=("cheap",)))
    assert chosen["long"].offer_id == cheap
    assert chosen["short"].offer_id == expensive
    why = {each.offer_id: each.reason for each in chosen["short"].alternatives}[cheap]
    assert why == (
        "your quota, not the market: machines in eu-1 allows 1 machines, 0 in use and 1 planned or on their way, and a "
        "machine is wanted"
    )


def test_a_job_that_would_have_to_wait_comes_before_one_that_can_go_elsewhere(case: DecisionCase) -> None:
    only = case.offer("only", 1.0, gpu="SIM-L")
    expensive = case.offer("dear", 50.0)
    rates = {"SIM-L": 1.0, "SIM-M": 1.0}
    large = Resources(gpus=(GpuRequest("SIM-L"),))
    demands = [
        demand(case, "a-saves-much", steps=1_000_000, rates=rates),
        demand(case, "b-large-only", rates=rates, resources=large),
    ]
    chosen = decided(case, demands, quota(1, instance_types=("only",)))
    assert chosen["b-large-only"].offer_id == only
    assert chosen["a-saves-much"].offer_id == expensive


def test_of_equal_jobs_the_first_submitted_keeps_it_and_the_others_wait(case: DecisionCase) -> None:
    only = case.offer("only", 1.0)
    demands = [demand(case, name) for name in ("a", "b", "c")]
    first = replace(demands[1], job=replace(demands[1].job, submitted_at_ms=NOW - HOUR))
    chosen = decided(case, [demands[0], first, demands[2]], quota(3, 2))
    assert {job_id: (each.action, each.offer_id) for job_id, each in chosen.items()} == {
        "a": ("wait", None),
        "b": ("place", only),
        "c": ("wait", None),
    }
    assert [each.topic for each in chosen["a"].rejected] == ["your quota, in use"]


def test_a_deadline_comes_before_a_saving(case: DecisionCase) -> None:
    """The slow offer costs the one only money; the other would be late there."""
    fast, slow = case.offer("fast", 10.0, gpu="SIM-L"), case.offer("slow", 9.0)
    rates = {"SIM-L": 10.0, "SIM-M": 1.0}
    saves = demand(case, "saves", steps=1_000_000, rates=rates)
    urgent = demand(case, "urgent", steps=20_000, rates=rates, deadline_s=2 * 3600)
    alone = decided(case, [saves, urgent])
    assert {each.offer_id for each in alone.values()} == {fast}
    chosen = decided(case, [saves, urgent], quota(1, instance_types=("fast",)))
    assert (chosen["urgent"].offer_id, chosen["saves"].offer_id) == (fast, slow)


def test_two_jobs_never_plan_on_the_same_last_machine_that_the_user_owns(case: DecisionCase) -> None:
    """Also as machines of a gang. The other one rents, and the plan names no quota."""
    own, expensive = case.offer("own", 0.0), case.offer("dear", 10.0)
    desk = replace(quota(1, name="machines", instance_types=("own",)), scope="desk1", owned=True)
    demands = [demand(case, "short"), demand(case, "long", steps=100_000)]
    chosen = decided(case, demands, desk)
    assert {job_id: each.offer_id for job_id, each in chosen.items()} == {"long": own, "short": expensive}
    why = {each.offer_id: each.reason for each in chosen["short"].alternatives}[own]
    assert why == "the machine on desk1 is planned for another job, or on its way"

    gang = demand(case, "gang", steps=200_000, resources=Resources(nodes=2))
    chosen = decided(case, [*demands, gang], replace(desk, limit=4, used=1))
    assert {job_id: each.offer_id for job_id, each in chosen.items()} == {"gang": own, "long": own, "short": expensive}
    why = {each.offer_id: each.reason for each in chosen["short"].alternatives}[own]
    assert why == "all 4 machines on desk1 are taken: 1 in use, 3 planned or on their way"


def test_a_move_that_has_begun_is_not_counted_twice(case: DecisionCase) -> None:
    """The market has its machine as in use already."""
    only = case.offer("only", 1.0)
    going, other = demand(case, "going"), demand(case, "other")
    moves = {"going": Underway(only, "recovery")}
    chosen = decided(case, [going, other], quota(2, 1), underway=moves)
    assert (chosen["going"].offer_id, chosen["other"].offer_id) == (only, only)


MARKET = st.lists(st.tuples(st.integers(1, 40), st.sampled_from(["SIM-M", "SIM-L"])), min_size=1, max_size=5)
COVERED = st.lists(st.sampled_from([f"m{number}" for number in range(5)]), min_size=1, max_size=3, unique=True)
QUOTAS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3), COVERED, st.booleans()), max_size=3)
JOBS = st.lists(
    st.tuples(st.integers(1, 3), st.integers(1, 50), st.sampled_from([CHEAPEST, FASTEST])), min_size=1, max_size=7
)


@given(MARKET, QUOTAS, JOBS, st.randoms())
def test_law_no_quota_is_exceeded_nobody_waits_beside_room_and_order_does_not_matter(
    offers: list[tuple[int, str]],
    supply: list[tuple[int, int, list[str], bool]],
    jobs: list[tuple[int, int, Objective]],
    chance: random.Random,
) -> None:
    case, rates = DecisionCase(), {"SIM-M": 1.0, "SIM-L": 2.5}
    for number, (dollars, gpu) in enumerate(offers):
        case.offer(f"m{number}", dollars / 4, gpu=gpu)
    limits = [(limit, used, types) for limit, used, types, _ in supply]
    quotas = [
        replace(quota(limit, used, f"q{n}", instance_types=tuple(types)), owned=owned)
        for n, (limit, used, types, owned) in enumerate(supply)
    ]
    demands = [
        demand(case, f"job-{n}", steps=steps * 1000, rates=rates, objective=aim, resources=Resources(nodes=nodes))
        for n, (nodes, steps, aim) in enumerate(jobs)
    ]
    nodes_of = {each.job.id: each.nodes for each in demands}

    chosen = decided(case, demands, *quotas)
    left = [max(limit - used, 0) - wanted(chosen, nodes_of, types) for limit, used, types in limits]
    assert all(units >= 0 for units in left)
    for job_id in (job_id for job_id, placement in chosen.items() if placement.offer_id is None):
        for number in range(len(offers)):
            covering = [units for units, (_, _, types) in zip(left, limits, strict=True) if f"m{number}" in types]
            assert min(covering) < nodes_of[job_id], f"{job_id} waits, and there is room on m{number}"
    if len({owned for *_, owned in supply}) == 1:
        topics = {each.topic for placement in chosen.values() for each in placement.rejected}
        assert not any(("quota" in each) == supply[0][3] for each in topics), "a machine one owns is no quota"

    other_order = list(demands)
    chance.shuffle(other_order)
    assert decided(case, other_order, *quotas) == chosen
    alone = {each.job.id: decided(case, [each], *quotas)[each.job.id] for each in demands}
    if all(wanted(alone, nodes_of, types) <= max(limit - used, 0) for limit, used, types in limits):
        without = [{name: replace(each, also=()) for name, each in found.items()} for found in (chosen, alone)]
        assert without[0] == without[1], "nothing binds: each as if it were alone"  # but a larger machine may


def wanted(placements: Mapping[str, Placement], nodes_of: Mapping[str, int], types: list[str]) -> int:
    """How many machines of these types are taken together."""
    taken = [(job_id, each.offer_id.split("/")[3]) for job_id, each in placements.items() if each.offer_id is not None]
    return sum(nodes_of[job_id] for job_id, instance_type in taken if instance_type in types)


def test_a_job_of_a_higher_priority_keeps_it_whatever_others_lose(case: DecisionCase) -> None:
    """One would have to wait, and the other saves more: a priority comes before both."""
    only, expensive = case.offer("only", 1.0, gpu="SIM-L"), case.offer("dear", 50.0)
    rates = {"SIM-L": 1.0, "SIM-M": 1.0}
    urgent = demand(case, "urgent", rates=rates)
    large = demand(case, "large-only", rates=rates, resources=Resources(gpus=(GpuRequest("SIM-L"),)))
    saves = demand(case, "saves-much", steps=1_000_000, rates=rates)
    limit = quota(1, instance_types=("only",))
    chosen = decided(case, [urgent, large, saves], limit)
    assert chosen["large-only"].offer_id == only
    chosen = decided(case, [replace(urgent, priority=1), large, saves], limit)
    assert {job_id: each.offer_id for job_id, each in chosen.items()} == {
        "urgent": only,
        "large-only": None,
        "saves-much": expensive,
    }
