"""What a history of launches, refusals and losses says of an offer."""

from __future__ import annotations

import pytest

from orchestrator.market.availability import AvailabilityPoint, hazard_per_hour, summarise

MINUTE = 60_000
HOUR = 60 * MINUTE


def points(*capacity_history: tuple[int, str]) -> list[AvailabilityPoint]:
    return [AvailabilityPoint("o", at, kind) for at, kind in capacity_history]


def backed_off_minutes(history: list[AvailabilityPoint]) -> int:
    seen = summarise(history, history[-1].at_ms, spot=True)
    return (seen.backed_off_until_ms - seen.backed_off_at_ms) // MINUTE


def test_looks_are_a_quarter_of_the_time_away_apart_from_15_minutes_to_four_hours():
    history, lengths = points((0, "refused")), []
    while history[-1].at_ms < 24 * HOUR:
        lengths.append(backed_off_minutes(history))
        history += points((history[-1].at_ms + lengths[-1] * MINUTE, "refused"))
    assert lengths[:8] == [15, 15, 15, 15, 15, 18, 23, 29]
    assert lengths == sorted(lengths)
    assert lengths[-1] == 240
    assert len(lengths) < 25


def test_a_sign_long_after_the_last_one_begins_a_new_outage():
    """Nothing was looked at for a day: of that time nothing is known."""
    seen = summarise(points((0, "refused"), (24 * HOUR, "refused")), 25 * HOUR, spot=True)
    assert seen.backed_off_until_ms == 24 * HOUR + 15 * MINUTE
    assert (seen.away_since_ms, seen.away_ms) == (24 * HOUR, 0)


@pytest.mark.parametrize("minutes_apart", [0, 1, 14])
def test_an_outage_that_takes_many_machines_counts_by_how_long_it_lasts(minutes_apart):
    lost = points(*((HOUR + n * minutes_apart * MINUTE, "lost") for n in range(13)))
    history = points(*[(0, "launched")] * 13) + lost
    assert backed_off_minutes(history) == max(15, 12 * minutes_apart // 4)
    assert summarise(history, lost[-1].at_ms, spot=True).losses == 13


def test_several_jobs_that_are_refused_when_a_back_off_ends_count_as_one():
    again = points(*((15 * MINUTE + n, "refused") for n in range(5)))
    assert backed_off_minutes(points((0, "refused")) + again) == 15


def test_a_granted_launch_clears_the_back_off():
    seen = summarise(points((0, "refused"), (1, "refused"), (2, "launched")), 3, spot=True)
    assert (seen.backed_off_at_ms, seen.backed_off_until_ms) == (-1, -1)


def test_a_machine_that_was_given_back_makes_room_unless_it_was_spot():
    """Above all of one's own hosts, of which there are few: a job that waits for one takes it when it is free."""
    history = points((0, "launched"), (1, "refused"), (MINUTE, "released"))
    assert summarise(history, 2 * MINUTE, spot=False).backed_off_until_ms == MINUTE
    assert summarise(history, 2 * MINUTE, spot=True).backed_off_until_ms == 15 * MINUTE + 1
    again = points((0, "launched"), (1, "refused"), (MINUTE, "released"), (2 * MINUTE, "refused"))
    assert summarise(again, 3 * MINUTE, spot=False).backed_off_until_ms == 17 * MINUTE


def test_a_lost_spot_machine_shuts_its_offer_but_an_on_demand_fault_does_not():
    history = points((0, "launched"), (HOUR, "lost"))
    assert summarise(history, 2 * HOUR, spot=True).backed_off_until_ms == HOUR + 15 * MINUTE
    assert summarise(history, 2 * HOUR, spot=True).backed_off_by_loss
    assert summarise(history, 2 * HOUR, spot=False).backed_off_until_ms == -1


def test_a_notice_and_the_loss_that_follows_count_once():
    announced = summarise(points((0, "launched"), (50, "notice"), (60, "lost")), 100, spot=True)
    assert announced.losses == 1
    twice = summarise(
        points((0, "launched"), (0, "launched"), (50, "notice"), (60, "lost"), (70, "lost")), 100, spot=True
    )
    assert twice.losses == 2


def test_exposure_counts_every_living_machine_until_it_is_lost_or_released():
    history = points((0, "launched"), (HOUR, "launched"), (2 * HOUR, "released"), (3 * HOUR, "lost"))
    assert summarise(history, 10 * HOUR, spot=True).exposure_ms == 4 * HOUR
    assert summarise(history[:1], 10 * HOUR, spot=True).exposure_ms == 10 * HOUR


def test_the_order_of_points_does_not_matter():
    history = points((0, "launched"), (HOUR, "notice"), (HOUR, "lost"), (HOUR, "refused"))
    assert summarise(history, 2 * HOUR, spot=True) == summarise(history[::-1], 2 * HOUR, spot=True)


def test_the_hazard_of_spot_starts_at_the_prior_and_follows_what_is_seen():
    assert hazard_per_hour(summarise([], 0, spot=True), spot=True) == 1 / 8
    calm = summarise(points((0, "launched")), 72 * HOUR, spot=True)
    assert hazard_per_hour(calm, spot=True) == 1 / 80
    rough = summarise(
        points((0, "launched"), (HOUR, "lost"), (HOUR, "launched"), (2 * HOUR, "lost")), 9 * HOUR, spot=True
    )
    assert hazard_per_hour(rough, spot=True) == pytest.approx(3 / 10)


def test_on_demand_has_no_hazard():
    assert hazard_per_hour(summarise(points((0, "launched"), (5, "lost")), 9, spot=False), spot=False) == 0
