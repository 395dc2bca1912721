"""A plan says what a little more of a quota would be worth to its jobs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.market import Listing, Market, rooms
from orchestrator.policy import Demand, MoveLimits, decide
from orchestrator.services.jobs.quotas import worth_of_quotas
from orchestrator.services.rentable import QuotaWorth
from providers.base import Covered, Quota
from tests.unit.policy.conftest import DecisionCase

HOUR_STEPS = 3600  # at one step per second


@pytest.fixture
def case() -> DecisionCase:
    return DecisionCase(startup_s=0.0)


def quota(limit: int, used: int = 0, **covers) -> Quota:
    return Quota("vCPUs", "eu-1", limit, used, Covered("vcpus", **covers))


def worth(case: DecisionCase, jobs: int, *quotas: Quota) -> tuple[QuotaWorth, ...]:
    listing = Listing.of(case.offers)
    market = Market.as_of(
        case.now, offers=listing, prices=case.prices, startup_s={"local": 0.0}, rooms=rooms(listing, {"local": quotas})
    )
    demands = []
    for number in range(jobs):
        job = case.job(f"job-{number}")
        job = replace(job, spec=replace(job.spec, train=replace(job.spec.train, steps=HOUR_STEPS)))
        demands.append(Demand(job, HOUR_STEPS))
    plan = decide(demands, market, case.perf(), {})
    return worth_of_quotas(plan, demands, market, case.perf(), {}, MoveLimits())


def test_it_is_what_the_job_that_goes_elsewhere_would_save(case: DecisionCase) -> None:
    case.offer("cheap", 1.0)
    case.offer("dear", 5.0)
    (found,) = worth(case, 2, quota(8, 4, instance_types=("cheap",)))
    assert (found.cloud, found.name, found.scope, found.unit) == ("local", "vCPUs", "eu-1", "vcpus")
    assert (found.limit, found.used, found.taken, found.more) == (8, 4, 4, 4)
    assert found.saving_nano_usd / 1e9 == pytest.approx(4.0, rel=0.05)
    assert found.starts == ()


def test_or_the_job_that_could_start(case: DecisionCase) -> None:
    case.offer("only", 1.0)
    (found,) = worth(case, 2, quota(4))
    assert (found.starts, found.saving_nano_usd) == (("job-1",), 0)
    (found,) = worth(case, 1, quota(0))
    assert (found.starts, found.more) == (("job-0",), 4)


def test_a_quota_that_costs_nothing_is_not_named(case: DecisionCase) -> None:
    case.offer("cheap", 1.0)
    case.offer("dear", 5.0)
    assert worth(case, 2, quota(8, 0), quota(0, 0, instance_types=("dear",))) == ()
    assert worth(case, 2) == ()
