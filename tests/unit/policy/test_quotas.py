"""What an account may not rent is not chosen, however cheap: the plan says that it is the quota, with the number and
the remedy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.market import Listing, Market, rooms
from orchestrator.model import Placement, Resources
from orchestrator.policy import MAY_PASS, Demand, Running, decide
from providers.base import Covered, Quota
from tests.unit.policy.conftest import DecisionCase

REMEDY = "ask for more: here"


def quota(limit: int, used: int = 0, **covers) -> Quota:
    return Quota("vCPUs", "eu-1", limit, used, Covered("vcpus", **covers), REMEDY)


def decided(
    case: DecisionCase, *quotas: Quota, nodes: int = 1, running: Running | None = None, provider: str = "local"
) -> Placement:
    listing = Listing.of(case.offers)
    market = Market.as_of(
        case.now,
        offers=listing,
        prices=case.prices,
        startup_s={provider: case.startup_s},
        rooms=rooms(listing, {provider: quotas}),
    )
    demand = Demand(case.job(resources=Resources(nodes=nodes)), total_steps=1000)
    where = {} if running is None else {demand.job.id: running}
    return decide([demand], market, case.perf(), where, complete=True).placements[0]


def test_an_offer_beyond_the_quota_is_not_ranked_first_and_the_plan_says_whose_fault_it_is(case: DecisionCase) -> None:
    cheap, expensive = case.offer("cheap", 1.0), case.offer("dear", 10.0)
    placement = decided(case, quota(8, 6, instance_types=("cheap",)))
    assert (placement.action, placement.offer_id) == ("place", expensive)
    why = {each.offer_id: each.reason for each in placement.alternatives}[cheap]
    assert why == (
        f"your quota, not the market: vCPUs in eu-1 allows 8 vCPUs, 6 in use, and a machine of 4 is wanted; {REMEDY}"
    )
    assert [(each.topic, each.count) for each in placement.rejected] == [("your quota, in use", 1)]


def test_a_quota_that_leaves_room_changes_nothing(case: DecisionCase) -> None:
    cheap = case.offer("cheap", 1.0)
    case.offer("dear", 10.0)
    assert decided(case, quota(8, 4)).offer_id == cheap


@pytest.mark.parametrize(
    ("limit", "used", "topic"), [(0, 0, "your quota"), (3, 0, "your quota"), (8, 8, "your quota, in use")]
)
def test_a_quota_that_could_never_do_is_distinguished_from_one_in_use(
    case: DecisionCase, limit: int, used: int, topic: str
) -> None:
    """Only the latter may pass."""
    case.offer("only", 1.0)
    placement = decided(case, quota(limit, used))
    assert placement.offer_id is None
    assert [each.topic for each in placement.rejected] == [topic]
    assert (topic in MAY_PASS) == (used > 0)
    assert f"allows {limit} vCPUs" in placement.reason + placement.alternatives[0].reason


def test_a_job_on_several_machines_needs_room_for_all(case: DecisionCase) -> None:
    case.offer("cheap", 1.0)
    expensive = case.offer("dear", 10.0)
    narrow = quota(8, 0, instance_types=("cheap",))
    assert decided(case, narrow, nodes=2).offer_id != expensive
    placement = decided(case, narrow, nodes=3)
    assert placement.offer_id == expensive
    assert any("3 machines of 4 are wanted" in each.reason for each in placement.alternatives)


def test_a_running_job_stays_where_its_own_machine_has_used_up_the_quota(case: DecisionCase, settled) -> None:
    here = case.offer("here", 1.0)
    case.offer("dear", 10.0)
    placement = decided(case, quota(4, 4, instance_types=("here",)), running=settled(here))
    assert (placement.action, placement.offer_id) == ("stay", here)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=4), st.integers(1, 4))
def test_law_whatever_is_chosen_fits_every_quota_that_covers_it(limits: list[tuple[int, int]], nodes: int) -> None:
    case = DecisionCase()
    for number in range(4):
        case.offer(f"m{number}", 1.0 + number, spot=number % 2 == 0)
    quotas = [quota(limit, used, instance_types=(f"m{number}", "m0")) for number, (limit, used) in enumerate(limits)]
    chosen = decided(case, *quotas, nodes=nodes).offer_id
    for each in quotas if chosen is not None else ():
        if chosen.split("/")[3] in each.covers.instance_types:
            assert each.limit - each.used >= 4 * nodes


def test_quotas_cover_what_they_name(case: DecisionCase) -> None:
    case.offer("g5.x", 1.0, spot=True)
    case.offer("g5.x", 1.0)
    case.offer("p4.x", 1.0, spot=True, region="us-1")
    listing = Listing.of(case.offers)

    def covered(**covers) -> set[str]:
        return {listing.ids[row] for row in rooms(listing, {"local": [quota(8, **covers)]})}

    assert len(covered()) == 3
    assert covered(spot=False) == {"local/eu-1/eu-1a/g5.x/on_demand"}
    assert covered(instance_types=("p[0-9]*",)) == covered(regions=("us-*",)) == {"local/us-1/us-1a/p4.x/spot"}
    assert not rooms(listing, {"local": [replace(quota(8), covers=None)], "gcp": [quota(8)]})
    in_gpus = Quota("GPUs", "eu-1", 3, 1, Covered("gpus"))
    assert {each.left for (each,) in rooms(listing, {"local": [in_gpus]}).values()} == {2}


def desks(limit: int, used: int = 0, remedy: str = "") -> Quota:
    return Quota("machines", "desk1, desk2", limit, used, Covered("machines"), remedy, owned=True)


@pytest.mark.parametrize(
    ("limit", "used", "nodes", "topic", "why"),
    [
        (2, 2, 1, "your machines, in use", "all 2 machines on desk1, desk2 are in use"),
        (1, 1, 1, "your machines, in use", "the machine on desk1, desk2 is in use"),
        (2, 1, 2, "your machines, in use", "1 of 2 machines on desk1, desk2 is free, and 2 are wanted"),
        (4, 2, 3, "your machines, in use", "2 of 4 machines on desk1, desk2 are free, and 3 are wanted"),
        (2, 0, 3, "number of machines", "there are 2 machines on desk1, desk2, and 3 are wanted"),
        (1, 1, 2, "number of machines", "there is 1 machine on desk1, desk2, and 2 are wanted"),
    ],
)
def test_machines_that_the_user_owns_are_no_quota(
    case: DecisionCase, limit: int, used: int, nodes: int, topic: str, why: str
) -> None:
    case.offer("only", 1.0)
    placement = decided(case, desks(limit, used), nodes=nodes)
    assert placement.offer_id is None
    assert [each.topic for each in placement.rejected] == [topic]
    assert why in {each.reason for each in placement.alternatives}
    assert (topic in MAY_PASS) == (limit >= nodes)
    assert "quota" not in placement.reason


def test_why_machines_are_in_use_is_said_with_what_to_do(case: DecisionCase) -> None:
    case.offer("only", 1.0)
    silent = "no answer from desk2; run: tradewind doctor"
    placement = decided(case, desks(2, 2, silent))
    assert placement.alternatives[0].reason == f"all 2 machines on desk1, desk2 are in use; {silent}"


def test_quotas_cover_zones_and_no_other_cloud_with_equal_machines(case: DecisionCase) -> None:
    case.offer("desk", 1.0)
    (desk,) = case.offers
    elsewhere = [replace(desk, zone="a"), replace(desk, zone="b"), replace(desk, zone="a", provider="other")]
    listing = Listing.of(elsewhere)
    in_a = replace(desks(2), covers=Covered("machines", zones=("a",)))
    covered = {listing.ids[row] for row in rooms(listing, {"local": [in_a]})}
    assert covered == {"local/eu-1/a/desk/on_demand"}
