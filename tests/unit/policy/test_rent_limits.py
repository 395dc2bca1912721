"""What a job may ever rent, whatever else is rented: no offer beyond that is chosen."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.config import load_config
from orchestrator.engine.inputs.rent_limits import rent_limits
from orchestrator.model import FASTEST, Resources
from orchestrator.policy import Demand
from orchestrator.policy.demand import RentLimits
from providers.money import usd
from tests.unit.policy.conftest import DecisionCase

MACHINES, RATE = "projects.vision.max_instances", "limits.max_usd_per_hour"
RATES = {"SIM-S": 1.0, "SIM-L": 8.0}


def limits(*, machines: float = 16, dollars: float = 100.0) -> RentLimits:
    return RentLimits(machines, usd(dollars), MACHINES, RATE)


def test_the_best_offer_within_the_limits_is_chosen_and_the_plan_says_why_not_a_better_one(case: DecisionCase) -> None:
    best, within = case.offer("large", 4.0, gpu="SIM-L"), case.offer("small", 1.0, gpu="SIM-S")
    demand = Demand(case.job(rates=RATES, objective=FASTEST), 36_000)
    assert case.decide(demand).offer_id == best
    placement = case.decide(replace(demand, rent=limits(dollars=3.0)))
    assert (placement.action, placement.offer_id) == ("place", within)
    reasons = {each.offer_id: each.reason for each in placement.alternatives}
    assert reasons[best] == "$4.00/h is more than limits.max_usd_per_hour ($3.00)"
    assert [(each.topic, each.count) for each in placement.rejected] == [("your limits", 1)]


def test_the_price_of_all_machines_together_counts(case: DecisionCase) -> None:
    offer = case.offer("small", 2.0)
    gang = Demand(case.job(resources=Resources(nodes=2)), 36_000)
    assert case.decide(replace(gang, rent=limits(dollars=4.0))).offer_id == offer
    placement = case.decide(replace(gang, rent=limits(dollars=3.99)))
    assert placement.action == "wait"
    assert placement.reason.endswith("$4.00/h for 2 machines is more than limits.max_usd_per_hour ($3.99)")


def test_of_offers_beyond_the_limit_the_cheapest_is_named(case: DecisionCase) -> None:
    case.offer("large", 4.0)
    cheapest = case.offer("small", 2.0)
    case.offer("middle", 3.0)
    reason = case.decide(Demand(case.job(), 36_000, rent=limits(dollars=1.0))).reason
    assert f"nearest miss {cheapest}: $2.00/h is more than" in reason


def test_more_machines_than_the_limit_fit_nowhere_and_the_setting_is_named(case: DecisionCase) -> None:
    case.offer("small", 2.0)
    gang = Demand(case.job(resources=Resources(nodes=3)), 36_000)
    placement = case.decide(replace(gang, rent=limits(machines=2)))
    assert placement.action == "wait"
    assert placement.reason.endswith("the job needs 3 machines, but projects.vision.max_instances is 2")
    one = case.decide(Demand(case.job("job_2"), 36_000, rent=limits(machines=0)))
    assert one.reason.endswith("the job needs a machine, but projects.vision.max_instances is 0")


def test_a_job_that_runs_stays_where_it_is_if_the_price_passes_the_limit(case: DecisionCase, settled) -> None:
    here = case.offer("small", 2.0)
    case.offer("large", 9.0)
    placement = case.decide(Demand(case.job(), 360_000, 10, rent=limits(dollars=1.0)), settled(here))
    assert (placement.action, placement.offer_id) == ("stay", here)


def test_too_many_machines_are_the_reason_also_where_no_price_is_known_or_it_is_old(case: DecisionCase) -> None:
    """So that such a job is refused: another price would not help it."""
    case.offer("old", 2.0, age_s=10 * 86_400)
    case.offer("unknown", 2.0)
    del case.prices[-1]
    placement = case.decide(Demand(case.job(), 36_000, rent=limits(machines=0)))
    assert [(each.topic, each.count) for each in placement.rejected] == [("your limits", 2)]
    cheap = case.decide(Demand(case.job("job_2"), 36_000, rent=limits(dollars=1.0)))
    assert {each.topic for each in cheap.rejected} == {"old price", "unknown price"}


def test_a_running_job_moves_only_where_the_limits_have_room_for_both_machines(case: DecisionCase, settled) -> None:
    here, best, second = (case.offer(name, price) for name, price in (("here", 2.0), ("best", 1.9), ("second", 1.0)))
    demand = Demand(case.job(), 3_600_000, 10)
    free = case.decide(demand, settled(here))
    assert (free.action, free.offer_id) == ("move", second)
    case.price(second, 2.6)
    case.price(best, 0.9)
    case.price(here, 2.7)
    room = case.decide(replace(demand, rent=limits(dollars=3.6)), settled(here))
    assert (room.action, room.offer_id) == ("move", best)
    for rent in (limits(dollars=3.59), limits(machines=1)):
        stays = case.decide(replace(demand, rent=rent), settled(here))
        assert (stays.action, stays.offer_id) == ("stay", here)


LIMITED = [
    (limits(machines=1), f"a move needs 2 machines at once, but {MACHINES} is 1"),
    (limits(dollars=1.2), f"a move needs both machines at once, and $1.30/h is more than {RATE} ($1.20)"),
]


@pytest.mark.parametrize(("rent", "why"), LIMITED)
def test_a_job_that_stays_because_a_limit_has_no_room_for_both_machines_names_the_limit(
    case: DecisionCase, settled, rent, why
) -> None:
    here, there = case.offer("here", 1.0), case.offer("there", 0.3)
    demand = Demand(case.job(), 36_000, rent=rent)
    stays = case.decide(demand, settled(here))
    said = f"saves $6.95 compared with staying, but {why}"
    assert (stays.action, stays.offer_id) == ("stay", here)
    assert stays.reason == f"{there} {said}; raise the limit, or pause and resume the job"
    assert {each.offer_id: each.reason for each in stays.alternatives} == {here: "", there: said}
    resumed = case.decide(replace(demand, done_steps=10, checkpoint_at=("local", "eu-1")))
    assert (resumed.action, resumed.offer_id) == ("place", there)


def test_a_limit_is_not_named_where_the_job_would_not_move_without_it_either(case: DecisionCase, settled) -> None:
    here, there = case.offer("here", 1.0), case.offer("there", 0.98)
    demand = Demand(case.job(), 36_000)
    for rent in (RentLimits(), limits(machines=1)):
        assert case.decide(replace(demand, rent=rent), settled(here)).reason.endswith("does not pay for the move")
    case.price(there, 0.3)
    soon = case.decide(replace(demand, rent=limits(machines=1)), settled(here, migrations_today=4))
    assert soon.reason == f"{there} saves $6.95 compared with staying, but the job has moved 4 times today"


def test_a_job_that_moves_says_which_limit_keeps_it_from_a_better_offer(case: DecisionCase, settled) -> None:
    """Here, the better offer costs more per hour."""
    here, second = case.offer("here", 2.0), case.offer("second", 0.9)
    best = case.offer("best", 1.5, gpu="SIM-L")
    job = case.job(rates={"SIM-M": 1.0, "SIM-L": 4.0})
    moves = case.decide(Demand(job, 360_000, rent=limits(dollars=3.0)), settled(here))
    assert (moves.action, moves.offer_id) == ("move", second)
    reason = {each.offer_id: each.reason for each in moves.alternatives}[best]
    assert reason.endswith(f"but a move needs both machines at once, and $3.50/h is more than {RATE} ($3.00)")


@pytest.mark.parametrize(
    ("hours", "gain"),
    [(1, "would finish 5.0 h sooner"), (9.9, "likely to meet your limits, ")],
)
def test_a_job_without_a_safe_offer_names_the_limit_too(case: DecisionCase, settled, hours, gain) -> None:
    here = case.offer("here", 1.0)
    case.offer("there", 2.0, gpu="SIM-L")
    job = case.job(rates={"SIM-M": 1.0, "SIM-L": 1.03 if hours > 2 else 2.0}, deadline_s=hours * 3600)
    demand = Demand(job, 36_000, 10, rent=limits(machines=1))
    assert case.decide(replace(demand, rent=RentLimits()), settled(here)).action == "move"
    stays = case.decide(demand, settled(here))
    assert (stays.action, stays.offer_id) == ("stay", here)
    for reason in (stays.reason, stays.alternatives[1].reason):
        assert gain in reason
        assert f", but a move needs 2 machines at once, but {MACHINES} is 1" in reason


@pytest.mark.parametrize(("rent", "why"), LIMITED)
def test_a_job_whose_offer_is_ruled_out_stays_where_no_other_fits_beside_it(
    case: DecisionCase, settled, rent, why
) -> None:
    """The launch would be refused; a job that is paused first can start there."""
    here, there = case.offer("here", 1.0), case.offer("there", 0.3)
    demand = Demand(
        case.job(budget_nano_usd=usd(6)), 36_000, 10, spent_nano_usd=usd(1), checkpoint_at=("local", "eu-1")
    )
    free = case.decide(demand, settled(here))
    assert (free.action, free.offer_id) == ("move", there)
    assert free.reason.startswith("its current offer is ruled out: ")
    stays = case.decide(replace(demand, rent=rent), settled(here))
    assert (stays.action, stays.offer_id) == ("stay", here)
    assert stays.reason.startswith("its current offer is ruled out: ")
    assert stays.reason.endswith(f"; {there} would fit, but {why}; raise the limit, or pause and resume the job")


def test_a_job_whose_offer_is_ruled_out_moves_to_the_best_that_fits_beside_it(case: DecisionCase, settled) -> None:
    here, best, second = case.offer("here", 2.0), case.offer("best", 0.5, gpu="SIM-L"), case.offer("second", 0.3)
    job = case.job(rates={"SIM-M": 1.0, "SIM-L": 4.0}, budget_nano_usd=usd(8))
    for dollars, goal in ((2.5, best), (2.4, second)):
        moves = case.decide(Demand(job, 36_000, rent=limits(dollars=dollars)), settled(here))
        assert (moves.action, moves.offer_id) == ("move", goal)


def test_a_price_exactly_at_a_limit_is_within_it(case: DecisionCase) -> None:
    """1.005 has no exact binary form."""
    offer = case.offer("small", 1.005)
    config = load_config({"limits.max_usd_per_hour": 1.005}, environ={})
    placement = case.decide(Demand(case.job(), 36_000, rent=rent_limits(config, "default")))
    assert placement.offer_id == offer


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0.1, 20.0), st.sampled_from(["SIM-S", "SIM-L"]), st.booleans()), min_size=1, max_size=8
    ),
    st.integers(1, 3),
    st.floats(0.05, 40.0),
    st.integers(0, 3),
)
def test_law_no_offer_beyond_the_limits_is_ever_chosen_and_one_within_them_is(offers, nodes, dollars, machines):
    case = DecisionCase()
    prices = {
        case.offer(f"o{number}", round(price, 2), gpu=gpu, spot=spot): usd(round(price, 2))
        for number, (price, gpu, spot) in enumerate(offers)
    }
    job = case.job(rates=RATES, resources=Resources(nodes=nodes))
    rent = limits(machines=machines, dollars=dollars)
    placement = case.decide(Demand(job, 36_000, rent=rent))
    fit = [each for each, price in prices.items() if nodes <= machines and nodes * price <= usd(dollars)]
    assert (placement.offer_id in fit) if fit else placement.offer_id is None
