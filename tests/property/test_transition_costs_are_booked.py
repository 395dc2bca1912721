"""What a plan counts for bringing a checkpoint to a simulated cloud is what is booked when it was brought there."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.inputs.priors import tariff
from orchestrator.ledger import charge, total_nano_usd, usage_of
from orchestrator.market import Market
from orchestrator.policy import Demand
from orchestrator.policy.ranking.transition_costs import transition_costs
from providers.billing.charges import charges, rate_card
from providers.fake import default_catalog
from providers.local.market import LocalMarket
from providers.offer import CapacityType, Offer, location_of
from providers.price import PricePoint
from tests.property.test_money_laws import JOB, RUN

REAL = Offer("aws", "us-east-1", "use1-az1", "g4dn.xlarge", "T4", 1, 4, 16 * 10**9, CapacityType.SPOT)
SIMULATED = (*(offer for offer, _ in default_catalog()), *LocalMarket(1).offers)
END_MS = 10**7


@given(
    st.integers(0, 10**13),
    st.sampled_from((*SIMULATED, REAL)),
    st.sampled_from(SIMULATED),
    st.booleans(),
)
def test_the_transition_costs_of_a_move_are_what_the_ledger_books(size_bytes, source, target, beside_real_clouds):
    offers = (*SIMULATED, REAL) if beside_real_clouds else SIMULATED
    prices = [PricePoint(offer.id, 1, 0, 0, "test") for offer in offers]
    market = Market.as_of(1, offers=offers, prices=prices, tariff=tariff(offers))
    demand = Demand(JOB, 10, done_steps=1, checkpoint_bytes=size_bytes, checkpoint_at=location_of(source.id))
    row = market.row(target.id)
    assert row is not None
    counted = transition_costs(demand, market, None, None, 60.0).egress[market.listing.site[row]]

    run = replace(RUN, offer_id=target.id, billed_from_ms=0, billed_to_ms=END_MS)
    moved = replace(run, moved_from="/".join(location_of(source.id)), moved_bytes=size_bytes)
    card = rate_card(target.provider)
    right = charges(card, [(0, 1)], 0, END_MS, END_MS, ended=True, usage=usage_of(moved))
    stayed = charges(card, [(0, 1)], 0, END_MS, END_MS, ended=True, usage=usage_of(run))
    booked = total_nano_usd(charge(JOB, moved, right, [], END_MS)) - sum(stayed.values())
    assert booked == counted
    assert (booked > 0) == (size_bytes > 0 and source.region != target.region) or size_bytes < 100
