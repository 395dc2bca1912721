"""Turns on owned machines: who contends for them, and how many there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from orchestrator.market import Listing, Market, rooms
from orchestrator.model import GpuRequest, Resources
from orchestrator.policy import Demand
from orchestrator.policy.time_sharing import Given, History, Rules, take_turns
from providers.base import Covered, Quota
from tests.unit.policy.conftest import DecisionCase

TURN_S = 600.0


@pytest.fixture
def case() -> DecisionCase:
    return DecisionCase(startup_s=0.0)


def machines(limit: int, *types: str, used: int = 0) -> Quota:
    return Quota(f"machines {types}", "desk", limit, used, Covered("machines", instance_types=types), owned=True)


def job(case: DecisionCase, name: str, **fields: object) -> Demand:
    return Demand(case.job(name, **fields), 1_000_000, handover_s=1.0)  # type: ignore[arg-type]


def given(
    case: DecisionCase,
    demands: Sequence[Demand],
    *quotas: Quota,
    on: Mapping[str, str],
    most_machines: int = 9,
    most_usd_per_h: float = 99.0,
    start_s: float = 0.0,
) -> Given | None:
    """`on`: by name, the offer where a job has trained for two turns; the others have waited as long."""
    listing, past = Listing.of(case.offers), {}
    market = Market.as_of(
        case.now,
        offers=listing,
        prices=case.prices,
        availability=case.seen,
        startup_s={"local": 0.0},
        rooms=rooms(listing, {"local": quotas}),
    )
    for each in demands:
        offer, long_s = on.get(each.job.name), 2 * TURN_S
        had_s = {offer: long_s} if offer else {}
        waited_s, turn_s = (0.0, long_s) if offer else (long_s, 0.0)
        past[each.job.id] = History(long_s, waited_s, long_s, had_s, offer, turn_s, start_s)
    held = [(offer, 1) for offer in on.values()]
    rules = Rules("max-min-fairness", TURN_S, most_machines, most_usd_per_h, held, TURN_S / 2)
    return take_turns(demands, past, market, case.perf(), rules)


def test_a_job_moves_if_another_can_use_only_its_machine(case: DecisionCase) -> None:
    slow, fast = case.offer("slow", 0.0, gpu="T4"), case.offer("fast", 0.0, gpu="H100")
    a = job(case, "a", rates={"T4": 1.0, "H100": 1.0})
    b = job(case, "b", rates={"H100": 1.0}, resources=Resources(gpus=(GpuRequest("H100"),)))
    quotas = machines(1, "slow"), machines(1, "fast", used=1)
    found = given(case, [a, b], *quotas, on={"a": fast})
    assert found is not None
    assert (found.has_turn, found.give_way) == (("a", "b"), ("a",))
    assert found.not_now["a"] == {fast}
    assert given(case, [a, b], *quotas, on={"a": slow, "b": fast}) is None


@pytest.mark.parametrize(("used", "waits"), [(1, False), (2, True)])
def test_machines_that_others_use_are_not_shared(case: DecisionCase, used: int, waits: bool) -> None:
    only = case.offer("only", 0.0)
    found = given(case, [job(case, "a"), job(case, "b")], machines(2, "only", used=used), on={"a": only})
    assert (found is not None) == waits
    if found is not None:
        assert (found.has_turn, found.give_way, found.machines) == (("b",), ("a",), 1)


def test_a_machine_that_refused_to_start_is_not_counted(case: DecisionCase) -> None:
    only = case.offer("only", 0.0)
    case.happened(only, "refused")
    found = given(case, [job(case, "a"), job(case, "b")], machines(2, "only", used=1), on={"a": only})
    assert found is not None
    assert (found.has_turn, found.give_way) == (("b",), ("a",))


@pytest.mark.parametrize("limit", [{"most_usd_per_h": 1.5}, {"most_machines": 1}])
def test_what_the_installation_may_have_up_is_shared(case: DecisionCase, limit: dict[str, float]) -> None:
    only = case.offer("only", 1.0)
    found = given(case, [job(case, "a"), job(case, "b")], machines(2, "only", used=1), on={"a": only}, **limit)  # type: ignore[arg-type]
    assert found is not None
    assert (found.has_turn, found.give_way, found.machines) == (("b",), ("a",), 1)


@pytest.mark.parametrize(("start_s", "over"), [(0.0, True), (100.0, True), (140.0, False)])
def test_a_turn_is_nine_times_as_long_as_a_change_of_machines(case: DecisionCase, start_s: float, over: bool) -> None:
    only = case.offer("only", 0.0)
    jobs = [job(case, "a"), job(case, "b")]
    found = given(case, jobs, machines(1, "only", used=1), on={"a": only}, start_s=start_s)
    assert found is not None
    assert found.give_way == (("a",) if over else ())
