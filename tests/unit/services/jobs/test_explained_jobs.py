"""Why a job is paused, ended, moved or waits, and where it runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from orchestrator.errors import (
    NotFoundError,
)
from orchestrator.installation import Installation
from orchestrator.model import Event
from orchestrator.services.jobs import current, explain
from tests.unit.services.jobs.conftest import pause_with_reason
from tests.unit.services.recorded_history import ON_DEMAND, OTHER_SPOT, SPOT, Past, submit_job


def test_a_paused_job_tells_why_whatever_happened_since(installation: Installation, past: Past) -> None:
    pause_with_reason(installation, past.conv, "paused at step 50: its budget is spent")
    with installation.store.write() as tx:
        now = installation.clock.now_ms()
        tx.add_event(
            Event(id="ev_z", at_ms=now, kind="instance.adopted", message="left over", actor="x", job_id=past.conv)
        )
    assert current.job(installation, "conv").note == "paused at step 50: its budget is spent"
    view = explain.explain(installation, "conv")
    assert view.headline == "conv is paused at step 50: its budget is spent"
    assert view.decisions == ()


def test_a_paused_job_says_which_budget_was_set_since(installation: Installation, past: Past) -> None:
    why = "paused at step 50: its budget is spent; to continue: tradewind budget set conv 9, then tradewind resume conv"
    for at_s, (kind, message) in enumerate(
        [("job.budget", "an older budget"), ("job.paused", why), ("job.budget", "8 is set"), ("job.budget", "9 is set")]
    ):
        with installation.store.write() as tx:
            tx.set_job_state(past.conv, "paused")
            now = installation.clock.now_ms() + at_s
            tx.add_event(Event(id=f"ev_{at_s}", at_ms=now, kind=kind, message=message, actor="me", job_id=past.conv))
    assert current.job(installation, "conv").note == "paused at step 50: its budget is spent; since then: 9 is set"


def test_a_job_that_was_ended_without_being_paused_has_no_old_reason(installation: Installation, past: Past) -> None:
    pause_with_reason(installation, past.conv, "paused at step 50: its budget is spent")
    with installation.store.write() as tx:
        now = installation.clock.now_ms()
        tx.add_event(Event(id="ev_z", at_ms=now, kind="job.resumed", message="resumed", actor="me", job_id=past.conv))
    note = current.job(installation, "conv").note
    assert "at its last checkpoint: all machines here were ended at once" in note
    assert note.endswith("; to continue: tradewind resume conv")


def test_the_note_of_a_job_in_quarantine_names_commands_that_work(installation: Installation, past: Past) -> None:
    with installation.store.write() as tx:
        tx.set_job_facts(past.lstm, quarantine="stopping: it broke", quarantined_at_ms=1)
        tx.set_job_facts(past.gpt, quarantine="stopping: it broke", quarantined_at_ms=1)
        tx.set_job_state(past.lstm, "cancelling")
    ended = current.job(installation, past.gpt).note  # it had finished before
    assert ended == "quarantined: stopping: it broke; to end the quarantine: tradewind resume gpt"
    assert current.job(installation, past.lstm).note == "quarantined: stopping: it broke"


def test_a_command_in_a_note_names_a_job_by_its_id_if_another_has_its_name(
    installation: Installation, past: Past
) -> None:
    with installation.store.write() as tx:
        tx.set_job_state(past.conv, "paused")
        name = tx.job(past.conv).name
    submit_job(installation, name)
    assert current.job(installation, past.conv).note.endswith(f"tradewind resume {past.conv}")


@pytest.mark.parametrize(("state", "how"), [("finished", "finished at step 9"), ("cancelled", "cancelled")])
def test_an_ended_job_says_how_it_ended_also_if_its_move_is_completed_after_that(
    installation: Installation, past: Past, state: Literal["finished", "cancelled"], how: str
) -> None:
    with installation.store.write() as tx:
        now = installation.clock.now_ms()
        tx.set_job_facts(past.conv, finished_at_ms=now)
        tx.set_job_state(past.conv, state)
        tx.add_event(Event("ev_x", now, f"job.{state}", how, "control-plane", job_id=past.conv))
        tx.add_event(Event("ev_y", now, "migration.done", "manual: now elsewhere", "control-plane", job_id=past.conv))
    assert current.job(installation, "conv").note == how


def test_resuming_after_a_pause_is_not_a_move(installation: Installation, past: Past) -> None:
    with installation.store.read() as tx:
        found, runs = tx.migrations(job_id=past.gpt), tx.runs(job_id=past.gpt)
    assert len(current.moved(runs, found)) == 2
    assert len(current.moved(runs, [replace(migration, reason="resume") for migration in found])) == 0


def test_a_queued_job_is_explained_by_what_it_waits_for_now_and_not_by_the_plan_at_its_submission(
    installation: Installation, past: Past
) -> None:
    job = submit_job(installation, "later")
    planned = explain.explain(installation, "later")
    assert planned.headline.startswith("later is queued: cheapest to finish")
    said = (planned.decisions[0].reason, "waits until gpt finished")
    for number, why in enumerate(said):
        with installation.store.write() as tx:
            tx.add_event(Event(f"ev_9{number}", planned.planned_at_ms or 0, "job.waits", why, "me", job_id=job.id))
        view = explain.explain(installation, "later")
        assert (view.headline, view.decisions) == (f"later is queued: {why}", planned.decisions)


def test_a_job_is_explained_by_its_latest_plan_and_what_followed(installation: Installation, past: Past) -> None:
    view = explain.explain(installation, "conv")
    assert view.headline.startswith(f"conv is running on {SPOT}: ")
    (decided,) = view.decisions
    assert decided.choices[0].role == "choose"
    assert all(choice.reason for choice in decided.choices[1:] if choice.role != "baseline")
    assert [event.kind for event in view.history] == ["job.submitted", "migration.cutover", "migration.done"]


def test_a_migration_is_explained_with_its_steps_and_its_promise(installation: Installation, past: Past) -> None:
    view = explain.explain(installation, past.migrations[2])
    assert view.headline == f"gpt moved from {ON_DEMAND} to {OTHER_SPOT}: cheaper offer, $1.50 saving expected"
    assert [(step.step, step.duration_s) for step in view.steps] == [
        ("begun", 60.0),
        ("provision", 240.0),
        ("cutover", 300.0),
        ("done", None),
    ]
    assert explain.explain(installation, past.runs[2]).subject == f"migration {past.migrations[2]}"


def test_a_plan_is_explained_and_an_unknown_thing_is_not_found(installation: Installation, past: Past) -> None:
    with installation.store.read() as tx:
        plan = tx.latest_plan(past.conv)
    assert plan is not None
    assert "1 job and starts or moves 1" in explain.explain(installation, plan.id).headline
    for ref in ("plan_x", "mig_x", "run_x", "job_x", "nobody"):
        with pytest.raises(NotFoundError):
            explain.explain(installation, ref)


def test_a_failed_job_is_explained_by_the_last_line_of_its_traceback(installation: Installation, past: Past) -> None:
    with installation.store.write() as tx:
        tx.set_job_state(past.conv, "failed")
        tx.set_job_facts(past.conv, error="Traceback\n  File x\nValueError: bad shape\n")
    assert explain.explain(installation, "conv").headline.endswith("failed on " + SPOT + ": ValueError: bad shape")
