"""Events of jobs as they come, and waiting until a job has ended, is paused or is paid."""

from __future__ import annotations

import pytest

from orchestrator.errors import (
    PartialFailure,
)
from orchestrator.installation import Installation
from orchestrator.services.jobs import commands, events, wait
from tests.unit.services.jobs.conftest import book, pause_with_reason, script, set_state
from tests.unit.services.recorded_history import ME, Past


def test_events_of_all_jobs_come_with_their_names(installation: Installation, past: Past) -> None:
    found = events.events(installation)
    assert set(found.names.values()) >= {"conv", "gpt"}
    assert found.names[past.conv] == "conv"
    assert {each.job_id for each in found.events if each.job_id is not None} == found.names.keys()
    assert events.events(installation, "conv").names == {}
    assert next(events.follow(installation)).names == found.names


def test_following_events_yields_each_once_and_ends_with_the_job(installation: Installation, past: Past) -> None:
    def cancel() -> None:
        commands.cancel(installation, "conv", caller=ME)
        set_state(installation, past.conv, "cancelled")

    script(installation, cancel)
    batches = list(events.follow(installation, "conv"))
    kinds = [event.kind for batch in batches for event in batch.events]
    assert kinds == ["job.submitted", "migration.provision", "migration.cutover", "migration.done"]


def test_waiting_returns_the_job_once_it_has_ended(installation: Installation, past: Past) -> None:
    seen: list[str] = []
    script(installation, lambda: None, lambda: set_state(installation, past.conv, "failed"))
    view = wait.wait(installation, "conv", progress=lambda job: seen.append(job.state))
    assert view.state == "failed"
    assert seen == ["running", "running", "failed"]


def test_waiting_gives_up_after_its_time(installation: Installation, past: Past) -> None:
    script(installation, *[lambda: None] * 10)
    with pytest.raises(PartialFailure, match="still running after 1 s"):
        wait.wait(installation, "conv", timeout_s=1.0)


def test_waiting_continues_until_the_last_machine_is_booked(installation: Installation, past: Past) -> None:
    assert installation.store.campaign("here") is not None
    seen: list[str] = []
    script(
        installation,
        lambda: set_state(installation, past.conv, "finished"),
        lambda: None,
        lambda: book(installation, past.runs[3]),
    )
    assert wait.wait(installation, "conv", progress=lambda job: seen.append(job.state)).state == "finished"
    assert seen == ["running", "finished", "finished", "finished"]


def test_waiting_for_a_cost_that_does_not_become_final_says_so(installation: Installation, past: Past) -> None:
    assert installation.store.campaign("here") is not None
    set_state(installation, past.conv, "finished")
    script(installation, *[lambda: None] * 10)
    with pytest.raises(PartialFailure, match=r"is finished, .* not fully booked"):
        wait.wait(installation, "conv", timeout_s=1.0)


def test_waiting_returns_at_a_pause_with_its_reason(installation: Installation, past: Past) -> None:
    script(installation, lambda: pause_with_reason(installation, past.conv, "paused at step 50: its budget is spent"))
    view = wait.wait(installation, "conv")
    assert (view.state, view.note) == ("paused", "paused at step 50: its budget is spent")


def test_waiting_continues_at_a_pause_that_its_user_has_already_ended(installation: Installation, past: Past) -> None:
    pause_with_reason(installation, past.conv, "paused")
    commands.resume(installation, "conv", caller=ME)
    script(installation, lambda: set_state(installation, past.conv, "finished"))
    assert wait.wait(installation, "conv").state == "finished"


def test_a_timeout_does_not_promise_progress_without_a_control_plane(installation: Installation, past: Past) -> None:
    with pytest.raises(PartialFailure) as alone:
        wait.wait(installation, "conv", timeout_s=0)
    assert "tradewind up" in alone.value.hint
    assert installation.store.campaign("here") is not None
    with pytest.raises(PartialFailure) as led:
        wait.wait(installation, "conv", timeout_s=0)
    assert led.value.hint == "it keeps running; see: tradewind status conv"
