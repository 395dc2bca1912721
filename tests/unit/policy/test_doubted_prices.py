"""A price that is payable and not eligible: who is there compares with it, and nobody goes there."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.market import Market
from orchestrator.model import Placement
from orchestrator.policy import Demand, Running, decide
from tests.unit.policy.conftest import DecisionCase

DOUBT = "spot $26.00/h is 260.0% of on-demand $10.00/h"


def doubted(case: DecisionCase, *offer_ids: str) -> Market:
    return Market.as_of(
        case.now,
        offers=case.offers,
        prices=case.prices,
        startup_s={offer.provider: case.startup_s for offer in case.offers},
        doubts=dict.fromkeys(offer_ids, DOUBT),
    )


def decided(case: DecisionCase, market: Market, demand: Demand, running: Running | None = None) -> Placement:
    where = {} if running is None else {demand.job.id: running}
    return decide([demand], market, case.perf(), where).placements[0]


def test_a_job_leaves_a_spot_machine_that_now_costs_more_than_on_demand(case: DecisionCase, settled) -> None:
    spot, on_demand = case.offer("s", 26.0, spot=True), case.offer("o", 10.0)
    demand = Demand(case.job(), total_steps=10**6)
    placement = decided(case, doubted(case, spot), demand, settled(spot))
    assert (placement.action, placement.offer_id) == ("move", on_demand)
    assert placement.saving_nano_usd > 0


def test_no_job_is_placed_at_an_implausible_price_however_low_and_the_plan_says_why(case: DecisionCase) -> None:
    cheap, sound = case.offer("c", 0.1), case.offer("o", 10.0)
    placement = decided(case, doubted(case, cheap), Demand(case.job(), total_steps=1000))
    assert (placement.action, placement.offer_id) == ("place", sound)
    assert {each.offer_id: each.reason for each in placement.alternatives}[cheap] == DOUBT
    assert [(each.topic, each.count) for each in placement.rejected] == [("doubtful price", 1)]


def test_a_job_stays_at_an_implausible_price_while_that_is_its_best_offer(case: DecisionCase, settled) -> None:
    spot = case.offer("s", 1.0, spot=True)
    case.offer("o", 10.0)
    placement = decided(case, doubted(case, spot), Demand(case.job(), total_steps=1000), settled(spot))
    assert (placement.action, placement.offer_id) == ("stay", spot)
    assert placement.cost_nano_usd is not None


@settings(deadline=None)
@given(st.lists(st.booleans(), min_size=2, max_size=6), st.integers(0, 5))
def test_law_only_an_eligible_offer_or_the_one_it_has_is_ever_chosen(doubts, here):
    case = DecisionCase()
    ids = [case.offer(f"m{place}", 1.0 + place) for place in range(len(doubts))]
    market = doubted(case, *(name for name, doubt in zip(ids, doubts, strict=True) if doubt))
    running = replace(Running(ids[here % len(ids)], case.now - 86_400_000))
    for where in (None, running):
        placement = decided(case, market, Demand(case.job(), total_steps=10**5), where)
        allowed = {name for name, doubt in zip(ids, doubts, strict=True) if not doubt}
        assert placement.offer_id in allowed | {None if where is None else where.offer_id, None}
