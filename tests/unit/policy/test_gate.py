"""A job stays unless moving pays for itself; a job about to break a promise moves at once."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.model import CHEAPEST, FASTEST, CheckpointSpec
from orchestrator.policy import Demand, MoveLimits, Running
from providers.money import usd
from providers.offer import CapacityType
from tests.unit.policy.conftest import HOUR, NOW, DecisionCase

STEPS = 360_000  # 100 h at 1 step/s


def test_a_much_cheaper_offer_is_worth_a_move(case, settled):
    here = case.offer("here", 2.00)
    there = case.offer("there", 1.00)
    placement = case.decide(Demand(case.job(), STEPS), settled(here))
    assert (placement.action, placement.offer_id) == ("move", there)
    # 100 h at half the price, less 6 min of double billing at $1 and one minute of the old machine.
    assert placement.saving_nano_usd == pytest.approx(usd(100) - usd(1) * 360 / 3600 - usd(2) * 60 / 3600, rel=1e-6)
    assert "$99.87" in placement.reason


def test_a_slightly_cheaper_offer_is_not(case, settled):
    here = case.offer("here", 2.00)
    case.offer("there", 1.90)
    placement = case.decide(Demand(case.job(), STEPS), settled(here))
    assert (placement.action, placement.offer_id) == ("stay", here)
    assert placement.alternatives[0].offer_id == here
    assert re.search(r"\$9\.78 .* does not pay for the move", placement.alternatives[1].reason)


def test_a_job_that_has_just_come_is_decided_again_as_soon_as_it_may_move(case, settled):
    """Nothing else may happen until then: no price changes, and nothing is lost."""
    here = case.offer("here", 2.00)
    there = case.offer("there", 1.00)
    came = settled(here, since_ms=case.now - 10 * 60_000)
    held = case.decide(Demand(case.job(), STEPS), came)
    assert (held.action, held.again_at_ms) == ("stay", case.now + 50 * 60_000)
    case.now = held.again_at_ms
    assert case.decide(Demand(case.job(), STEPS), came).offer_id == there


def test_a_job_on_on_demand_returns_to_spot_that_was_shut_when_it_was_bought(case, settled):
    """It is decided again when the back-off ends."""
    here = case.offer("here", 3.00)
    spot = case.offer("spot", 1.00, spot=True)
    case.happened(spot, "refused", 10)
    demand = Demand(case.job(deadline_at_ms=case.now + 300 * 3_600_000), STEPS)
    stays = case.decide(demand, settled(here))
    assert (stays.action, stays.again_at_ms) == ("stay", case.now + 5 * 60_000)
    case.now = stays.again_at_ms
    assert case.decide(demand, settled(here)).offer_id == spot


def test_a_job_that_is_where_it_is_best_asks_for_no_further_decision(case, settled):
    here = case.offer("here", 2.00)
    case.offer("there", 3.00)
    came = settled(here, since_ms=case.now - 10 * 60_000)
    assert case.decide(Demand(case.job(), STEPS), came).again_at_ms is None


def test_a_job_that_is_almost_done_stays(case, settled):
    here = case.offer("here", 2.00)
    case.offer("there", 1.00)
    placement = case.decide(Demand(case.job(), STEPS, done_steps=STEPS - 600), settled(here))
    assert placement.action == "stay"


@given(
    st.floats(0.5, 20.0),
    st.floats(0.01, 0.8),
    st.floats(1.0, 900.0),
    st.sampled_from((0.0, 0.02)),
    st.sampled_from((FASTEST, CHEAPEST)),
)
def test_no_move_is_made_for_less_than_a_cent_or_when_the_work_ends_sooner(dollars, cheaper, left_s, overhead, by):
    """A checkpoint that takes no time, in a job that saves all the time: a move costs nearly nothing."""
    case = DecisionCase(startup_s=5.0)
    here = case.offer("here", dollars, gpu="SIM-S")
    case.offer("there", dollars * cheaper)
    job = case.job(rates={"SIM-S": 1.0, "SIM-M": 1.5}, objective=by, checkpoint=CheckpointSpec(max_overhead=overhead))
    demand = Demand(job, STEPS, done_steps=STEPS - round(left_s), checkpoint_s=0.01)
    placement = case.decide(demand, Running(here, NOW - 24 * HOUR))
    if placement.action == "move":
        assert left_s > 5
        assert by == FASTEST or placement.saving_nano_usd >= usd(0.01)
    left = dollars * left_s / 3600
    if left < 0.009 and by == CHEAPEST:
        assert placement.action == "stay"


def test_egress_of_a_huge_checkpoint_keeps_a_job_where_it_is(case, settled):
    here = case.offer("here", 2.00, provider="aws")
    case.offer("there", 1.00, provider="gcp")
    job = case.job()
    assert case.decide(Demand(job, STEPS, checkpoint_bytes=10**9), settled(here)).action == "move"
    placement = case.decide(Demand(job, STEPS, checkpoint_bytes=2 * 10**12), settled(here))
    assert placement.action == "stay"  # $180 to save $100


@pytest.mark.parametrize("moves_a_day", [1, 4, 24])
def test_a_move_is_judged_over_a_day_however_soon_the_target_may_be_lost_or_the_next_move_be_made(
    case, settled, moves_a_day
):
    """Spot that is lost every 8 h, at half the price: over a day of 100 h, a move that costs twice $5 is worth $24."""
    here = case.offer("here", 2.00, provider="aws")
    there = case.offer("there", 1.00, provider="gcp", spot=True)
    limits = MoveLimits(max_migrations_per_day=moves_a_day)
    demand = Demand(case.job(), STEPS, checkpoint_bytes=55 * 10**9)
    placement = case.decide(demand, settled(here), limits)
    assert (placement.action, placement.offer_id) == ("move", there)


def test_a_move_is_judged_over_a_day_at_most(case, settled):
    """$1 less an hour is $24 a day: that pays for a move at twice $5, but not at twice $14, in 100 h or in 1,000."""
    here = case.offer("here", 2.00, provider="aws")
    case.offer("there", 1.00, provider="gcp")
    for steps in (STEPS, 10 * STEPS):
        job = case.job()
        assert case.decide(Demand(job, steps, checkpoint_bytes=55 * 10**9), settled(here)).action == "move"
        assert case.decide(Demand(job, steps, checkpoint_bytes=155 * 10**9), settled(here)).action == "stay"


@pytest.mark.parametrize(("spot", "action"), [(False, "stay"), (True, "move")])
def test_losses_of_the_machine_where_a_job_is_count_for_a_move(case, settled, spot, action):
    """10% off pays for no move; but a spot machine that is lost every 8 h and starts for 1 h costs 14% more."""
    case.startup_s = 3600
    here = case.offer("here", 1.00, spot=spot)
    case.offer("there", 0.90)
    assert case.decide(Demand(case.job(), STEPS), settled(here)).action == action


@pytest.mark.parametrize(("spot", "action"), [(False, "move"), (True, "stay")])
def test_losses_of_the_target_count_against_a_move(case, settled, spot, action):
    case.startup_s = 3600
    here = case.offer("here", 1.00)
    case.offer("there", 0.80, spot=spot)
    assert case.decide(Demand(case.job(), STEPS), settled(here)).action == action


def test_the_threshold_price_is_exactly_where_the_move_begins_to_pay(case, settled):
    here = case.offer("here", 2.00, region="eu-1")
    there = case.offer("there", 1.95, region="eu-2")
    demand = Demand(case.job(), STEPS, checkpoint_bytes=10**10)
    threshold = case.decide(demand, settled(here)).would_move_below_nano_usd_per_hour
    assert usd("1.00") < threshold < usd("1.80")
    case.price(there, (threshold + 1000) / 1e9)
    assert case.decide(demand, settled(here)).action == "stay"
    case.now += 1
    case.price(there, (threshold - 1000) / 1e9)
    assert case.decide(demand, settled(here)).action == "move"


def test_no_price_makes_a_job_that_wants_speed_move_to_a_slower_machine(case, settled):
    here = case.offer("here", 2.00, gpu="SIM-L")
    case.offer("there", 1.95)
    job = case.job(rates={"SIM-L": 2.0, "SIM-M": 1.0}, objective=FASTEST)
    placement = case.decide(Demand(job, STEPS), settled(here))
    assert placement.action == "stay"
    assert placement.would_move_below_nano_usd_per_hour is None


def test_a_job_moves_to_a_faster_machine_when_speed_is_its_objective(case, settled):
    here = case.offer("here", 1.00)
    there = case.offer("there", 9.00, gpu="SIM-L")
    job = case.job(rates={"SIM-L": 2.0, "SIM-M": 1.0}, objective=FASTEST)
    placement = case.decide(Demand(job, STEPS), settled(here))
    assert (placement.action, placement.offer_id) == ("move", there)
    assert placement.reason == "2.1 days faster than staying"


def test_a_job_that_wants_speed_moves_for_money_only_within_three_percent_of_the_earliest_finish(case, settled):
    rates = {"SIM-L": 1.0, "SIM-M": 0.985, "SIM-S": 0.96}
    here = case.offer("here", 8.00, gpu="SIM-L")
    case.offer("far", 0.10, gpu="SIM-S")
    demand = Demand(case.job(rates=rates, objective=FASTEST), STEPS)
    placement = case.decide(demand, settled(here))
    assert (placement.action, placement.offer_id) == ("stay", here)
    assert placement.would_move_below_nano_usd_per_hour is None
    near = case.offer("near", 2.00)
    placement = case.decide(demand, settled(here))
    assert (placement.action, placement.offer_id) == ("move", near)
    assert re.fullmatch(r"saves \$59\d\.\d\d and finishes within 3% of the same time", placement.reason)


def test_a_job_that_wants_speed_does_not_move_for_a_saving_that_does_not_pay(case, settled):
    here = case.offer("here", 2.00)
    there = case.offer("there", 1.90)
    demand = Demand(case.job(objective=FASTEST), STEPS)
    placement = case.decide(demand, settled(here))
    assert placement.action == "stay"
    assert "which does not pay for the move" in placement.reason
    threshold = placement.would_move_below_nano_usd_per_hour
    assert usd("1.50") < threshold < usd("1.80")
    case.price(there, (threshold + 1000) / 1e9)
    assert case.decide(demand, settled(here)).action == "stay"
    case.now += 1
    case.price(there, (threshold - 1000) / 1e9)
    assert case.decide(demand, settled(here)).action == "move"


def test_fastest_moves_to_a_cheaper_offer_that_is_also_a_little_earlier(case, settled):
    here = case.offer("here", 2.00, gpu="SIM-S")
    there = case.offer("there", 1.00)  # 5% faster: too little to pay for a move by time alone
    demand = Demand(case.job(rates={"SIM-S": 0.95, "SIM-M": 1.0}, objective=FASTEST), STEPS)
    placement = case.decide(demand, settled(here))
    assert (placement.action, placement.offer_id) == ("move", there)


@pytest.mark.parametrize("slower", [1.0, 0.985, 0.972, 0.96])
def test_a_job_that_wants_speed_does_not_flap_between_offers_of_about_the_same_speed(case, slower):
    """Prices wobble by 5%, and the remaining work shrinks until the gap of a move is more than 3% of it."""
    noise = random.Random(5)
    first, second = case.offer("a", 2.00, gpu="SIM-L"), case.offer("b", 2.00)
    job = case.job(rates={"SIM-L": 1.0, "SIM-M": slower}, objective=FASTEST)
    running, moves = Running(first, case.now), 0
    for hour in range(99):
        case.now += 3_600_000
        for offer in (first, second):
            case.price(offer, 2.00 * noise.uniform(0.95, 1.05))
        placement = case.decide(Demand(job, STEPS, done_steps=3600 * hour), running)
        if placement.action == "move":
            moves += 1
            running = Running(placement.offer_id, case.now, case.now)
    assert moves == 0


def test_a_job_dwells_after_it_came(case):
    here = case.offer("here", 2.00)
    case.offer("there", 1.00)
    demand = Demand(case.job(), STEPS)
    placement = case.decide(demand, Running(here, case.now - 10 * 60_000))
    assert placement.action == "stay"
    assert placement.alternatives[1].reason.endswith("but the job has been here for less than 60 min")
    assert case.decide(demand, Running(here, case.now - 61 * 60_000)).action == "move"


def test_a_job_makes_only_so_many_moves_a_day(case, settled):
    here = case.offer("here", 2.00)
    case.offer("there", 1.00)
    placement = case.decide(Demand(case.job(), STEPS), settled(here, migrations_today=4))
    assert placement.action == "stay"
    assert placement.reason.endswith("the job has moved 4 times today")
    limits = MoveLimits(max_migrations_per_day=8)
    assert case.decide(Demand(case.job(), STEPS), settled(here, migrations_today=4), limits).action == "move"


def test_a_job_whose_deadline_is_in_danger_moves_at_once(case):
    here = case.offer("here", 1.00)
    there = case.offer("there", 9.00, gpu="SIM-L")
    job = case.job(rates={"SIM-L": 2.0, "SIM-M": 1.0}, deadline_s=99 * 3600)
    placement = case.decide(Demand(job, STEPS), Running(here, case.now, migrations_today=9))
    assert (placement.action, placement.offer_id) == ("move", there)
    assert placement.reason == "its current offer is ruled out: would finish 60 min after the deadline"


def test_a_job_that_would_pass_its_budget_moves_at_once(case):
    here = case.offer("here", 3.00)
    there = case.offer("there", 1.00)
    job = case.job(objective=FASTEST, budget_nano_usd=usd(200))
    placement = case.decide(Demand(job, STEPS), Running(here, case.now))
    assert (placement.action, placement.offer_id) == ("move", there)
    assert placement.reason == "its current offer is ruled out: would cost $100.05 over the budget"


def test_a_running_job_that_cannot_finish_within_its_budget_is_to_stop(case, settled):
    here = case.offer("here", 3.00)
    job = case.job(budget_nano_usd=usd(200))
    placement = case.decide(Demand(job, STEPS), settled(here))
    assert placement.action == "wait"
    assert "would cost $100.05 over the budget; a budget of $" in placement.reason


def test_a_used_up_budget_stops_a_job_even_if_its_length_is_unknown(case, settled):
    here = case.offer("here", 3.00)
    job = case.job(budget_nano_usd=usd(2))
    placement = case.decide(Demand(job, None, spent_nano_usd=usd(2)), settled(here))
    assert placement.action == "wait"
    assert placement.reason.endswith("tradewind budget set job_1 USD")


def test_a_late_job_that_has_started_continues_for_the_earliest_finish(case, settled):
    here = case.offer("here", 1.00)
    there = case.offer("there", 9.00, gpu="SIM-L")
    job = case.job(rates={"SIM-L": 2.0, "SIM-M": 1.0}, deadline_s=3600)
    placement = case.decide(Demand(job, STEPS, done_steps=1), settled(here))
    assert (placement.action, placement.offer_id) == ("move", there)
    assert placement.reason == "the deadline cannot be met; this is the earliest finish, 2 days late"


def test_a_late_job_that_stays_is_not_said_to_finish_first_where_another_offer_is_a_little_earlier(case, settled):
    here = case.offer("here", 1.00)
    case.offer("there", 1.00, gpu="SIM-L")
    job = case.job(rates={"SIM-L": 1.06, "SIM-M": 1.0}, deadline_s=3600)
    placement = case.decide(Demand(job, STEPS, done_steps=1), settled(here))
    assert (placement.action, placement.offer_id) == ("stay", here)
    assert placement.reason == "the deadline cannot be met; no other offer finishes much earlier, 4.1 days late"


def test_a_saving_that_lasts_until_a_likely_loss_says_for_how_long(case, settled):
    """It is far less than the costs to the end differ."""
    here, there = case.offer("here", 2.00, spot=True), case.offer("there", 1.00, spot=True)
    for offer in (here, there):
        for hour in range(8):
            case.happened(offer, "launched", minutes_ago=60 * (hour + 2))
            case.happened(offer, "lost", minutes_ago=60 * (hour + 1) + 30)
    case.seen.sort(key=lambda each: each.at_ms)
    placement = case.decide(Demand(case.job(), STEPS, done_steps=1), settled(here, migrations_today=4))
    cost = {each.offer_id: each.cost_nano_usd / 1e9 for each in placement.alternatives}
    pattern = rf"{there} saves \$([\d.]+) compared with staying over the next (\d+) min, but the job has moved"
    saved, minutes = re.match(pattern, placement.reason).groups()
    assert float(saved) < 0.01 * (cost[here] - cost[there])
    assert 30 < int(minutes) < 60
    sure, surely = case.offer("sure", 4.00), case.offer("surely", 3.00)
    on_demand = replace(case.job(), spec=replace(case.job().spec, capacity=(CapacityType.ON_DEMAND,)))
    placement = case.decide(Demand(on_demand, STEPS, done_steps=1), settled(sure, migrations_today=4))
    assert re.match(rf"{surely} saves \$[\d.]+ compared with staying, but the job has moved", placement.reason)


def test_a_job_does_not_stay_on_a_machine_with_notice(case):
    here = case.offer("here", 1.00, spot=True)
    there = case.offer("there", 2.00)
    case.happened(here, "notice")
    placement = case.decide(Demand(case.job(), STEPS), Running(here, case.now, leaving=True))
    assert (placement.action, placement.offer_id) == ("place", there)


def test_missing_capacity_or_a_stale_price_does_not_drive_out_who_is_there(case, settled):
    here = case.offer("here", 1.00, age_s=10 * 86_400)
    case.offer("there", 1.05)
    case.happened(here, "refused")
    assert case.decide(Demand(case.job(), STEPS), settled(here)).action == "stay"


def test_a_job_on_an_offer_that_is_no_longer_listed_stays(case, settled):
    case.offer("there", 1.00)
    placement = case.decide(Demand(case.job(), STEPS), settled("local/eu-1/eu-1a/gone/spot"))
    assert (placement.action, placement.offer_id) == ("stay", "local/eu-1/eu-1a/gone/spot")
    assert "no longer listed" in placement.reason


def test_a_move_under_way_is_left_alone(case, settled):
    here = case.offer("here", 2.00)
    case.offer("there", 1.00)
    placement = case.decide(Demand(case.job(), STEPS), settled(here, migrating=True))
    assert (placement.action, placement.offer_id) == ("none", here)


def test_a_job_that_is_moved_while_its_machine_is_taken_away_is_left_alone_even_if_its_offer_is_shut(case, settled):
    here, _ = case.offer("here", 1.00, spot=True), case.offer("there", 2.00)
    case.happened(here, "lost", 5)
    placement = case.decide(Demand(case.job(), STEPS), settled(here, migrating=True, leaving=True))
    assert (placement.action, placement.offer_id) == ("none", here)
    assert placement.reason == "a move is in progress"


def test_noisy_prices_make_no_ping_pong(case):
    """Two offers whose prices wobble by 5 % around the same mean, decided every hour for two weeks."""
    noise = random.Random(5)
    here = case.offer("a", 2.00, spot=True)
    other = case.offer("b", 2.00, spot=True)
    demand = Demand(case.job(), 100 * STEPS)
    running, moves = Running(here, case.now), 0
    for _ in range(14 * 24):
        case.now += 3_600_000
        for offer in (here, other):
            case.price(offer, 2.00 * noise.uniform(0.95, 1.05))
        placement = case.decide(demand, running)
        if placement.action == "move":
            moves += 1
            running = Running(placement.offer_id, case.now, case.now)
    assert moves == 0


def test_a_lasting_drop_in_price_leads_to_one_move(case):
    here = case.offer("a", 2.00)
    other = case.offer("b", 2.00)
    demand = Demand(case.job(), STEPS)
    running, seen = Running(here, case.now), []
    for hour in range(48):
        case.now += 3_600_000
        if hour == 10:
            case.price(other, 1.20)
        placement = case.decide(demand, running)
        if placement.action == "move":
            seen.append((hour, placement.offer_id))
            running = Running(placement.offer_id, case.now, case.now)
    assert seen == [(10, other)]


def test_a_move_promises_only_what_the_risk_of_loss_leaves(case, settled):
    """Without the move, a job on spot goes to the cheaper machine when its own is lost, every 8 h: the saving ends
    there."""
    on_demand, spot = (case.offer("here", 2.00, region=f"eu-{n}", spot=n == 3) for n in (2, 3))
    case.offer("there", 1.00)
    sure, risky = (case.decide(Demand(case.job(), STEPS), settled(here)) for here in (on_demand, spot))
    assert (sure.action, risky.action) == ("move", "move")
    assert usd(6) < risky.saving_nano_usd < usd(9)  # about $1.09 an hour for 8 h
    assert sure.saving_nano_usd > usd(99)


@pytest.mark.parametrize("hours", [None, 300])
def test_a_move_from_on_demand_to_spot_promises_all_that_it_saves_if_there_is_time_to_wait(case, settled, hours):
    """A job that stays on demand would stay to the end. One that loses a spot machine every 8 h waits for the next."""
    here = case.offer("here", 3.00)
    case.offer("there", 1.00, spot=True)
    deadline_ms = None if hours is None else case.now + hours * 3_600_000
    placement = case.decide(Demand(case.job(deadline_at_ms=deadline_ms), STEPS), settled(here))
    assert placement.action == "move"
    assert usd(180) < placement.saving_nano_usd < usd(200)  # nearly $2 an hour


def test_the_less_time_a_job_has_to_spare_the_less_a_move_to_spot_promises(case, settled):
    """Without time to wait, the first loss takes it back to on-demand, after about 8 h at nearly $2 an hour."""
    here = case.offer("here", 3.00)
    case.offer("there", 1.00, spot=True)
    savings = []
    for hours in (300, 150, 130, 120, 116):
        placement = case.decide(Demand(case.job(deadline_at_ms=case.now + hours * 3_600_000), STEPS), settled(here))
        assert placement.action == "move", hours
        savings.append(placement.saving_nano_usd)
    assert savings == sorted(savings, reverse=True)
    assert usd(11) < savings[-1] < usd(30)


def test_a_saving_between_spot_machines_ends_when_either_is_lost(case, settled):
    here = case.offer("here", 2.00, spot=True)
    case.offer("there", 1.00, spot=True, region="eu-2")
    saving = case.decide(Demand(case.job(), STEPS), settled(here)).saving_nano_usd
    assert usd(3) < saving < usd(5)  # both are lost every 8 h: $1 an hour for 4 h


def test_a_move_that_egress_eats_up_before_the_next_loss_promises_nothing(case, settled):
    here = case.offer("here", 2.00, provider="aws", spot=True)
    there = case.offer("there", 1.80, provider="gcp")
    placement = case.decide(Demand(case.job(), STEPS, checkpoint_bytes=100 * 10**9), settled(here))
    assert placement.action == "stay"
    assert next(each for each in placement.alternatives if each.offer_id == there).reason.startswith("saves nothing")


@pytest.mark.parametrize(("hours", "ways"), [(1000, 1), (120, 2)])
def test_a_move_that_an_interruption_takes_back_to_on_demand_promises_less_by_the_way_back(case, settled, hours, ways):
    """The checkpoint costs $2 each way. With little time to spare, the first loss takes the job back."""
    here = case.offer("here", 3.00, provider="aws", region="us-west-2")
    case.offer("there", 1.00, spot=True, provider="aws", region="us-east-1")
    job = case.job(deadline_at_ms=case.now + hours * 3_600_000)
    light, heavy = (
        case.decide(Demand(job, STEPS, checkpoint_bytes=size), settled(here)) for size in (10**6, 100 * 10**9)
    )
    assert (light.action, heavy.action) == ("move", "move")
    assert usd(2 * ways) < light.saving_nano_usd - heavy.saving_nano_usd < usd(2 * ways + 1.5)
