"""A move that has begun is weighed again: it goes on while its rest pays, else it is given up with the reason."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.model import FASTEST, Objective, Placement
from orchestrator.policy import Demand, Running, Underway
from providers.money import usd
from tests.unit.policy.conftest import HOUR, NOW, DecisionCase

STEPS = 36_000  # 10 h at 1 step/s


def again(
    case: DecisionCase, demand: Demand, running: Running, to: str, reason: str = "cheaper offer", **so_far: bool
) -> Placement:
    return case.decide(demand, replace(running, move=Underway(to, reason, **so_far)))  # type: ignore[arg-type]


def test_a_move_that_still_pays_continues(case, settled):
    here, there = case.offer("here", 2.00), case.offer("there", 1.00)
    placement = again(case, Demand(case.job(), STEPS), settled(here), there)
    assert (placement.action, placement.offer_id) == ("move", there)
    assert placement.reason == f"the move to {there} still pays"
    assert placement.saving_nano_usd > 0


def test_a_move_is_aborted_when_the_price_there_has_risen(case, settled):
    here, there = case.offer("here", 2.00), case.offer("there", 1.00)
    case.price(there, 2.10)
    placement = again(case, Demand(case.job(), STEPS), settled(here), there)
    assert (placement.action, placement.offer_id) == ("stay", here)
    # 10 h at $0.10 more, 6 min of double billing at $2.10 and a minute of the old machine
    assert placement.reason == "finishing there would cost $1.24 more than staying"


def test_a_job_that_is_almost_done_by_now_stays_where_it_is(case, settled):
    here, there = case.offer("here", 2.00), case.offer("there", 1.00)
    demand = Demand(case.job(), STEPS, done_steps=STEPS - 60)
    placement = again(case, demand, settled(here), there, ready=True)
    assert placement.action == "stay"
    assert "more than staying" in placement.reason


def test_what_was_paid_counts_no_more(case, settled):
    """400 seconds of work are left: they do not pay for a start, but they pay for the rest once that was paid."""
    here, there = case.offer("here", 2.00), case.offer("there", 1.00)
    demand = Demand(case.job(), STEPS, done_steps=STEPS - 400)
    answers = {}
    for so_far in ({}, {"ready": True}, {"ready": True, "restored": True}):
        answers[len(so_far)] = again(case, demand, settled(here), there, **so_far)
    assert [answers[n].action for n in (0, 1, 2)] == ["stay", "move", "move"]
    saved = [answers[n].saving_nano_usd for n in (1, 2)]
    assert saved[0] < saved[1] == usd(1) * 400 // 3600  # nothing but the price per hour is left to compare


def test_the_parts_of_a_cost_add_up_at_every_stage(case, settled):
    here, there = case.offer("here", 2.00), case.offer("there", 1.00)
    for so_far in ({}, {"ready": True}, {"ready": True, "restored": True}):
        placement = again(case, Demand(case.job(), STEPS, checkpoint_bytes=10**9), settled(here), there, **so_far)
        parts = placement.parts
        assert parts is not None
        amounts = [getattr(parts, name) for name in type(parts).__slots__]
        assert sum(amounts) == placement.cost_nano_usd
        assert min(amounts) >= 0


def test_a_move_for_a_deadline_is_aborted_once_staying_meets_it(case, settled):
    """A job that was moved for its last 12 % to an expensive machine, for a deadline that it beat by 10 h."""
    here = case.offer("here", 1.00, spot=True)
    there = case.offer("there", 9.00)
    demand = Demand(case.job(deadline_s=11 * 3600), STEPS)
    running = settled(here)
    decided = case.decide(demand, running)
    assert (decided.action, decided.offer_id) == ("move", there)
    assert again(case, demand, running, there, "objective").action == "move"
    later = replace(demand, done_steps=STEPS * 88 // 100)  # it got on faster than was thought
    placement = again(case, later, running, there, "objective", ready=True)
    assert placement.action == "stay"
    assert placement.reason.startswith("it meets its deadline without the move, and finishing there would cost $")


def test_a_move_is_aborted_when_it_would_miss_a_limit_that_staying_meets(case, settled):
    here, there = case.offer("here", 2.00), case.offer("there", 1.00, gpu="SIM-L")
    job = case.job(rates={"SIM-M": 1.0, "SIM-L": 0.6}, deadline_s=12 * 3600)
    placement = again(case, Demand(job, STEPS), settled(here), there)
    assert placement.action == "stay"
    assert placement.reason.startswith("there, it would finish ")
    assert placement.reason.endswith("after the deadline")


def test_a_move_that_meets_a_limit_continues_whatever_it_costs(case, settled):
    here, there = case.offer("here", 1.00), case.offer("there", 9.00, gpu="SIM-L")
    job = case.job(rates={"SIM-M": 1.0, "SIM-L": 2.0}, deadline_s=8 * 3600)
    assert again(case, Demand(job, STEPS), settled(here), there, "objective").action == "move"


def test_a_move_from_a_machine_that_is_being_preempted_continues(case, settled):
    here, there = case.offer("here", 1.00, spot=True), case.offer("there", 1.05)
    placement = again(case, Demand(case.job(), STEPS), settled(here, leaving=True), there)
    assert (placement.action, placement.offer_id) == ("move", there)
    case.price(there, 9.00)
    placement = again(case, Demand(case.job(), STEPS), settled(here, leaving=True), there)
    assert (placement.action, placement.offer_id) == ("stay", None)
    assert placement.reason.startswith(f"{here} now costs $")


def first(case: DecisionCase, demand: Demand, to: str, reason: str = "first placement") -> Placement:
    """A job that runs nowhere and is bound for an offer."""
    return case.decide(demand, underway=Underway(to, reason))  # type: ignore[arg-type]


def test_a_place_that_is_still_about_the_best_is_taken(case):
    there = case.offer("there", 1.05)
    case.offer("other", 1.00)
    placement = first(case, Demand(case.job(), STEPS), there)
    assert (placement.action, placement.offer_id) == ("move", there)
    assert there in placement.reason


def test_a_placement_is_aborted_with_the_reason_when_another_offer_is_better_by_now(case):
    there, other = case.offer("there", 1.05), case.offer("other", 0.50)
    placement = first(case, Demand(case.job(), STEPS), there)
    assert (placement.action, placement.offer_id) == ("stay", None)
    assert placement.reason == f"{other} now costs $5.55 less"  # 10 h, and 6 min of its start
    faster = Demand(case.job(objective=FASTEST, rates={"SIM-M": 1.0, "SIM-L": 2.0}), STEPS)
    best = case.offer("fast", 9.00, gpu="SIM-L")
    assert first(case, faster, there).reason == f"{best} would finish 5.0 h sooner now"


def test_a_placement_that_misses_a_limit_which_another_offer_meets_is_aborted(case):
    there, other = case.offer("there", 1.00), case.offer("other", 9.00, gpu="SIM-L")
    job = case.job(rates={"SIM-M": 1.0, "SIM-L": 2.0}, deadline_s=8 * 3600)
    placement = first(case, Demand(job, STEPS), there, "lost")
    assert placement.action == "stay"
    assert placement.reason.startswith(f"{there}: would finish ")
    assert first(case, Demand(job, STEPS), other, "lost").action == "move"


def test_a_placement_of_an_unmeasured_job_is_evaluated_again_too(case):
    there, other = case.offer("there", 1.00), case.offer("other", 0.95)
    demand = Demand(case.job(rates={}), STEPS)
    assert first(case, demand, there).action == "move", "a few per cent are no reason"
    case.price(there, 3.00)
    placement = first(case, demand, there)
    assert (placement.action, placement.offer_id) == ("stay", None)
    assert f"{other} now costs 68% less" in placement.reason
    case.happened(other, "refused")
    assert first(case, demand, there).action == "move", "there is no other by now"
    case.happened(there, "refused")
    assert first(case, demand, there).action == "move", "whether a machine is to be had shows when it is rented"
    case.prices = [price for price in case.prices if price.offer_id != there]
    assert first(case, demand, there).reason == f"{there}: no price is known"


def test_a_placement_that_costs_nothing_is_kept_for_an_unmeasured_job(case):
    there, _ = case.offer("there", 0.0), case.offer("other", 0.0)
    assert first(case, Demand(case.job(rates={}), STEPS), there).action == "move"


def test_a_placement_that_may_no_longer_be_best_is_aborted_for_an_unmeasured_job(case):
    there, other = case.offer("there", 1.00, gpu="SIM-S"), case.offer("other", 1.10, gpu="SIM-L")
    demand = Demand(case.job(rates={}), STEPS)
    assert case.decide(demand).offer_id == other, "four times as fast"
    placement = first(case, demand, there)
    assert (placement.action, placement.offer_id) == ("stay", None)
    assert placement.reason == f"{other} is 72.4% better in cheapest now"


def test_a_move_to_an_offer_that_is_gone_or_unpriced_is_aborted(case, settled):
    here = case.offer("here", 1.00)
    gone = "local/eu-1/eu-1a/gone/spot"
    assert again(case, Demand(case.job(), STEPS), settled(here), gone).reason == f"{gone} is no longer offered"
    there = case.offer("there", 0.10)
    case.prices = [price for price in case.prices if price.offer_id != there]
    assert again(case, Demand(case.job(), STEPS), settled(here), there).reason == f"{there}: no price is known"


def test_a_move_from_an_offer_without_a_price_is_aborted_if_its_target_misses_the_budget(case, settled):
    here, there = case.offer("here", 1.00), case.offer("there", 2.00)
    case.offer("other", 0.50)
    case.prices = [price for price in case.prices if price.offer_id != here]
    for dollars, action in ((30, "move"), (15, "stay")):
        placement = again(case, Demand(case.job(budget_nano_usd=usd(dollars)), STEPS), settled(here), there)
        assert (placement.action, placement.offer_id) == (action, there if action == "move" else here)
    assert placement.reason.startswith(f"{there}: would cost $")
    assert placement.reason.endswith("over the budget")


def test_a_placement_over_the_budget_is_aborted_where_another_offer_is_as_likely_and_within_it(case):
    expensive, cheap = case.offer("dear", 2.00), case.offer("cheap", 0.20, gpu="SIM-L")
    job = case.job(rates={"SIM-M": 1.0, "SIM-L": 0.9}, deadline_s=10.85 * 3600, budget_nano_usd=usd("19.5"))
    placement = first(case, Demand(job, STEPS), expensive)
    assert (placement.action, placement.offer_id) == ("stay", None)
    said = rf"{cheap} is now as likely to meet its limits, and {expensive} would cost \$0\.\d\d over the budget"
    assert re.fullmatch(said, placement.reason)


def test_what_only_the_moment_speaks_against_gives_nothing_up(case, settled):
    here, there = case.offer("here", 2.00), case.offer("there", 1.00, age_s=10 * 86_400)
    case.happened(there, "refused")
    assert again(case, Demand(case.job(), STEPS), settled(here), there).action == "move"


def test_a_move_that_makes_a_job_slower_by_now_is_aborted_when_speed_is_its_objective(case, settled):
    here, there = case.offer("here", 1.00), case.offer("there", 1.00, gpu="SIM-L")
    job = case.job(rates={"SIM-M": 1.0, "SIM-L": 0.9}, objective=FASTEST)
    placement = again(case, Demand(job, STEPS), settled(here), there, "objective", ready=True, restored=True)
    assert placement.reason == "finishing there would take 67 min longer than staying"


@pytest.mark.parametrize(("rate", "action"), [(0.985, "move"), (0.96, "move"), (0.93, "stay")])
def test_a_move_begun_to_save_money_goes_on_while_the_finish_stays_near(case, settled, rate, action):
    """It begins within 3% of the earliest finish; only twice as much aborts it, so that it does not begin again."""
    here, there = case.offer("here", 8.00, gpu="SIM-L"), case.offer("there", 2.00)
    demand = Demand(case.job(rates={"SIM-L": 1.0, "SIM-M": rate}, objective=FASTEST), STEPS)
    placement = again(case, demand, settled(here), there)
    assert placement.action == action
    if action == "stay":
        assert placement.reason == "finishing there would take 46 min longer than staying"


def test_a_move_begun_to_save_money_is_aborted_when_it_saves_none(case, settled):
    here, there = case.offer("here", 2.00, gpu="SIM-L"), case.offer("there", 2.20)
    demand = Demand(case.job(rates={"SIM-L": 1.0, "SIM-M": 0.985}, objective=FASTEST), STEPS)
    placement = again(case, demand, settled(here), there)
    assert placement.action == "stay"
    assert placement.reason.startswith("finishing there would cost $2.")
    assert placement.reason.endswith(" more than staying, and be no faster")


def test_a_placement_of_a_job_that_wants_speed_changes_for_money_only_within_the_tolerance(case):
    there = case.offer("there", 8.00, gpu="SIM-L")
    case.offer("far", 0.10, gpu="SIM-S")
    job = case.job(rates={"SIM-L": 1.0, "SIM-M": 0.985, "SIM-S": 0.96}, objective=FASTEST)
    assert first(case, Demand(job, STEPS), there).action == "move"
    near = case.offer("near", 2.00)
    placement = first(case, Demand(job, STEPS), there)
    assert placement.action == "stay"
    assert placement.reason == f"{near} finishes within 3% of the same time and now costs $60.20 less"


@settings(deadline=None)
@given(
    here_usd=st.floats(0.1, 9),
    there_usd=st.floats(0.1, 9),
    other_usd=st.floats(0.1, 9),
    spot=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    rates=st.tuples(st.floats(0.2, 3), st.floats(0.2, 3)),
    done=st.integers(0, STEPS - 1),
    deadline_h=st.none() | st.floats(0.5, 40),
    budget=st.none() | st.floats(0.1, 90),
    weight=st.sampled_from([(1.0, 0.0), (0.0, 1.0), (0.5, 0.5)]),
)
def test_no_move_that_would_be_decided_now_is_aborted_now(
    here_usd, there_usd, other_usd, spot, rates, done, deadline_h, budget, weight
):
    """Or a job would go to and fro: begin a move, give it up, begin it again."""
    case = DecisionCase()
    here = case.offer("here", here_usd, spot=spot[0], gpu="SIM-M")
    case.offer("there", there_usd, spot=spot[1], gpu="SIM-L")
    case.offer("other", other_usd, spot=spot[2], gpu="SIM-L", region="eu-2")
    job = case.job(
        rates={"SIM-M": rates[0], "SIM-L": rates[1]},
        objective=Objective(*weight),
        deadline_s=None if deadline_h is None else deadline_h * 3600,
        budget_nano_usd=None if budget is None else usd(budget),
    )
    demand, running = Demand(job, STEPS, done_steps=done), Running(here, NOW - 24 * HOUR)
    decided = case.decide(demand, running)
    if decided.action == "move" and decided.offer_id is not None:
        for so_far in ({}, {"ready": True}, {"ready": True, "restored": True}):
            placement = again(case, demand, running, decided.offer_id, **so_far)
            assert (placement.action, placement.offer_id) == ("move", decided.offer_id), placement.reason
    for where in (None, replace(running, leaving=True)):  # a first placement or a recovery, and one after a notice
        decided = case.decide(demand, where)
        if decided.action == "place" and decided.offer_id is not None:
            move = Underway(decided.offer_id, "first placement" if decided.probe is None else "probe")
            if where is None:
                placement = case.decide(demand, underway=move)
            else:
                placement = case.decide(demand, replace(where, move=move))
            assert (placement.action, placement.offer_id) == ("move", decided.offer_id), placement.reason
