"""A long job tries another kind of hardware for minutes before it commits, when knowing is worth more than it costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.model import FASTEST, Expected, GpuRequest, Objective, Placement
from orchestrator.perf import Observation
from orchestrator.policy import Demand, MoveLimits, Running, Underway
from orchestrator.policy.trial import PROBE_S
from providers.money import usd
from tests.unit.policy.conftest import HOUR, NOW, DecisionCase

LONG = 3_000_000  # steps: ten days on the V100
KINDS = ("K80", "P100", "V100")


@pytest.fixture
def offers(case: DecisionCase) -> dict[str, str]:
    """Which of them is cheapest per step depends on the job."""
    prices = {"K80": 1.2, "P100": 2.9, "V100": 3.06}
    return {gpu: case.offer(f"one.{gpu}", dollars, gpu=gpu, provider="aws") for gpu, dollars in prices.items()}


def fresh(case: DecisionCase, **spec: object) -> Demand:
    return Demand(job=case.job(rates={}, **spec), total_steps=LONG)


def running(case: DecisionCase, offer_id: str, minutes: float = 60, **changes: object) -> Running:
    return Running(offer_id, case.now - round(minutes * 60_000), **changes)


def measured(case: DecisionCase, **rates: float) -> None:
    for gpu, rate in rates.items():
        case.observations.append(Observation("job_1", gpu, 1, rate, 2209, case.now))


def test_a_new_job_begins_where_it_is_expected_to_be_best_and_the_plan_shows_what_it_will_try(
    case: DecisionCase, offers: dict[str, str]
) -> None:
    said = Expected(GpuRequest("V100"), 5.0)
    placed, without = (case.decide(fresh(case, probe=probe, expected=said)) for probe in (True, False))
    assert placed.probe is not None
    assert (placed.action, placed.offer_id) == ("place", without.offer_id)
    assert placed.probe.offer_id in {*offers.values()} - {placed.offer_id}
    assert placed.probe.minutes == 8
    assert placed.probe.saving_nano_usd > placed.probe.cost_nano_usd > 0


def test_a_new_job_whose_like_was_measured_there_begins_with_the_probe(
    case: DecisionCase, offers: dict[str, str]
) -> None:
    measured(case, V100=5.0)
    placed = case.decide(fresh(case))
    assert placed.probe is not None
    assert placed.offer_id == placed.probe.offer_id != offers["V100"]
    assert placed.saving_nano_usd == placed.probe.saving_nano_usd
    assert placed.reason.startswith("a probe: 8 min on ")
    assert {each.reason for each in placed.alternatives[1:]} == {"to be decided after the probe"}


@pytest.mark.parametrize(
    ("steps", "spec", "reason"),
    [
        (LONG, {"probe": False}, "probe: false"),
        (600, {}, "less than a probe"),
        (4_000, {}, "costs more than it is expected to save"),
    ],
)
def test_without_a_probe_it_says_why(
    case: DecisionCase, offers: dict[str, str], steps: int, spec: dict[str, object], reason: str
) -> None:
    measured(case, V100=5.0)
    where = running(case, offers["V100"])
    stayed = case.decide(replace(Demand(job=case.job(rates={}, **spec), total_steps=steps), done_steps=0), where)
    assert (stayed.action, stayed.offer_id) == ("stay", offers["V100"])
    assert stayed.probe is not None
    assert stayed.probe.offer_id is None
    assert reason in stayed.probe.reason


def test_a_budget_must_cover_the_probe_and_the_rest_at_their_highest_cost(
    case: DecisionCase, offers: dict[str, str]
) -> None:
    measured(case, V100=5.0)
    where = running(case, offers["V100"])
    highest = next(
        each.cost_high_nano_usd
        for each in case.decide(fresh(case, probe=False), where).alternatives
        if each.offer_id == offers["V100"]
    )
    assert highest is not None
    tight, ample = (case.decide(fresh(case, budget_nano_usd=highest + usd(more)), where) for more in ("0.20", "200.00"))
    assert tight.probe is not None
    assert tight.action == "stay"
    assert "budget" in tight.probe.reason
    assert ample.probe is not None
    assert ample.offer_id == ample.probe.offer_id


def test_a_deadline_leaves_time_for_it_or_not(case: DecisionCase, offers: dict[str, str]) -> None:
    measured(case, V100=5.0)
    where = running(case, offers["V100"])
    at_longest_ms = round(LONG / case.perf().estimate_kind(case.job(rates={}), "V100", 1).low * 1000)
    tight, ample = (
        case.decide(fresh(case, deadline_at_ms=case.now + at_longest_ms + slack_ms), where)
        for slack_ms in (HOUR // 6, 100 * HOUR)
    )
    assert tight.probe is not None
    assert (tight.action, tight.probe.reason) == ("stay", "the deadline leaves no time for a probe")
    assert ample.probe is not None
    assert ample.offer_id == ample.probe.offer_id


def test_a_running_job_is_tried_elsewhere_once_it_was_measured_where_it_is(
    case: DecisionCase, offers: dict[str, str]
) -> None:
    where = running(case, offers["V100"], minutes=5)
    assert case.decide(fresh(case), where).probe is None
    measured(case, V100=5.0)
    moved = case.decide(fresh(case), where)
    assert moved.action == "move"
    assert moved.probe is not None
    assert moved.offer_id == moved.probe.offer_id != offers["V100"]
    manual = case.decide(fresh(case), replace(where, came_by="manual"))
    assert manual.action == "stay"
    often = case.decide(fresh(case), replace(where, migrations_today=3))
    assert (often.action, often.probe) == ("stay", None)


def tried(case: DecisionCase, offers: dict[str, str], rate: float | None, minutes: float) -> Placement:
    """After so many minutes of a probe on the P100, which showed this rate; on the V100 it makes 5 steps/s."""
    measured(case, V100=5.0, K80=0.5, **({} if rate is None else {"P100": rate}))
    return case.decide(fresh(case), running(case, offers["P100"], minutes, came_by="probe"))


def test_a_probe_lasts_its_minutes_whatever_it_shows(case: DecisionCase, offers: dict[str, str]) -> None:
    held = tried(case, offers, rate=0.5, minutes=3)
    assert (held.action, held.offer_id) == ("stay", offers["P100"])
    assert "is on a probe here for 8 min" in held.reason
    assert held.again_at_ms == NOW + round((PROBE_S - 180) * 1000)


def test_after_a_probe_it_goes_where_a_step_costs_least_without_waiting_out_a_dwell(
    case: DecisionCase, offers: dict[str, str]
) -> None:
    back = tried(case, offers, rate=0.5, minutes=8)
    assert (back.action, back.offer_id, back.again_at_ms) == ("move", offers["V100"], None)


def test_after_a_probe_it_stays_where_that_was_good(case: DecisionCase, offers: dict[str, str]) -> None:
    stays = tried(case, offers, rate=6.0, minutes=8)
    assert (stays.action, stays.offer_id) == ("stay", offers["P100"])
    assert stays.probe is not None
    assert stays.probe.reason == "no other kind could be better"


def test_a_program_too_slow_to_be_measured_is_given_three_times_the_minutes(
    case: DecisionCase, offers: dict[str, str]
) -> None:
    held = tried(case, offers, rate=None, minutes=9)
    assert held.again_at_ms == NOW + round((3 * PROBE_S - 540) * 1000)


def test_a_lost_job_is_brought_back_without_a_probe(case: DecisionCase, offers: dict[str, str]) -> None:
    del offers
    measured(case, V100=5.0)
    assert case.decide(replace(fresh(case), done_steps=100, spent_nano_usd=1)).probe is None


def test_who_wants_the_fastest_pays_for_no_probe_and_time_has_a_price_in_between(
    case: DecisionCase, offers: dict[str, str]
) -> None:
    measured(case, K80=0.9)
    where = running(case, offers["K80"])
    assert case.decide(fresh(case, objective=FASTEST), where, MoveLimits(max_migrations_per_day=4)).probe is None
    balanced = case.decide(fresh(case, objective=Objective(0.5, 0.5)), where)
    assert balanced.probe is None or balanced.offer_id != offers["K80"]


def test_simulated_kinds_differ_by_what_is_declared_and_a_probe_would_tell_nothing(case: DecisionCase) -> None:
    """Prices per step within 2 % of each other, and a start-up of seconds, at a clock factor of 600."""
    for gpu, dollars in (("SIM-S", 0.09), ("SIM-M", 0.182), ("SIM-L", 0.36)):
        case.offer(f"sim.{gpu}", dollars, gpu=gpu, spot=True)
    large = case.offers[2].id
    for rates in ({}, {"SIM-L": 0.004}):
        job = case.job(rates=rates)
        for steps in (400, 400_000):
            for where in (None, running(case, large)):
                placed = case.decide(Demand(job=job, total_steps=steps), where)
                assert (placed.action, placed.probe) == ("place" if where is None else "stay", None)


@pytest.mark.parametrize("ready", [False, True])
def test_a_probe_that_was_begun_goes_on_though_its_kind_is_not_certain_to_meet_the_deadline(
    case: DecisionCase, offers: dict[str, str], ready: bool
) -> None:
    """That is what the probe is to find out: a probe may go where the deadline is only likely to be kept."""
    measured(case, V100=5.0)
    job = case.job(rates={}, deadline_at_ms=NOW + 12 * 24 * HOUR)
    demand = Demand(job, LONG, done_steps=1000)
    here = running(case, offers["V100"])
    begun = case.decide(demand, here)
    assert begun.action == "move"
    assert begun.probe is not None
    assert begun.offer_id == begun.probe.offer_id
    goes_on = case.decide(demand, replace(here, move=Underway(str(begun.offer_id), "probe", ready=ready)))
    assert (goes_on.action, goes_on.offer_id) == ("move", begun.offer_id)
