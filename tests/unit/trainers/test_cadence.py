"""When checkpoints are due: by what the last one cost, however that was."""

import pytest

from trainers.loop.cadence import Cadence


def interval_s(cadence: Cadence) -> float:
    """From the last one to the next, in tenths of a second."""
    return next(tenths / 10 for tenths in range(1, 10_000) if cadence.due(cadence.since_s + tenths / 10))


@pytest.fixture
def cadence() -> Cadence:
    found = Cadence(0.1, since_s=100.0)
    for wall_s in (0.5, 0.5, 0.6):
        found.stepped(wall_s)
    return found


def test_a_save_for_which_training_waited_costs_as_long_as_it_took(cadence):
    cadence.saved(100.0, 102.0)
    assert interval_s(cadence) == 20.0
    assert cadence.save_s == 2.0


def test_a_save_beside_the_training_costs_the_copy_and_what_steps_were_slower(cadence):
    cadence.began(100.0)
    for wall_s in (0.7, 0.6):
        cadence.stepped(wall_s, beside=True)
    cadence.saved_beside(held_s=0.1, took_s=5.0)
    assert interval_s(cadence) == pytest.approx(4.0)
    assert cadence.save_s == 5.0


def test_steps_that_happen_to_be_faster_make_no_save_cheaper_than_its_copy(cadence):
    cadence.began(100.0)
    cadence.stepped(0.2, beside=True)
    cadence.saved_beside(held_s=0.3, took_s=5.0)
    assert interval_s(cadence) == pytest.approx(3.0)


def test_only_the_steps_of_the_last_save_count(cadence):
    for extra_s in (1.0, 0.0):
        cadence.began(100.0)
        cadence.stepped(0.5 + extra_s, beside=True)
        cadence.saved_beside(held_s=0.2, took_s=5.0)
    assert interval_s(cadence) == pytest.approx(2.0)


def test_in_a_store_that_bills_requests_a_save_costs_as_long_as_it_took(cadence):
    cadence.billed = True
    cadence.began(100.0)
    cadence.saved_beside(held_s=0.1, took_s=5.0)
    assert interval_s(cadence) == 50.0


def test_a_step_beside_a_save_counts_for_the_last_moment_before_a_machine_ends(cadence):
    cadence.saved(100.0, 101.0)
    cadence.stepped(4.0, beside=True)
    assert not cadence.must_end(200.0, 206.3)
    assert cadence.must_end(200.0, 206.2)


def test_a_machine_that_outlives_its_deadline_saves():
    cadence = Cadence(max_overhead=0.035, since_s=0.0)
    cadence.saved(100.0, 150.0)
    assert cadence.late_s(200.0, 230.0) == 20.0
    assert cadence.late_s(230.0, 230.0) == 0.0
    assert cadence.must_end(230.0, 230.0)
