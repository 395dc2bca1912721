"""What makes an impossible plan possible: the smallest delay, the least raise of each quota, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.errors import InfeasibleError
from orchestrator.formats.readable import YEAR_S, span
from orchestrator.jobfile.units import parse_duration
from orchestrator.market import Listing, Market, rooms, rooms_raised
from orchestrator.model import GroupPolicy
from orchestrator.policy import Demand
from orchestrator.policy.groups import remedies as module
from orchestrator.policy.groups.planning import asked, joint
from orchestrator.policy.groups.remedies import Later, Remedies, find_remedies
from orchestrator.policy.groups.time_limit import TimeLimit
from providers.base import Covered, Quota
from tests.unit.policy.conftest import DecisionCase

HOUR_STEPS = 3600  # at one step per second
H = 3600.0


@pytest.fixture
def case() -> DecisionCase:
    return DecisionCase(startup_s=0.0)


def quota(name: str, limit: int, *, used: int = 0, unit: str = "machines") -> Quota:
    covers = Covered(unit, instance_types=(f"{name}*",))  # type: ignore[arg-type]
    return Quota(f"{name} instances", "eu-1", limit, used, covers)


def job(case: DecisionCase, name: str, hours: float, deadline_h: float | None, **more: Any) -> Demand:
    due = {} if deadline_h is None else {"deadline_s": deadline_h * H}
    nodes = more.pop("nodes", 1)
    found = case.job(name, **due, **more)
    if nodes > 1:
        found = replace(found, spec=replace(found.spec, resources=replace(found.spec.resources, nodes=nodes)))
        case.observations[-1] = replace(case.observations[-1], gpu_count=nodes)
    return Demand(found, round(hours * HOUR_STEPS))


def market(case: DecisionCase, quotas: Sequence[Quota]) -> Market:
    listing = Listing.of(case.offers)
    limited = rooms(listing, {"local": quotas})
    return Market.as_of(case.now, offers=listing, prices=case.prices, startup_s={"local": 0.0}, rooms=limited)


def found(
    case: DecisionCase, jobs: Sequence[Demand], *quotas: Quota, policy: GroupPolicy = "cheapest", seconds: float = 60.0
) -> Remedies:
    there = market(case, quotas)
    with pytest.raises(InfeasibleError):
        joint(asked(jobs, there, case.perf()), policy)
    out = find_remedies(jobs, there, case.perf(), policy, until=TimeLimit(seconds))
    for each in out.raised:  # what it says is true, and one machine less is not enough
        cost = joint(asked(jobs, raised(there, each.quota, each.limit), case.perf()), policy).cost_usd
        assert cost == pytest.approx(each.cost_usd, rel=1e-6)
        size = 4 if each.quota[1].covers and each.quota[1].covers.unit == "vcpus" else 1
        with pytest.raises(InfeasibleError):
            joint(asked(jobs, raised(there, each.quota, each.limit - size), case.perf()), policy)
    return out


def raised(there: Market, name: tuple[str, Quota], limit: int) -> Market:
    return there.with_fields(rooms=rooms_raised(there.rooms, name, limit - name[1].limit))


def test_two_jobs_on_one_machine_need_an_hour_more_or_a_machine_more(case: DecisionCase) -> None:
    case.offer("p5", 2.0)
    jobs = [job(case, "a", 1, 1.1), job(case, "b", 1, 1.1)]
    out = found(case, jobs, quota("p5", 1))
    later = out.later[-1]
    assert (later.jobs, later.all_deadlines) == (("a", "b"), True)
    assert later.delay_s == pytest.approx(0.9 * H, rel=0.02)
    assert later.cost_usd == pytest.approx(4.0, rel=0.02)
    assert [(each.quota[1].name, each.limit) for each in out.raised] == [("p5 instances", 2)]
    assert out.raised[0].cost_usd == pytest.approx(4.0, rel=0.02)
    assert (out.not_enough, out.unknown, out.delay_unknown) == ((), (), False)


def test_the_delay_is_the_smallest_of_all_deadlines_and_of_those_that_are_late_alone(case: DecisionCase) -> None:
    case.offer("p5", 2.0)
    hours = {"first": (1.0, 1.05), "a": (2.0, 2.1), "b": (3.0, 2.9), "c": (3.0, 40.0)}
    jobs = [job(case, name, *given) for name, given in hours.items()]
    there = market(case, [quota("p5", 2)])
    every, alone = found(case, jobs, quota("p5", 2)).later
    assert (every.all_deadlines, len(every.jobs)) == (True, 4)
    assert (alone.all_deadlines, len(alone.jobs) < 4) == (False, True)
    assert every.delay_s < alone.delay_s

    def cost(later: Later, delay_s: float) -> float:
        more_h = {name: delay_s / H if name in later.jobs else 0.0 for name in hours}
        delayed = [job(case, name, work, due + more_h[name]) for name, (work, due) in hours.items()]
        return joint(asked(delayed, there, case.perf()), "cheapest").cost_usd

    for later in (every, alone):
        assert cost(later, later.delay_s) == pytest.approx(later.cost_usd, rel=1e-3)
        with pytest.raises(InfeasibleError):
            cost(later, later.delay_s - (360 if later.delay_s < 48 * H else 8640))


def test_the_costs_of_two_ways_differ_and_a_quota_that_does_not_help_alone_is_said(case: DecisionCase) -> None:
    """`big` needs both a fast machine and more of them than there are; the slow ones help the others only."""
    case.offer("p5", 10.0, gpu="SIM-L")
    case.offer("g6", 1.0)
    fast = {"SIM-M": 1.0, "SIM-L": 4.0}
    jobs = [job(case, f"fast-{n}", 4, 1.1, rates=fast) for n in range(3)]
    out = found(case, [*jobs, job(case, "slow", 1, 1.1)], quota("p5", 2), quota("g6", 1))
    assert [(each.quota[1].name, each.limit) for each in out.raised] == [("p5 instances", 3)]
    assert out.raised[0].cost_usd == pytest.approx(31.0, rel=0.05)


def test_where_two_quotas_bind_one_alone_is_not_enough(case: DecisionCase) -> None:
    case.offer("p5", 10.0, gpu="SIM-L")
    case.offer("g6", 1.0)
    on_one, on_other = {"SIM-L": 1.0, "SIM-M": 0.1}, {"SIM-L": 0.1, "SIM-M": 1.0}
    jobs = [job(case, f"{n}", 1, 1.1, rates=on_one if n < 2 else on_other) for n in range(4)]
    out = found(case, jobs, quota("p5", 1), quota("g6", 1))
    assert out.raised == ()
    assert sorted(name[1].name for name in out.not_enough) == ["g6 instances", "p5 instances"]
    assert out.later


def test_units_are_those_of_whole_machines_and_what_is_in_use_counts(case: DecisionCase) -> None:
    case.offer("p5", 2.0)  # 4 vCPUs
    jobs = [job(case, f"{n}", 1, 1.1) for n in range(3)]
    (way,) = found(case, jobs, quota("p5", 13, used=5, unit="vcpus")).raised
    assert way.limit == 5 + 12


def test_a_quota_of_nothing_hides_an_offer_that_would_be_fast_enough(case: DecisionCase) -> None:
    case.offer("g6", 1.0)
    case.offer("p5", 10.0, gpu="SIM-L")
    hurried = job(case, "hurried", 2, 1.0, rates={"SIM-M": 1.0, "SIM-L": 4.0})
    out = found(case, [hurried], quota("p5", 0))
    assert [(each.quota[1].name, each.limit) for each in out.raised] == [("p5 instances", 1)]
    assert out.later == (Later(("hurried",), True, pytest.approx(H, rel=0.05), pytest.approx(2.0, rel=0.05)),)


def test_a_quota_below_the_need_of_one_job_has_to_be_that_large(case: DecisionCase) -> None:
    case.offer("p5", 2.0)
    case.offer("g6", 3.0)
    out = found(case, [job(case, "gang", 1, None, nodes=4)], quota("p5", 2), quota("g6", 0))
    assert {each.quota[1].name: each.limit for each in out.raised} == {"p5 instances": 4, "g6 instances": 4}
    costs = {each.quota[1].name: each.cost_usd for each in out.raised}
    assert costs["g6 instances"] == pytest.approx(1.5 * costs["p5 instances"])
    assert out.later == ()


def test_a_gang_with_a_deadline_needs_all_its_machines_at_once(case: DecisionCase) -> None:
    case.offer("p5", 2.0)
    jobs = [job(case, "gang", 1, 4.4, nodes=4), job(case, "one", 1, 4.4)]
    (way,) = found(case, jobs, quota("p5", 1)).raised
    assert way.limit == 4


def test_nothing_helps_a_job_that_is_too_slow_everywhere_but_a_later_deadline(case: DecisionCase) -> None:
    case.offer("p5", 2.0)
    out = found(case, [job(case, "slow", 10, 1.0)], quota("p5", 1))
    assert (out.raised, out.not_enough, out.unknown) == ((), (), ())
    assert out.later
    assert out.later[-1].delay_s == pytest.approx(9 * H, rel=0.05)


def test_a_deadline_that_has_passed_can_be_later_too(case: DecisionCase) -> None:
    case.offer("p5", 2.0)
    out = found(case, [job(case, "a", 1, -1.0), job(case, "b", 1, -2.0)])
    assert out.later
    assert out.later[-1].all_deadlines
    assert out.later[-1].delay_s == pytest.approx(3 * H, rel=0.05)


def test_other_policies_have_ways_out_too(case: DecisionCase) -> None:
    case.offer("p5", 2.0)
    jobs = [job(case, "a", 1, 1.1), job(case, "b", 1, 1.1)]
    for policy in ("makespan", "max-min-fairness"):
        out = found(case, jobs, quota("p5", 1), policy=policy)
        assert [each.limit for each in out.raised] == [2]
        assert out.later


def test_a_delay_that_turns_out_not_to_be_enough_is_unknown(
    case: DecisionCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.offer("p5", 2.0)
    monkeypatch.setattr(module, "_rounded_up", lambda delay_s: delay_s / 2)
    out = found(case, [job(case, "a", 1, 1.1), job(case, "b", 1, 1.1)], quota("p5", 1))
    assert (out.later, out.delay_unknown) == ((), True)
    assert len(out.raised) == 1


def test_other_mistakes_have_no_way_out(case: DecisionCase) -> None:
    case.offer("p5", 2.0)
    assert found(case, [job(case, "a", 1, 9.0, rates={})], quota("p5", 1)) == Remedies()
    assert found(case, [job(case, "a", 1, None)], policy="max-min-fairness") == Remedies()
    hurried = [job(case, "a", 1, 0.5), job(case, "b", 1, None)]  # no deadline helps where there is nothing to share out
    assert found(case, hurried, policy="max-min-fairness") == Remedies()


def test_when_the_time_is_up_the_rest_is_unknown(case: DecisionCase, monkeypatch: pytest.MonkeyPatch) -> None:
    case.offer("p5", 2.0)
    jobs = [job(case, "a", 1, 1.1), job(case, "b", 1, 1.1)]
    out = found(case, jobs, quota("p5", 1), seconds=0.0)
    assert (out.later, out.raised, out.delay_unknown) == ((), (), True)
    assert [name[1].name for name in out.unknown] == ["p5 instances"]
    monkeypatch.setattr(module, "MOST_TRIED", 0)
    out = found(case, jobs, quota("p5", 1))
    assert [name[1].name for name in out.unknown] == ["p5 instances"]
    assert out.later


def test_a_second_of_work_after_a_deadline_that_has_passed_is_as_late_as_that_deadline(case: DecisionCase) -> None:
    case.offer("p5", 2.0)
    jobs = [job(case, "a", 1 / 3600, -1.0), job(case, "b", 1, 0.5)]
    (later,) = found(case, jobs, quota("p5", 1)).later
    assert later.delay_s == pytest.approx(3601, abs=60)
    assert later.jobs == ("a", "b")


@pytest.mark.parametrize("delay_s", [0.2, 61.3, 99.6, 101.0, 5399.0, 6000.5, 180_001.0, 863_999.0, 900_000.0])
def test_a_delay_is_enough_in_the_digits_in_which_it_is_written(delay_s: float) -> None:
    assert delay_s <= parse_duration(span(module._rounded_up(delay_s))) <= 1.2 * delay_s + 60


def test_a_delay_of_years_is_enough_as_it_is_written() -> None:
    assert span(module._rounded_up(2.01 * YEAR_S)) == "2.1 years"
    assert span(module._rounded_up(12.34 * 86_400)) == "13 days"
