"""Every rejected offer has exactly one binding reason (or both limits), and waiting says what is missing."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.formats.readable import span
from orchestrator.model import FASTEST, GpuRequest, Resources, Where
from orchestrator.policy import Demand, MoveLimits
from orchestrator.policy.needed_budget import needed_budgets
from providers.money import usd
from providers.offer import CapacityType
from tests.unit.policy.conftest import DecisionCase

STEPS = 36_000


def reasons(placement):
    return {a.offer_id.split("/")[3]: a.reason for a in placement.alternatives}


@pytest.mark.parametrize(
    ("offer", "spec", "reason"),
    [
        ({"gpu": "SIM-S"}, {"resources": Resources((GpuRequest("SIM-M"),))}, "GPU SIM-S is not in resources.gpu"),
        ({"gpu": None, "count": 0}, {"resources": Resources((GpuRequest("SIM-M"),))}, "has no GPU"),
        (
            {"count": 4},
            {"resources": Resources((GpuRequest("SIM-M"), GpuRequest("SIM-L", 4)))},
            "has 4 x SIM-M, resources.gpu asks for 1",
        ),
        (
            {"gpu": "T4"},
            {"resources": Resources(gpu_memory_bytes=(1, 10 * 10**9))},
            "T4 has 16 GB, 6 GB more than resources.gpu_memory",
        ),
        ({"gpu": None, "count": 0}, {"resources": Resources(gpu_memory_bytes=(1, None))}, "has no GPU"),
        (
            {"memory_gb": 2},
            {"resources": Resources(memory_bytes=4 * 10**9)},
            "has 2 GB of memory, less than resources.memory",
        ),
        ({"provider": "aws"}, {"where": Where(clouds=("local",))}, "cloud aws is excluded by where.clouds"),
        ({"region": "us-1"}, {"where": Where(regions=("eu-*",))}, "region us-1 is excluded by where.regions"),
        ({"spot": True}, {"capacity": (CapacityType.ON_DEMAND,)}, "spot is not in capacity"),
        ({"age_s": 3 * 86_400}, {}, "price is 3 days old"),
    ],
)
def test_a_constraint_is_named_with_its_figure(case, offer, spec, reason):
    case.offer("good", 5)
    case.offer("bad", 1, **offer)
    placement = case.decide(Demand(case.job(**spec), STEPS))
    assert reasons(placement) == {"good": "", "bad": reason}
    assert [a.feasible for a in placement.alternatives] == [True, False]


def test_too_few_cpus_are_named(case):
    case.offer("bad", 1)
    placement = case.decide(Demand(case.job(resources=Resources(cpu=8)), STEPS))
    assert reasons(placement) == {"bad": "has 4 CPUs, resources.cpu asks for 8"}


def test_an_offer_without_a_price_is_named(case):
    case.offer("good", 5)
    case.offer("bad", 1)
    case.prices.pop()
    assert reasons(case.decide(Demand(case.job(), STEPS)))["bad"] == "no price is known"


def test_a_refused_offer_is_left_alone_for_a_while_and_says_since_when(case):
    cheap = case.offer("cheap", 1)
    expensive = case.offer("dear", 5)
    case.happened(cheap, "refused", minutes_ago=12)
    placement = case.decide(Demand(case.job(), STEPS))
    assert placement.offer_id == expensive
    assert reasons(placement)["cheap"] == "no capacity 12 min ago"
    case.now += 4 * 60_000
    assert case.decide(Demand(case.job(), STEPS)).offer_id == cheap


def test_an_offer_whose_machine_was_just_lost_is_left_alone_for_a_while(case):
    cheap = case.offer("cheap", 1, spot=True)
    case.offer("dear", 5)
    case.happened(cheap, "launched", minutes_ago=30)
    case.happened(cheap, "lost", minutes_ago=2)
    assert reasons(case.decide(Demand(case.job(), STEPS)))["cheap"] == "a machine was lost there 2 min ago"


def test_the_end_of_the_first_back_off_is_an_occasion_to_decide_again(case, settled):
    usable, sooner = case.offer("usable", 1), case.offer("sooner", 2)
    too_small, expensive = case.offer("too-small", 1, gpu="SIM-S"), case.offer("dear", 5)
    for offer_id, minutes_ago in ((usable, 2), (sooner, 12), (too_small, 14)):
        case.happened(offer_id, "refused", minutes_ago)
    job = case.job(resources=Resources((GpuRequest("SIM-M"),)))
    ends_at_ms = case.now + 3 * 60_000
    assert case.decide(Demand(job, STEPS)).again_at_ms == ends_at_ms
    stays = case.decide(Demand(job, STEPS), settled(expensive))
    assert (stays.action, stays.again_at_ms) == ("stay", ends_at_ms)
    case.happened(expensive, "refused", 1)
    waits = case.decide(Demand(job, STEPS))
    assert (waits.action, waits.again_at_ms) == ("wait", ends_at_ms)
    assert case.decide(Demand(replace(job, state="paused"), STEPS)).again_at_ms is None
    case.now += 15 * 60_000
    assert case.decide(Demand(job, STEPS)).again_at_ms is None


def test_only_the_first_of_several_rejection_reasons_is_shown(case):
    case.offer("good", 5)
    case.offer("bad", 1, gpu="SIM-S", region="us-1", age_s=10 * 86_400)
    job = case.job(resources=Resources((GpuRequest("SIM-M"),)), where=Where(regions=("eu-*",)))
    assert reasons(case.decide(Demand(job, STEPS)))["bad"] == "GPU SIM-S is not in resources.gpu"


def test_without_any_fit_the_job_waits_for_the_most_common_reason_and_names_the_nearest_miss(case):
    for number in range(3):
        case.offer(f"us{number}", 1, region="us-1")
    case.offer("dear", 5)
    job = case.job(where=Where(regions=("eu-*",)), budget_nano_usd=usd(40))
    placement = case.decide(Demand(job, STEPS))
    assert placement.action == "wait"
    assert placement.offer_id is None
    assert placement.reason == (
        "no offer fits: 3 of 4 fail on region, 1 on budget; nearest miss local/eu-1/eu-1a/dear/on_demand: "
        "would cost $10.42 over the budget; a budget of $52.43 would be enough in 95% of cases "
        "(the cost may be higher than expected)"
    )


def test_a_deadline_and_a_budget_that_cannot_be_kept_are_both_named(case):
    case.offer("dear", 5)
    job = case.job(budget_nano_usd=usd(40), deadline_at_ms=case.now + 3_600_000)
    placement = case.decide(Demand(job, STEPS))
    assert placement.action == "wait"
    assert placement.reason.endswith(
        "would cost $10.42 over the budget and finish 9.1 h after the deadline; "
        "a budget of $52.43 would be enough to finish late in 95% of cases (the cost may be higher than expected)"
    )
    spent = case.decide(Demand(job, STEPS, done_steps=1, spent_nano_usd=usd(40)))
    assert "the budget is spent, and it would finish 9.1 h after the deadline" in spent.reason


@pytest.mark.parametrize("losses", [0, 3, 8])
def test_a_rejected_offer_is_said_to_be_as_late_and_as_expensive_as_is_shown_of_it(case, losses):
    """What follows the losses of a spot machine counts in the words, too."""
    spot = case.offer("spot", 1, spot=True)
    case.offer("sure", 3)
    for hour in range(losses):
        case.happened(spot, "launched", minutes_ago=60 * (hour + 1))
        case.happened(spot, "lost", minutes_ago=60 * hour + 30)
    case.seen.sort(key=lambda each: each.at_ms)
    job = case.job(budget_nano_usd=usd(5), deadline_at_ms=case.now + 5 * 3_600_000)
    placement = case.decide(Demand(job, STEPS))
    shown = next(each for each in placement.alternatives if each.offer_id == spot)
    over, late_h = shown.cost_nano_usd - usd(5), shown.duration_s / 3600 - 5
    said = f"would cost ${over / 1e9:.2f} over the budget and finish {late_h:.1f} h after the deadline"
    assert (shown.reason, late_h > 11) == (said, True)
    assert said in placement.reason


def test_the_suggested_budget_pays_for_an_offer_that_is_in_time_if_there_is_one(case):
    case.offer("slow", 5, gpu="SIM-S")
    fast = case.offer("fast", 60)
    rates = {"SIM-S": 0.2, "SIM-M": 1.0}
    job = case.job(rates=rates, budget_nano_usd=usd(40), deadline_at_ms=case.now + 12 * 3_600_000)
    said = case.decide(Demand(job, STEPS)).reason
    assert f"nearest miss {fast}: would cost $" in said
    assert "deadline" not in said
    amount = float(re.search(r"a budget of \$(\d+\.\d\d) would be enough in 95% of cases", said)[1])
    enough = replace(job, spec=replace(job.spec, budget_nano_usd=usd(amount)))
    assert case.decide(Demand(enough, STEPS)).offer_id == fast


@given(
    st.lists(st.tuples(st.floats(0.1, 50.0), st.booleans()), min_size=1, max_size=5),
    st.floats(0.01, 3),
    st.floats(0.01, 3),
)
def test_an_offer_that_can_keep_neither_limit_names_both(offers, deadline_h, budget):
    case = DecisionCase()
    for number, (dollars, spot) in enumerate(offers):
        case.offer(f"m{number}", dollars, spot=spot)
    job = case.job(budget_nano_usd=usd(budget), deadline_at_ms=case.now + round(deadline_h * 3_600_000))
    for each in case.decide(Demand(job, STEPS)).alternatives:
        if not each.feasible and each.cost_low_nano_usd > usd(budget):
            assert re.search(r"would cost .* over the budget and finish .* after the deadline", each.reason)


def test_only_a_larger_budget_helps_if_no_offer_open_or_shut_for_a_while_is_within_it(case):
    job = case.job(budget_nano_usd=usd(40))
    cheap = case.offer("cheap", 1)
    assert not case.decide(Demand(job, STEPS)).lacks_money
    case.happened(cheap, "refused")
    case.offer("dear", 5)
    waits = case.decide(Demand(job, STEPS))
    assert (waits.action, waits.lacks_money) == ("wait", False)
    case.price(cheap, 5)
    assert case.decide(Demand(job, STEPS)).lacks_money
    assert not case.decide(Demand(case.job("job_2"), STEPS)).lacks_money


@pytest.mark.parametrize("spent", [0, 1, 39.5, 41])
def test_the_suggested_budget_is_enough(case, spent):
    case.offer("dear", 5)
    job = case.job(budget_nano_usd=usd(40))
    demand = Demand(job, STEPS, done_steps=0, spent_nano_usd=usd(spent))
    placement = case.decide(demand)
    assert placement.action == "wait"
    said = placement.reason.rpartition("; ")[2]
    if spent:
        assert said.startswith("to continue: tradewind budget set ")
        amount = said.split()[-1]
    else:
        assert said.startswith("a budget of $")
        amount = said.removeprefix("a budget of $").split()[0]
    enough, less = (
        replace(demand, job=replace(job, spec=replace(job.spec, budget_nano_usd=usd(amount) - short)))
        for short in (0, usd("0.02"))
    )
    assert case.decide(enough).action == "place"
    assert case.decide(enough).chance is None, "kept at the 95th percentile"
    assert case.decide(less).chance is not None or case.decide(less).action == "wait"


def test_a_job_of_unknown_speed_that_has_not_started_is_given_no_command_for_its_budget(case):
    case.offer("dear", 5)
    job = case.job(rates={}, budget_nano_usd=1)
    new, begun = (case.decide(Demand(job, STEPS, spent_nano_usd=spent)) for spent in (0, 1))
    assert (new.action, begun.action) == ("wait", "wait")
    rents = "$0.09 is enough to rent a machine; training costs more"
    assert new.reason.endswith(f"; it needs a larger budget: {rents}")
    assert "tradewind" not in new.reason
    assert begun.reason.endswith(f"; to continue: tradewind budget set job_1 USD ({rents})")
    shared = case.decide(Demand(job, STEPS, spent_nano_usd=1, typed_name="job_1ABC"))
    assert shared.reason.endswith(f"; to continue: tradewind budget set job_1ABC USD ({rents})")


def test_the_nearest_miss_of_a_job_of_unknown_speed_is_the_machine_that_costs_least_to_rent(case):
    case.offer("quick", 5, gpu="SIM-M")
    cheap = case.offer("cheap", 3, gpu="SIM-S")
    reason = case.decide(Demand(case.job(rates={}, budget_nano_usd=1), STEPS)).reason
    missing = re.search(rf"nearest miss {cheap}: renting and ending a machine takes \$(\S+) more", reason)
    enough = re.search(r"\$(\S+) is enough to rent a machine", reason)
    assert float(missing[1]) <= float(enough[1])


def test_the_suggested_budget_is_the_least_that_is_enough_and_not_that_of_the_nearest_miss(case):
    known = case.offer("known", 3.0, gpu="V100", provider="aws")
    near = case.offer("near", 3.0, gpu="A100-80GB", provider="aws")  # faster by any estimate, but by how much?
    job = case.job(rates={"V100": 1.0}, budget_nano_usd=usd(1))
    refused = case.decide(Demand(job, STEPS))
    assert f"nearest miss {near}" in refused.reason
    amount = re.search(r"a budget of \$([\d,.]+) would be enough", refused.reason)[1].replace(",", "")
    enough = case.decide(Demand(replace(job, spec=replace(job.spec, budget_nano_usd=usd(amount))), STEPS))
    assert (enough.offer_id, enough.chance) == (known, None)


def test_the_budgets_of_a_job_that_costs_more_than_an_integer_holds_are_still_in_order(case):
    case.offer("slow", 1)
    demand = Demand(case.job(rates={"SIM-M": 1e-6}), 10**9)
    needed = needed_budgets([demand], case.market(), case.perf(), limits=MoveLimits())["job_1"]
    assert 2**63 < needed.least <= needed.enough


def test_a_job_with_an_impossible_deadline_starts_where_it_finishes_first_and_says_so(case):
    case.offer("cheap", 1, gpu="SIM-S")
    fast = case.offer("fast", 9)
    job = case.job(deadline_s=3600, rates={"SIM-S": 0.5, "SIM-M": 1.0})
    placement = case.decide(Demand(job, STEPS))
    assert (placement.action, placement.offer_id, placement.chance) == ("place", fast, 0.0)
    assert placement.reason == "the deadline cannot be met; this is the earliest finish, 9.1 h late"


def test_an_impossible_deadline_is_no_reason_to_pass_the_budget(case):
    cheap = case.offer("cheap", 1, gpu="SIM-S")
    case.offer("fast", 9)
    job = case.job(deadline_s=3600, rates={"SIM-S": 0.5, "SIM-M": 1.0}, budget_nano_usd=usd(40))
    assert case.decide(Demand(job, STEPS)).offer_id == cheap
    poor = replace(job, spec=replace(job.spec, budget_nano_usd=usd(4)))
    assert case.decide(Demand(poor, STEPS)).action == "wait"


def test_a_late_job_does_not_risk_its_budget_to_finish_a_few_minutes_earlier(case):
    """$10.11 (9.28 to 11.02) or, 4 % later, $4.21 (3.87 to 4.59)."""
    sooner, kept = case.offer("sooner", 1.25), case.offer("kept", 0.5, gpu="SIM-L")
    job = case.job(rates={"SIM-M": 1.25, "SIM-L": 1.2}, deadline_at_ms=case.now - 1)

    def placed(dollars):
        return case.decide(Demand(replace(job, spec=replace(job.spec, budget_nano_usd=usd(dollars))), STEPS))

    ample, tight, poor = placed(20), placed(9.6), placed(4.1)
    assert (ample.offer_id, tight.offer_id, poor.offer_id) == (sooner, kept, kept)
    assert [each.reason.partition(", ")[0] for each in (ample, tight, poor)] == [
        "the deadline cannot be met; this is the earliest finish",
        "the deadline cannot be met; this is the earliest finish within the budget",
        "the deadline cannot be met; this is the earliest finish that may stay within the budget",
    ]
    assert reasons(tight)["sooner"].startswith("would cost $0.51 over the budget")
    assert reasons(placed(10.2))["sooner"].startswith("could cost $0.")
    assert (tight.chance, tight.cost_nano_usd < usd(9.6)) == (0.0, True)


def test_a_late_job_that_costs_least_near_the_earliest_finish_within_its_budget_says_so(case):
    case.offer("sooner", 9.0)
    case.offer("first", 0.8, gpu="SIM-L")
    near = case.offer("near", 0.5, gpu="SIM-S")
    job = case.job(
        rates={"SIM-M": 2.0, "SIM-L": 1.02, "SIM-S": 1.0}, deadline_at_ms=case.now - 1, budget_nano_usd=usd(15)
    )
    placement = case.decide(Demand(job, STEPS))
    assert placement.offer_id == near
    assert "the lowest cost within 3% of the earliest finish within the budget" in placement.reason


@pytest.mark.parametrize(
    ("spec", "sure", "said"),
    [
        ({"budget_nano_usd": usd(20)}, True, "the budget pays for no on-demand machine"),
        ({"budget_nano_usd": usd("30.5")}, True, "the budget may not pay for an on-demand machine"),
        ({"capacity": (CapacityType.SPOT,)}, True, "no on-demand machine may be used"),
        ({}, False, "no on-demand machine may be used"),
        ({"budget_nano_usd": usd(60)}, True, ""),
        ({}, True, ""),
    ],
)
def test_a_deadline_that_no_on_demand_machine_can_keep_is_called_uncertain(case, spec, sure, said):
    """10 hours of work, 40 until the deadline: $10 on spot, $30 on demand."""
    spot = case.offer("spot", 1, spot=True)
    if sure:
        case.offer("sure", 3)
    placement = case.decide(Demand(case.job(deadline_at_ms=case.now + 40 * 3_600_000, **spec), STEPS))
    assert (placement.action, placement.offer_id) == ("place", spot)
    uncertain = "so whether the deadline is met depends on spot capacity"
    assert (said in placement.reason, uncertain in placement.reason) == (True, bool(said))


def test_an_empty_market_is_reported(case):
    assert case.decide(Demand(case.job(), STEPS)).reason == "no offers are known"


def test_the_limit_of_a_price_age_is_a_rail(case):
    case.offer("only", 1, age_s=3600)
    demand = Demand(case.job(), STEPS)
    assert case.decide(demand, limits=MoveLimits(max_price_age_s=1800)).action == "wait"


def test_alternatives_list_every_offer_once_the_chosen_first_the_rejected_last(case):
    case.offer("b", 2)
    case.offer("a", 3)
    case.offer("c", 1, region="us-1")
    case.offer("d", 1.5)
    placement = case.decide(Demand(case.job(where=Where(regions=("eu-*",))), STEPS))
    assert [a.offer_id.split("/")[3] for a in placement.alternatives] == ["d", "b", "a", "c"]
    assert [bool(a.reason) for a in placement.alternatives] == [False, True, True, True]


def test_offers_that_are_left_to_other_jobs_are_said_to_be_reserved_for_them(case):
    taken = case.offer("taken", 1)
    placement = case.decide(replace(Demand(case.job(), STEPS), reserved=(taken,)))
    assert placement.reason == (
        f"no offer fits: 1 of 1 fail on a reservation for other jobs; nearest miss {taken}: "
        "reserved for other jobs at present; this job gets its turn later"
    )


def test_no_amount_is_named_where_the_amount_of_work_is_not_known(case):
    """Only ratios say something then."""
    case.offer("cheap", 1.0)
    case.offer("dear", 5.0)
    placement = case.decide(Demand(case.job(rates={}, objective=FASTEST), STEPS))
    assert placement.cost_nano_usd is None
    assert not re.search(r"\$", " ".join(reasons(placement).values())), reasons(placement)


@pytest.mark.parametrize(
    ("budget", "spent", "said"),
    [("25.555", "0", "$25.555"), ("25.50", "0", "$25.50"), ("25.555", "0.123456789", "$25.43")],
)
def test_what_is_left_of_a_budget_is_never_rounded_up(case, budget, spent, said):
    case.offer("cheap", 1.0)
    job = case.job(rates={"SIM-M": 1.0}, budget_nano_usd=usd(budget))
    placement = case.decide(Demand(job, STEPS, spent_nano_usd=usd(spent)))
    assert f"within the {said} left of the budget" in placement.reason


@pytest.mark.parametrize(("hours", "fails"), [(9.0, True), (11.0, False), (None, False)])
def test_a_plan_says_that_a_job_will_fail_at_its_max_duration(case, hours, fails):
    """36,000 steps take 10 hours."""
    case.offer("one", 1.0)
    case.offer("other", 2.0)
    longest_s = None if hours is None else 3600 * hours
    placement = case.decide(Demand(case.job(rates={"SIM-M": 1.0}, max_duration_s=longest_s), STEPS))
    assert ("; training takes about 10." in placement.reason) == fails, placement.reason
    assert placement.reason.endswith(" h, but the job fails at its max_duration of 9.0 h") == fails


@pytest.mark.parametrize("slack_s", [560, 600, 640, 700])
def test_a_plan_names_no_negative_time_before_a_deadline(case, slack_s):
    """One loss would still be in time, but the wait after it is long enough for the mean to be late."""
    case.startup_s = 1.0
    case.offer("only", 0.1, spot=True)
    due_ms = case.now + 1000 * (1200 + slack_s)
    placement = case.decide(
        Demand(case.job(rates={"SIM-M": 1.0}, deadline_at_ms=due_ms), 100_000, done_steps=98_800, checkpoint_s=1.0)
    )
    assert placement.chance is None
    early_s = (due_ms - placement.finish_at_ms) / 1000
    when = f"{span(early_s)} before" if early_s >= 0 else f"on average {span(-early_s)} after"
    assert f", {when} the deadline; " in placement.reason
