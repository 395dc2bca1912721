"""Plans under other quotas: which quotas an assumption means, and what it changes."""

from __future__ import annotations

import shlex

import pytest

from orchestrator.errors import UsageError
from orchestrator.market import Listing, Market, rooms
from orchestrator.policy import Demand
from orchestrator.policy.groups.planning import asked, joint
from orchestrator.services.groups.what_if import key_of, option, quotas, supposed
from providers.base import Covered, Quota
from tests.unit.policy.conftest import DecisionCase

HOUR_STEPS = 3600


@pytest.fixture
def case() -> DecisionCase:
    made = DecisionCase(startup_s=0.0)
    made.offer("p5.large", 1.0)
    made.offer("g6.large", 5.0)
    return made


def market(case: DecisionCase, limit: int = 1, *others: Quota) -> Market:
    known = [
        *others,
        Quota("P instances", "eu-1", limit, 0, Covered("machines", instance_types=("p5.*",))),
        Quota("G instances", "eu-1", 4, 0, Covered("machines", instance_types=("g6.*",))),
    ]
    listing = Listing.of(case.offers)
    return Market.as_of(
        case.now, offers=listing, prices=case.prices, startup_s={"local": 0.0}, rooms=rooms(listing, {"local": known})
    )


def cost(case: DecisionCase, there: Market) -> float:
    demands = [Demand(case.job(f"job-{n}", deadline_s=3700.0), HOUR_STEPS) for n in range(2)]
    return joint(asked(demands, there, case.perf()), "cheapest").cost_usd


@pytest.mark.parametrize("name", ["p5", "P_instances", "p_instances", "p5.*"])
def test_a_larger_quota_lets_more_jobs_take_the_cheap_offer(case: DecisionCase, name: str) -> None:
    before = market(case)
    after = supposed(before, [f"quota.local.eu-1.{name}=2"])
    assert cost(case, before) == pytest.approx(6.0, rel=0.05)
    assert cost(case, after) == pytest.approx(2.0, rel=0.05)
    assert [each[1].limit for each in quotas(before)] == [4, 1]
    assert sorted(each[1].limit for each in quotas(after)) == [2, 4]


def test_a_smaller_one_takes_it_away_and_several_can_be_changed(case: DecisionCase) -> None:
    less = supposed(market(case), ["quota.local.eu-1.p5=0", "quota.local.eu-1.g6=9"])
    assert sorted(each[1].limit for each in quotas(less)) == [0, 9]
    assert cost(case, less) == pytest.approx(10.0, rel=0.05)


def test_the_key_of_a_quota_can_be_pasted(case: DecisionCase) -> None:
    before = market(case)
    for name in quotas(before):
        assert quotas(supposed(before, [f"{key_of(name)}=7"])) != quotas(before)


@pytest.mark.parametrize("scope", ["this computer", "10.0.0.7", "desk1, desk2.example.com", "a b.c d"])
def test_a_scope_may_have_spaces_and_dots(case: DecisionCase, scope: str) -> None:
    own = Quota("machines (all)", scope, 3, 0, Covered("machines"), owned=True)
    (name,) = [each for each in quotas(market(case, 1, own)) if each[1].scope == scope]
    written = shlex.split(option(name, 7))
    assert written[0] == "--what-if"
    assert len(written) == 2
    assert " " not in written[1]
    for assumption in (written[1], f"quota.local.{scope}.machines (all)=7"):
        after = quotas(supposed(market(case, 1, own), [assumption]))
        assert [each[1].limit for each in after if each[1].scope == scope] == [7]
        assert sorted(each[1].limit for each in after if each[1].scope != scope) == [1, 4]


@pytest.mark.parametrize(
    ("family", "changed"), [("p5", ["On-Demand P", "P instances", "Spot P5"]), ("p4d", ["On-Demand P"]), ("g6", [])]
)
def test_a_family_is_found_by_the_patterns_of_its_quotas(case: DecisionCase, family: str, changed: list[str]) -> None:
    case.offer("p4d.24xlarge", 9.0)
    patterns = {"On-Demand P": ("p[0-9]*",), "Spot P5": ("p5*",), "All": ()}
    others = [Quota(name, "eu-1", 3, 0, Covered("machines", instance_types=each)) for name, each in patterns.items()]
    after = quotas(supposed(market(case, 1, *others), [f"quota.local.eu-1.{family}=7"]))
    assert sorted(each[1].name for each in after if each[1].limit == 7) == (changed or ["G instances"])


def test_the_known_quotas_are_listed_so_that_they_can_be_pasted(case: DecisionCase) -> None:
    own = Quota("machines (all)", "this computer", 3, 0, Covered("machines"))
    with pytest.raises(UsageError) as error:
        supposed(market(case, 1, own), ["quota.aws.x.y=2"])
    assert "'quota.local.this_computer.machines_(all)'" in error.value.hint
    assert error.value.hint.startswith("no quotas of aws are known: enable it first")


def test_what_is_not_known_gets_a_suggestion(case: DecisionCase) -> None:
    with pytest.raises(UsageError) as error:
        supposed(market(case), ["quota.local.eu-1.P_instanecs=2"])
    assert "quota.local.eu-1.P_instances" in error.value.hint


@pytest.mark.parametrize("limit", ["-3", "2.5", "many", "", "9" * 5000])
def test_a_limit_that_no_quota_can_have_is_refused_with_what_is_allowed(case: DecisionCase, limit: str) -> None:
    with pytest.raises(UsageError, match="limit of a quota must be a whole number from 0 to 999,999,999") as error:
        supposed(market(case), [f"quota.local.eu-1.p5={limit}"])
    assert error.value.hint == "write quota.CLOUD.SCOPE.NAME=LIMIT, such as quota.aws.us-east-1.p5=384"
