"""A provider may rent in a whole region: its offers name no zone, and runs on them can be read."""

from __future__ import annotations

import pytest

from orchestrator.store.queries.runs import can_be_moved_from, names_a_place


@pytest.mark.parametrize(
    ("offer_id", "named"),
    [
        ("azure/eastus//Standard_D4s_v5/spot", True),
        ("aws/us-east-1/use1-az1/g5.xlarge/spot", True),
        ("azure///Standard_D4s_v5/spot", False),
        ("azure/eastus/Standard_D4s_v5/spot", False),
    ],
)
def test_an_offer_of_a_run_names_a_region_at_least(offer_id: str, named: bool) -> None:
    assert names_a_place(offer_id) is named


@pytest.mark.parametrize(
    ("place", "possible"),
    [("azure/eastus/", True), (None, True), ("azure//", True), ("azure//1", False), ("azure/eastus", False)],
)
def test_a_run_moves_from_a_place_without_a_zone_too(place: str | None, possible: bool) -> None:
    assert can_be_moved_from(place) is possible
