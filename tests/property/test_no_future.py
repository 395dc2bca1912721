"""As-of never shows the future: whatever is observed later changes neither the market, nor the book, nor the plan."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.market import AvailabilityPoint, Market
from orchestrator.model import Job, JobSpec, Objective, TrainSpec
from orchestrator.perf import Observation, PerfBook
from orchestrator.policy import Demand, Running, decide
from providers.offer import CapacityType, Offer
from providers.price import PricePoint

NOW = 1_700_000_000_000
DAY = 86_400_000
OFFERS = [
    Offer("local", region, "z", gpu, gpu, 1, 4, 10**10, capacity, True)
    for region in ("eu-1", "us-1")
    for gpu in ("SIM-M", "SIM-L")
    for capacity in CapacityType
]
IDS = st.sampled_from([offer.id for offer in OFFERS])
KINDS = st.sampled_from(["launched", "refused", "notice", "lost", "released"])
PAST = st.integers(NOW - DAY, NOW)
FUTURE = st.integers(NOW + 1, NOW + DAY)


def price_points(observed):
    """Effective before, at or after `observed`: announced, immediate, or learned late."""
    effective = st.integers(NOW - DAY, NOW + DAY)
    return st.lists(st.builds(PricePoint, IDS, st.integers(1, 10**10), effective, observed, st.just("t")), max_size=12)


def capacity_history(at):
    return st.lists(st.builds(AvailabilityPoint, IDS, at, KINDS), max_size=12)


def observations(at):
    rates = st.floats(0.01, 100)
    gpus = st.sampled_from(["SIM-M", "SIM-L"])
    steps = st.integers(1, 1000)
    return st.lists(st.builds(Observation, st.just("job_1"), gpus, st.just(1), rates, steps, at), max_size=6)


def polls(at):
    return st.lists(st.tuples(st.just(("local", "", None)), at), max_size=3)


jobs = st.builds(
    lambda weight, deadline_s, budget: Job(
        "job_1",
        JobSpec(
            "j",
            TrainSpec("m:f", None, {}, "/w", {}, (), 1, None),
            objective=Objective(weight, 1 - weight),
            deadline_s=deadline_s,
            budget_nano_usd=budget,
        ),
        "ada",
        NOW - DAY,
        "running",
    ),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.none() | st.floats(3600, 10**6),
    st.none() | st.integers(1, 10**12),
)


@given(
    jobs,
    price_points(PAST),
    capacity_history(PAST),
    observations(PAST),
    polls(PAST),
    price_points(FUTURE),
    capacity_history(FUTURE),
    observations(FUTURE),
    polls(FUTURE),
    st.none() | st.builds(Running, IDS, PAST),
    st.randoms(use_true_random=False),
)
def test_poisoning_the_future_changes_nothing(
    job, prices, seen, rates, polled, prices_later, seen_later, rates_later, polled_later, running, order
):
    def plan(*, poisoned):
        inputs = [[*prices], [*seen], [*rates], [*polled], [*OFFERS]]
        if poisoned:
            for known, later in zip(inputs, (prices_later, seen_later, rates_later, polled_later), strict=False):
                known += later
        for known in inputs:
            order.shuffle(known)
        market = Market.as_of(NOW, offers=inputs[4], prices=inputs[0], availability=inputs[1], polls=inputs[3])
        book = PerfBook.as_of(NOW, inputs[2])
        demand = Demand(job, 10_000, 100, 10**9, 10**8)
        return decide([demand], market, book, {} if running is None else {"job_1": running}, complete=True)

    clean, poisoned = plan(poisoned=False), plan(poisoned=True)
    assert poisoned.market_digest == clean.market_digest
    assert repr(poisoned) == repr(clean)

    (placement,) = clean.placements
    assert sorted(a.offer_id for a in placement.alternatives) == sorted(offer.id for offer in OFFERS)
    unexplained = [a.offer_id for a in placement.alternatives if not a.reason]
    chosen = [a.offer_id for a in placement.alternatives if a.offer_id == placement.offer_id]
    if placement.action in ("place", "move"):
        assert unexplained == chosen
        assert placement.alternatives[0].feasible
    assert all("\n" not in a.reason for a in placement.alternatives)


@given(price_points(PAST | FUTURE), st.lists(st.integers(NOW - DAY, NOW + DAY), min_size=2, max_size=5))
def test_a_later_market_knows_at_least_as_much(prices, instants):
    ages = []
    for at in sorted(instants):
        market = Market.as_of(at, offers=OFFERS, prices=prices)
        ages.append(market.priced.sum())
        assert all(at >= confirmed for confirmed in market.confirmed_at())
    assert ages == sorted(ages)


@given(jobs, price_points(PAST), observations(PAST))
def test_a_choice_never_surely_breaks_its_budget(job, prices, rates):
    market = Market.as_of(NOW, offers=OFFERS, prices=prices)
    spent = 10**9
    demand = Demand(replace(job, state="queued"), 10_000, 0, spent)
    (placement,) = decide([demand], market, PerfBook.as_of(NOW, rates), {}).placements
    budget = job.spec.budget_nano_usd
    if budget is None or placement.action != "place":
        return
    chosen, *others = placement.alternatives
    if chosen.cost_low_nano_usd is None:  # nothing is known of its speed, and nothing is promised
        assert all(each.cost_low_nano_usd is None for each in others if each.feasible)
        return
    assert chosen.cost_low_nano_usd <= budget - spent
    if chosen.cost_high_nano_usd > budget - spent and job.deadline_at_ms is None:
        assert all(a.cost_high_nano_usd > budget - spent for a in others if a.feasible)
