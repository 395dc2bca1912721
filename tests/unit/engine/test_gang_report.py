"""The report of a run on several machines: rank 0's progress, the slowest machine's state, the first real cause."""

from __future__ import annotations

import itertools
from typing import get_args

import pytest

from orchestrator.engine.machines.gang_report import CAUSE_S, LAGGARDS_S, Ends, combined
from orchestrator.engine.runtime import RunReport, TrainerState


def says(state: TrainerState, **fields: object) -> RunReport:
    return RunReport("run_1", state, **fields)  # type: ignore[arg-type]


def state_of(*reports: RunReport | None, ended_for_s: float = 0.0) -> str | None:
    found = combined(reports, ended_for_s=ended_for_s)
    return None if found is None else found.state


def test_one_machine_speaks_for_itself() -> None:
    report = says("training", step=3, silent_s=1.0)
    assert combined([report]) is report


def test_the_earliest_notice_of_a_machine_is_one_of_the_run() -> None:
    said = [says("training"), says("training", notice_s=90.0), says("training", notice_s=30.0)]
    found = combined(said)
    assert found is not None
    assert found.notice_s == 30.0


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
        (("training", "checkpointed_and_stopped"), "training"),
        (("absent", "checkpointed_and_stopped"), "checkpointed_and_stopped"),
        (("checkpointed_and_stopped", "checkpointed_and_stopped"), "checkpointed_and_stopped"),
        (("malformed", "training"), "malformed"),
        (("finished", "silent"), "finished"),
    ],
)
def test_the_run_is_where_its_slowest_machine_is(states: tuple[TrainerState, ...], run: str) -> None:
    assert state_of(*map(says, states)) == run


def test_who_does_not_end_after_machine_0_has_finished_is_not_waited_for_for_ever() -> None:
    reports = [says("finished", step=5), says("training")]
    assert state_of(*reports) == "training"
    found = combined(reports, ended_for_s=LAGGARDS_S)
    assert found is not None
    assert (found.state, found.step) == ("finished", 5)
    failed = combined([reports[0], says("failed", error="no")], ended_for_s=LAGGARDS_S)
    assert failed is not None
    assert failed.state == "failed"
    assert state_of(says("training"), says("checkpointed_and_stopped"), ended_for_s=LAGGARDS_S) == (
        "checkpointed_and_stopped"
    )


@pytest.mark.parametrize("end", ["finished", "failed", "checkpointed_and_stopped"])
def test_no_machine_is_ended_while_it_stores_its_log_and_outputs(end: TrainerState) -> None:
    over, ships = says(end, still_s=99.0), says("training", ships=True)
    for reports in ([over, ships], [over, over, ships]):
        found = combined(reports, ended_for_s=10 * LAGGARDS_S)
        assert found is not None
        assert (found.state, found.still_s) == ("training", 0.0), "what waits does not stand still"
    assert state_of(over, over) == end
    assert state_of(ships, says("absent"), over) != "training", "a lost machine is replaced at once"
    assert state_of(ships, says("fenced"), over) == "fenced"


def test_the_failure_counts_also_if_those_that_lost_contact_are_heard_first() -> None:
    lost = says("failed", error="connection reset", peer_lost=True)
    assert state_of(lost, says("training")) == "training"
    assert state_of(lost, says("training"), ended_for_s=CAUSE_S) == "absent"
    assert state_of(lost, says("training", ships=True), ended_for_s=CAUSE_S) == "training"
    assert state_of(lost, says("failed", error="ValueError")) == "failed"


def test_the_last_words_of_a_machine_tell_which_other_one_is_gone() -> None:
    found = combined(
        [says("failed", error="connection reset", peer_lost=True), says("absent", error="machine 2 is gone")]
    )
    assert found is not None
    assert (found.state, found.error) == ("absent", "machine 1: machine 2 is gone")
    silent = combined([says("training", error="old"), says("absent")])
    assert silent is not None
    assert (silent.state, silent.error) == ("absent", None)


def test_the_time_counts_from_the_last_end() -> None:
    ends, running, over = Ends(), says("training"), says("finished")
    assert ends.since_s("run_1", [running, running], 5.0) == 0.0
    assert ends.since_s("run_1", [running, over], 10.0) == 0.0
    assert ends.since_s("run_1", [running, over], 17.0) == 7.0
    assert ends.since_s("run_1", [over, over], 20.0) == 0.0
    assert ends.since_s("run_1", [over, None], 21.0) == 0.0
    assert ends.since_s("run_2", [over, over], 21.0) == 0.0
    ends.forget("run_1")
    assert ends.since_s("run_1", [over, over], 30.0) == 0.0


def test_progress_is_what_rank_0_says() -> None:
    found = combined([says("training", step=7, manifest="1-5-a"), says("training", step=6)])
    assert found is not None
    assert (found.step, found.manifest) == (7, "1-5-a")


def test_silence_is_that_of_the_most_silent_machine() -> None:
    found = combined([says("training", silent_s=0.5), says("training", silent_s=30.0)])
    assert found is not None
    assert found.silent_s == 30.0


def test_a_failure_is_reported_with_its_machine_and_its_exit_status() -> None:
    reports = [says("training", step=9), says("failed", error="ValueError: no", exit_status=-9, permanent=True)]
    found = combined(reports)
    assert found is not None
    assert (found.state, found.error, found.step) == ("failed", "machine 1: ValueError: no", 9)
    assert (found.exit_status, found.permanent) == (-9, True)


def test_who_lost_contact_with_another_machine_is_not_the_cause() -> None:
    lost = says("failed", error="connection reset", peer_lost=True)
    assert state_of(lost, says("failed", error="ValueError")) == "failed"
    assert state_of(lost, lost) == "absent"
    assert state_of(says("finished"), lost) == "finished"


def test_every_pair_of_states_has_a_meaning() -> None:
    for first, second in itertools.product(get_args(TrainerState), repeat=2):
        assert state_of(says(first), says(second)) in get_args(TrainerState)
