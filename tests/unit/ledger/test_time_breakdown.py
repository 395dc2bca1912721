"""Every billed millisecond in exactly one box."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.ledger import TimeBreakdown, job_breakdown, time_breakdown
from orchestrator.model import Run

RUN = Run(
    "run_1",
    "job_1",
    1,
    "o",
    "i",
    "ended",
    0,
    billed_from_ms=1000,
    billed_to_ms=101_000,
    training_from_ms=11_000,
    training_to_ms=91_000,
    end="moved",
    step_wall_s=0.5,
    repeated_steps=20,
    useful_s=60.0,
    checkpoint_s=15.0,
)


def test_a_run_that_was_replaced():
    assert time_breakdown(RUN, 200_000) == TimeBreakdown(
        useful_ms=50_000,
        checkpoint_ms=15_000,
        lost_work_ms=10_000,
        provisioning_ms=10_000,
        migration_ms=10_000,
        idle_ms=5_000,
    )


def test_the_tail_of_a_run_that_was_not_replaced_is_idle():
    found = time_breakdown(replace(RUN, end="finished"), 200_000)
    assert (found.migration_ms, found.idle_ms) == (0, 15_000)


def test_wall_seconds_are_converted_by_the_factor_of_the_clock():
    run = replace(RUN, useful_s=0.1, checkpoint_s=0.025, step_wall_s=0.0005, repeated_steps=10)
    found = time_breakdown(run, 200_000, factor=600)
    assert (found.useful_ms, found.checkpoint_ms, found.lost_work_ms) == (57_000, 15_000, 3_000)


def test_an_aborted_takeover_counts_as_migration():
    assert time_breakdown(replace(RUN, end="aborted"), 200_000) == TimeBreakdown(migration_ms=100_000)


def test_steps_that_only_a_later_run_shows_are_time_without_reports_and_not_idle():
    before = replace(RUN, last_step=479, repeated_steps=0, useful_s=20.0)
    alone = time_breakdown(before, 200_000)
    after = replace(RUN, id="run_2", generation=2, start_step=499, last_step=499, useful_s=0.0, repeated_steps=0)
    for step_wall_s, unreported in ((0.5, 10_000), (9.0, 45_000), (None, 45_000)):
        found = job_breakdown([replace(before, step_wall_s=step_wall_s), after], 200_000)
        assert found.unreported_ms == unreported
        assert found.idle_ms == alone.idle_ms - unreported + time_breakdown(after, 200_000).idle_ms
        assert found.total_ms == 200_000
    assert job_breakdown([before, replace(after, start_step=479)], 200_000).unreported_ms == 0


def test_a_machine_that_was_given_up_before_anything_trained_was_awaited_for_a_start():
    aborted = replace(RUN, id="run_2", end="aborted", training_from_ms=None, training_to_ms=None)
    assert job_breakdown([aborted], 200_000) == TimeBreakdown(provisioning_ms=100_000)
    before = replace(RUN, created_at_ms=-200_000, billed_from_ms=-200_000, training_from_ms=-190_000, billed_to_ms=-1)
    for trained_to, category in ((-1, "provisioning_ms"), (50_000, "migration_ms")):
        source = replace(before, training_to_ms=trained_to)
        found = job_breakdown([source, aborted], 200_000)
        alone = time_breakdown(source, 200_000)
        assert getattr(found, category) == getattr(alone, category) + 100_000
        assert found.total_ms == alone.total_ms + 100_000


def test_of_a_program_that_reports_no_steps_nobody_knows_what_was_useful():
    silent = replace(RUN, end="finished", useful_s=0.0, checkpoint_s=0.0, repeated_steps=0)
    assert time_breakdown(silent, 200_000) == TimeBreakdown(
        provisioning_ms=10_000, unreported_ms=80_000, idle_ms=10_000
    )
    assert time_breakdown(replace(silent, last_step=7), 200_000).unreported_ms == 0


def test_a_run_that_never_trained_is_all_provisioning():
    run = replace(RUN, training_from_ms=None, training_to_ms=None, end="preempted")
    assert time_breakdown(run, 200_000) == TimeBreakdown(provisioning_ms=100_000)


def test_a_living_run_counts_up_to_now():
    run = replace(RUN, billed_to_ms=None, training_to_ms=None, end=None, state="training", useful_s=20, checkpoint_s=0)
    assert time_breakdown(run, 41_000) == TimeBreakdown(
        useful_ms=10_000, lost_work_ms=10_000, provisioning_ms=10_000, idle_ms=10_000
    )


def test_measures_that_exceed_the_time_there_was_are_clipped():
    found = time_breakdown(replace(RUN, useful_s=1e6, checkpoint_s=50, repeated_steps=10**9), 200_000)
    assert found == TimeBreakdown(
        checkpoint_ms=50_000, lost_work_ms=30_000, provisioning_ms=10_000, migration_ms=10_000
    )


def test_a_run_that_was_never_billed_has_an_empty_breakdown():
    assert time_breakdown(replace(RUN, billed_from_ms=None), 200_000) == TimeBreakdown()


def test_parts_add_up():
    assert (time_breakdown(RUN, 200_000) + time_breakdown(RUN, 200_000)).total_ms == 200_000
