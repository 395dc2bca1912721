"""The report of a run on several machines: rank 0's progress, the slowest machine's state, the first real cause."""

from __future__ import annotations

import itertools
from typing import get_args

import pytest

from orchestrator.engine.machines.gang_report import combined
from orchestrator.engine.runtime import RunReport, TrainerState


def says(state: TrainerState, **fields: object) -> RunReport:
    return RunReport("run_1", state, **fields)  # type: ignore[arg-type]


def state_of(*reports: RunReport | None) -> str | None:
    found = combined(reports)
    return None if found is None else found.state


def test_one_machine_speaks_for_itself() -> None:
    report = says("training", step=3, silent_s=1.0)
    assert combined([report]) is report


def test_nothing_is_known_of_a_run_before_every_machine_was_heard() -> None:
    assert combined([says("prepared"), None]) is None


@pytest.mark.parametrize(
    ("states", "run"),
    [
        (("prepared", "starting"), "starting"),
        (("prepared", "prepared"), "prepared"),
        (("training", "restored"), "restored"),
        (("quiesced", "training"), "training"),
        (("quiesced", "quiesced"), "quiesced"),
        (("finished", "training"), "training"),
        (("finished", "finished"), "finished"),
        (("finished", "absent"), "finished"),
        (("training", "absent"), "absent"),
        (("absent", "training"), "absent"),
        (("training", "silent"), "silent"),
        (("training", "fenced"), "fenced"),
        (("training", "checkpointed_and_stopped"), "checkpointed_and_stopped"),
        (("malformed", "training"), "malformed"),
        (("finished", "silent"), "finished"),
    ],
)
def test_the_run_is_where_its_slowest_machine_is(states: tuple[TrainerState, ...], run: str) -> None:
    assert state_of(*map(says, states)) == run


def test_who_does_not_end_after_machine_0_has_finished_is_not_waited_for_for_ever() -> None:
    reports = [says("finished", step=5), says("training")]
    assert state_of(*reports) == "training"
    found = combined(reports, others_may_run=False)
    assert found is not None
    assert (found.state, found.step) == ("finished", 5)
    failed = combined([reports[0], says("failed", error="no")], others_may_run=False)
    assert failed is not None
    assert failed.state == "failed"


def test_progress_is_what_rank_0_says() -> None:
    found = combined([says("training", step=7, manifest="1-5-a"), says("training", step=6)])
    assert found is not None
    assert (found.step, found.manifest) == (7, "1-5-a")


def test_silence_is_that_of_the_most_silent_machine() -> None:
    found = combined([says("training", silent_s=0.5), says("training", silent_s=30.0)])
    assert found is not None
    assert found.silent_s == 30.0


def test_a_failure_is_told_with_its_machine_and_its_exit_status() -> None:
    reports = [says("training", step=9), says("failed", error="ValueError: no", exit_status=-9, permanent=True)]
    found = combined(reports)
    assert found is not None
    assert (found.state, found.error, found.step) == ("failed", "machine 1: ValueError: no", 9)
    assert (found.exit_status, found.permanent) == (-9, True)


def test_who_lost_contact_with_another_machine_is_not_the_cause() -> None:
    lost = says("failed", error="connection reset", peer_lost=True)
    assert state_of(lost, says("failed", error="ValueError")) == "failed"
    assert state_of(lost, says("training")) == "absent"
    assert state_of(lost, lost) == "absent"
    assert state_of(says("finished"), lost) == "finished"


def test_every_pair_of_states_has_a_meaning() -> None:
    for first, second in itertools.product(get_args(TrainerState), repeat=2):
        assert state_of(says(first), says(second)) in get_args(TrainerState)
