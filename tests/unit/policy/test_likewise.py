"""Which other zones a launch may take as well: about as cheap and early, and only for a job that needs a place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.model import Alternative, Placement
from orchestrator.policy import likewise

HERE, THERE = "aws/us-east-1/use1-az1/g5.xlarge/spot", "aws/us-east-1/use1-az2/g5.xlarge/spot"


def offer(offer_id: str, price: int = 1000, cost: int | None = 5000, seconds: float | None = 100.0) -> Alternative:
    return Alternative(offer_id, price, 0.0, 1.0, 1.0, cost, cost, cost, seconds, True, "")


def placed(*others: Alternative) -> Placement:
    return Placement("job", "place", HERE, "", 5000, 0, 0, (offer(HERE), *others), None, None)


def test_a_zone_as_good_is_taken_in_the_order_of_the_plan() -> None:
    third = THERE.replace("az2", "az3")
    assert likewise(placed(offer(third, 1040), offer(THERE, 1020))) == (third, THERE)
    assert likewise(placed()) == ()


@pytest.mark.parametrize(
    "other",
    [
        offer(THERE, price=1051),
        offer(THERE, cost=5251),
        offer(THERE, seconds=105.1),
        replace(offer(THERE), feasible=False),
        offer(THERE.replace("spot", "on_demand")),
        offer(THERE.replace("xlarge", "2xlarge")),
        offer(THERE.replace("us-east-1", "us-east-2")),
        offer(THERE.replace("aws", "gcp")),
        offer(THERE.replace("use1-az2", "")),
    ],
)
def test_one_that_costs_more_comes_later_or_is_something_else_is_not(other: Alternative) -> None:
    assert likewise(placed(other)) == ()


def test_without_forecasts_the_price_decides() -> None:
    unknown = Placement(
        "job", "place", HERE, "", None, None, 0,
        (offer(HERE, 1000, None, None), offer(THERE, 1050, None, None)), None, None,
    )  # fmt: skip
    assert likewise(unknown) == (THERE,)


@pytest.mark.parametrize("action", ["move", "stay", "wait", "none"])
def test_only_a_job_that_needs_a_place_takes_any(action: str) -> None:
    assert likewise(replace(placed(offer(THERE)), action=action)) == ()  # type: ignore[arg-type]


def test_a_job_that_may_miss_its_limits_takes_the_one_that_was_chosen() -> None:
    assert likewise(replace(placed(offer(THERE)), chance=0.9)) == ()
