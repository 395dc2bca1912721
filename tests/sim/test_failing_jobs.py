"""Jobs that harm themselves (they die, vanish, stall, diverge, claim to be done): it costs them, and no offer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from orchestrator.config import Config
from orchestrator.engine.jobs.blame import MAX_LOSSES_WITHOUT_PROGRESS
from orchestrator.engine.machines.observe import IDLE_S
from orchestrator.engine.runtime import RunReport
from orchestrator.model import Job, JobSpec, Step
from orchestrator.services.jobs import current
from orchestrator.services.jobs.explain import explain
from orchestrator.services.views import JobView
from providers.fake import Fault
from tests.rig import findings
from tests.rig.site import hash_of
from tests.rig.wires import Delay
from tests.sim.harness import FINE_STRIDE_S, SimulatedInstallation, check_truth, train_spec

Install = Callable[..., SimulatedInstallation]

LEASE_S = Config().lease_s
STALLS = {"stalls.after_s": 60.0, "stalls.fail_after_s": 300.0}


def killed(report: RunReport, _since_s: float) -> RunReport:
    return replace(report, error="the trainer was killed by signal 9 (out of memory?)", exit_status=-9)


def vanished(report: RunReport, _since_s: float) -> RunReport:
    return replace(report, state="absent", error=None)


def still(report: RunReport, since_s: float) -> RunReport:
    return replace(report, state="training", error=None, still_s=since_s)


def signs(home: SimulatedInstallation) -> list[str]:
    points = home.read(lambda tx: tx.availability(0, home.clock.now_ms()))
    return [point.kind for point in points if point.kind in ("lost", "notice")]


def view(home: SimulatedInstallation, job: Job) -> JobView:
    return current.job(home.plane._ctx.installation, job.id)


def failures(home: SimulatedInstallation, job: Job) -> int:
    return home.read(lambda tx: tx.job_facts(job.id)).failures


def test_a_trainer_that_dies_by_itself_uses_up_the_retries_and_blames_no_offer(home: SimulatedInstallation) -> None:
    job = home.submit(steps=30, retries=1)
    home.site.raise_at(job.id, *[4] * 24)
    home.site.misbehave(job.id, killed)
    home.settle()
    assert home.job(job).state == "failed"
    assert [run.end for run in home.runs(job)] == ["failed", "failed"]
    assert signs(home) == []
    reported = home.events(job, "job.failed")[0].message
    assert reported.startswith("failed after 2 attempts; $0.0")
    assert reported.endswith(" spent so far: the trainer was killed by signal 9 (out of memory?)")
    check_truth(home)


def misfit(report: RunReport, _since_s: float) -> RunReport:
    return replace(report, error="Traceback ...\nEntryError: train.args do not fit", permanent=True)


def test_a_failure_that_would_repeat_anywhere_is_the_last_and_its_cost_is_reported(home: SimulatedInstallation) -> None:
    job = home.submit(steps=30)
    home.site.raise_at(job.id, 0)
    home.site.misbehave(job.id, misfit)
    home.settle()
    assert home.job(job).state == "failed"
    assert [run.end for run in home.runs(job)] == ["failed"]
    (reported,) = home.events(job, "job.failed")
    assert reported.data["failures"] == 1
    assert "$0.0167 spent" in reported.message  # a minute is the least
    assert reported.message.endswith(": EntryError: train.args do not fit")
    assert str(reported.data["traceback"]).startswith("Traceback ...")
    check_truth(home)


def test_a_job_that_has_trained_is_tried_elsewhere_whatever_its_program_says(home: SimulatedInstallation) -> None:
    job = home.submit(steps=30)
    home.site.raise_at(job.id, 12)
    home.site.misbehave(job.id, misfit)
    home.settle()
    assert [run.end for run in home.runs(job)] == ["failed", "finished"]
    check_truth(home)


def test_a_job_between_two_tries_says_how_often_it_failed_and_why(home: SimulatedInstallation) -> None:
    job = home.submit(steps=30, retries=4)
    home.site.raise_at(job.id, *[4] * 24)
    home.site.misbehave(job.id, killed)
    home.until(lambda: failures(home, job) == 2 and home.job(job).state == "starting")
    mark = "attempt 2 of 5 failed: the trainer was killed by signal 9 (out of memory?)"
    assert view(home, job).warnings == (mark,)
    assert view(home, job).note.startswith(mark)
    home.settle()
    assert view(home, job).warnings == ()


def test_a_failure_that_is_the_newest_event_is_shown_once(home: SimulatedInstallation) -> None:
    job = home.submit(steps=30, retries=4)
    home.site.raise_at(job.id, *[4] * 24)
    home.until(lambda: failures(home, job) == 2 and home.job(job).state == "queued")
    assert view(home, job).note == "attempt 2 of 5 failed: ValueError: a bug at step 4"


def test_a_trainer_that_dies_before_its_job_is_handed_over_counts_as_well(home: SimulatedInstallation) -> None:
    job = home.submit(steps=30, retries=1)
    home.site.misbehave(job.id, killed)
    home.until(lambda: bool(home.migrations(job)) and home.migrations(job)[-1].step is Step.VERIFY)
    home.site._trainers[home.runs(job)[-1].id].state = "failed"
    home.settle()
    assert [run.end for run in home.runs(job)] == ["failed", "finished"]
    assert failures(home, job) == 1
    assert "killed by signal 9" in home.events(job, "run.failed")[0].message
    assert signs(home) == []


def test_a_trainer_that_dies_with_its_machine_is_lost(home: SimulatedInstallation) -> None:
    job = home.submit(steps=30, retries=0)
    home.site.raise_at(job.id, 12)

    def taken_along(report: RunReport, since_s: float) -> RunReport:
        machine = home.machine(home.runs(job)[0])
        if machine.alive:
            home.cloud.crash(machine.id)
        return killed(report, since_s)

    home.site.misbehave(job.id, taken_along)
    home.settle()
    assert [run.end for run in home.runs(job)] == ["lost", "finished"]
    assert failures(home, job) == 0
    assert signs(home) == ["lost"]
    check_truth(home)


def test_without_its_providers_word_within_a_lease_a_trainer_that_died_is_lost(install: Install) -> None:
    home = install(overrides={"lease_s": 20.0})
    home.stride_s = FINE_STRIDE_S
    job = home.submit(steps=30, retries=0)
    home.site.raise_at(job.id, 12)
    home.site.misbehave(job.id, killed)
    home.until_step(job, 11)
    home.faults.inject("describe", *[Fault.NO_ANSWER] * 60)
    home.settle()
    assert [run.end for run in home.runs(job)] == ["lost", "finished"]
    check_truth(home)


def test_an_answer_counts_however_late_a_control_plane_that_slept_reads_it(home: SimulatedInstallation) -> None:
    job = home.submit(steps=30)
    home.site.raise_at(job.id, 12)
    home.site.misbehave(job.id, killed)
    home.wires.rate, home.wires.slow, home.wires.about = 1.0, (Delay(after_s=2.0),), "died-asked"
    home.until(lambda: home.wires.counted > 0)
    home.clock.advance(LEASE_S + 30)
    home.settle()
    assert [run.end for run in home.runs(job)] == ["failed", "finished"]
    assert signs(home) == []
    check_truth(home)


def test_losses_in_a_row_at_the_same_step_use_up_the_retries_and_then_pause_the_job(
    home: SimulatedInstallation,
) -> None:
    job = home.submit(steps=30, retries=1)
    home.site.raise_at(job.id, *[4] * 24)
    home.site.misbehave(job.id, vanished)
    home.settle()
    assert home.job(job).state == "paused"
    assert [run.end for run in home.runs(job)] == ["lost"] * (MAX_LOSSES_WITHOUT_PROGRESS + 1)
    assert signs(home) == ["lost"] * (MAX_LOSSES_WITHOUT_PROGRESS - 1)
    assert "in a row without getting past step 0" in home.events(job, "job.paused")[0].message
    home.ask("resume", job)
    home.until(lambda: len(home.events(job, "job.paused")) == 2)
    home.settle()
    assert len(home.runs(job)) == 2 * MAX_LOSSES_WITHOUT_PROGRESS + 1  # counted from zero again
    assert not findings(home, paused=True)


def test_a_job_whose_machine_broke_at_its_first_save_each_time_is_paused_and_finishes_once_it_is_resumed(
    home: SimulatedInstallation,
) -> None:
    job = home.submit(steps=30, retries=0)
    for number in range(1, MAX_LOSSES_WITHOUT_PROGRESS + 1):
        home.until(lambda number=number: len(home.runs(job)) == number and home.current(job) is not None)  # type: ignore[misc]
        home.cloud.crash(home.machine(home.runs(job)[-1]).id)
    home.settle()
    assert home.job(job).state == "paused"
    home.ask("resume", job)
    home.until_state(job, "finished")
    home.settle()
    assert failures(home, job) == 0
    check_truth(home)


def test_losses_between_which_the_job_gets_on_are_no_failures(home: SimulatedInstallation) -> None:
    job = home.submit(steps=60, retries=0)
    home.site.raise_at(job.id, 7, 17, 27, 37, 47)
    home.site.misbehave(job.id, vanished)
    home.settle()
    assert [run.end for run in home.runs(job)] == ["lost"] * 5 + ["finished"]
    assert failures(home, job) == 0
    check_truth(home)


def test_preemptions_in_a_row_at_the_same_step_are_not_a_failure(home: SimulatedInstallation) -> None:
    job = home.submit(steps=30, retries=0)
    for number in range(1, 6):
        home.until(lambda number=number: len(home.runs(job)) == number and home.current(job) is not None)  # type: ignore[misc]
        home.cloud.preempt(home.machine(home.runs(job)[-1]).id)
    home.settle()
    assert [run.end for run in home.runs(job)] == ["preempted"] * 5 + ["finished"]
    assert failures(home, job) == 0


def test_a_run_that_stands_still_is_reported_once_with_its_stacks_and_then_failed(install: Install) -> None:
    home = install(overrides=STALLS)
    job = home.submit(steps=30, retries=1)
    home.site.raise_at(job.id, 12)
    home.site.misbehave(job.id, still)
    home.until(lambda: bool(home.events(job, "run.stalled")))
    (run,) = home.runs(job)
    assert home.site.asked_for_stacks == [run.id]
    assert len(view(home, job).warnings) == 1
    assert view(home, job).note.startswith(view(home, job).warnings[0])
    assert 60 <= float(home.events(job, "run.stalled")[0].data["still_s"] or 0) < 75
    home.start()  # a control plane with empty memory
    home.run_for(100)
    assert len(home.events(job, "run.stalled")) == 1
    assert home.current(job) is not None
    home.settle()
    assert [run.end for run in home.runs(job)] == ["failed", "finished"]
    assert view(home, job).warnings == ()
    assert home.events(job, "run.failed")[0].message.startswith("attempt 1 of 2 failed: stalled: ")
    check_truth(home)


@pytest.mark.parametrize("state", ["quiesced", "restored", "starting"])
def test_a_run_without_a_due_step_is_not_stalled(install: Install, state: str) -> None:
    home = install(overrides=STALLS)
    job = home.submit(steps=30)
    home.site.raise_at(job.id, 12)
    home.site.misbehave(job.id, lambda report, since_s: replace(still(report, since_s), state=state))  # type: ignore[arg-type]
    home.until_step(job, 11)
    home.run_for(IDLE_S - 50)  # past the time after which one that trains counts as stalled
    assert not home.events(job, "run.stalled")
    assert home.current(job) is not None


def test_patience_grows_with_the_usual_step_time(install: Install) -> None:
    home = install(overrides={**STALLS, "stalls.after_steps": 150.0})
    job = home.submit(steps=30)
    home.site.raise_at(job.id, 12)
    home.site.misbehave(job.id, still)
    home.until(lambda: bool(home.events(job, "run.stalled")))
    step_wall_s = home.runs(job)[0].step_wall_s
    assert step_wall_s is not None
    assert float(home.events(job, "run.stalled")[0].data["still_s"] or 0) >= 150 * step_wall_s


OUTSIDE = {**STALLS, "stalls.outside_after_s": 100.0, "stalls.outside_fail_after_s": 400.0}
STANDS: list[tuple[dict[str, object], float, float]] = [
    ({"awaited": "begin", "step": 0}, 100, 400),
    ({"awaited": "save"}, 60, 300),
    ({"awaited": "save", "save_wall_s": 8.0}, 400, 400),
    ({"awaited": "end"}, 100, 400),
]


@pytest.mark.parametrize(("said", "report_s", "fail_s"), STANDS)
def test_a_hang_before_the_first_step_in_a_save_or_after_the_last_step_is_reported_and_then_failed(
    install: Install, said: dict[str, object], report_s: float, fail_s: float
) -> None:
    home = install(overrides=OUTSIDE)
    job = home.submit(steps=30, retries=1)
    home.site.raise_at(job.id, 0 if said["awaited"] == "begin" else 12)
    home.site.misbehave(job.id, lambda report, since_s: replace(still(report, since_s), **said))  # type: ignore[arg-type]
    home.until(lambda: bool(home.events(job, "run.stalled")))
    (run,) = home.runs(job)
    assert home.site.asked_for_stacks == [run.id]
    (reported,) = home.events(job, "run.stalled")
    assert (reported.data["awaited"], reported.data["step"]) == (said["awaited"], said.get("step", 12))
    assert report_s <= float(reported.data["still_s"] or 0) < report_s + 15
    if said.get("save_wall_s") is None:
        assert len(view(home, job).warnings) == 1
    home.settle()
    assert [run.end for run in home.runs(job)] == ["failed", "finished"]
    failed = home.events(job, "run.failed")[0]
    assert "stalled: " in failed.message
    assert fail_s <= (failed.at_ms - reported.at_ms) / 1000 / home.clock.factor + report_s < fail_s + 30
    check_truth(home)


def test_a_job_file_may_give_its_runs_less_or_more_time_than_others(install: Install) -> None:
    home = install(overrides=STALLS)
    patient = home.submit_job(JobSpec("patient", replace(train_spec(30), stall_after_s=900.0 * home.clock.factor)))
    hasty = home.submit_job(JobSpec("hasty", replace(train_spec(30), stall_after_s=30.0 * home.clock.factor)))
    for job in (patient, hasty):
        home.site.raise_at(job.id, 12)
        home.site.misbehave(job.id, still)
    home.until(lambda: bool(home.events(hasty, "run.failed")))
    assert home.site.asked_for_stacks == [home.runs(hasty)[0].id], "reported before it failed, with its stacks"
    assert not home.events(patient, "run.stalled")
    home.run_for(600)
    assert home.events(patient, "run.stalled")
    assert not home.events(patient, "run.failed")
    home.until(lambda: bool(home.events(patient, "run.failed")))


def test_a_loss_that_is_not_a_number_is_reported_once_and_the_job_continues(home: SimulatedInstallation) -> None:
    job = home.submit(steps=30)
    home.site.raise_at(job.id, 12)

    def diverged(report: RunReport, since_s: float) -> RunReport:
        return replace(still(report, 0.0), loss=None, not_finite_step=11)

    home.site.misbehave(job.id, diverged)
    home.until(lambda: bool(home.events(job, "run.loss_not_finite")))
    home.start()
    home.run_for(60)
    (reported,) = home.events(job, "run.loss_not_finite")
    assert "step 11" in reported.message
    assert view(home, job).warnings == ("its loss is not a number",)
    assert view(home, job).loss is None
    assert home.job(job).state == "running"


@pytest.mark.parametrize("stride_s", [2.0, 20.0])
def test_a_job_that_finished_with_a_loss_that_is_not_a_number_says_so(
    home: SimulatedInstallation, stride_s: float
) -> None:
    """With the longer stride, the control plane sees such a loss only after the end of the run."""
    job = home.submit(steps=30)
    home.until_step(job, 21)
    home.site.garble(job.id, loss=None, not_finite_step=21)
    home.until(lambda: home.job(job).state == "finished", stride_s=stride_s)
    why = "its last loss was NaN or infinite, first at step 21"
    (event,) = home.events(job, "job.finished")
    assert event.message == f"finished at step 30; {why}"
    assert len(home.events(job, "run.loss_not_finite")) == 1
    assert view(home, job).warnings == (why,)
    assert view(home, job).note.count(why) == 1
    assert explain(home.installation, job.id).headline == f"job is finished; {why}"


def test_a_job_that_reports_no_loss_has_no_warning_at_its_end(home: SimulatedInstallation) -> None:
    job = home.submit(steps=30)
    home.site.garble(job.id, loss=None)
    home.until_state(job, "finished")
    assert view(home, job).warnings == ()
    assert home.events(job, "job.finished")[0].message == "finished at step 30"


def finished(report: RunReport, **claim: object) -> RunReport:
    """The word of a run that died at step 12 of 40, whose newest checkpoint is of step 10."""
    claim = {"step": 40, "weights_hash": hash_of("", 40), "manifest_step": 40, **claim}
    return replace(report, state="finished", error=None, **claim)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("claim", "why"),
    [
        ({"step": 1}, "step 1 after step 11"),
        ({"step": 13}, "the job has 40 steps"),
        ({"weights_hash": "made up"}, "weights"),
        ({"weights_hash": None}, "weights"),
        ({"manifest_step": 10}, "no checkpoint of that step"),
        ({"manifest": None}, "no checkpoint of that step"),
        ({"manifest": "1-40-1"}, "checkpoint 1-40-1 is damaged"),
        ({}, "is damaged"),
    ],
)
def test_a_forged_last_word_is_a_failure(home: SimulatedInstallation, claim: dict[str, object], why: str) -> None:
    home.stride_s = FINE_STRIDE_S
    job = home.submit(steps=40, retries=0)
    home.site.raise_at(job.id, 12)
    home.site.misbehave(job.id, lambda report, _: finished(report, **claim))
    home.settle(stride_s=FINE_STRIDE_S)  # step 11 is reported before the end
    assert home.job(job).state == "failed"
    assert why in home.events(job, "job.failed")[0].message
    assert home.read(lambda tx: tx.job_facts(job.id)).weights_hash is None
    check_truth(home)


def test_a_program_that_stops_early_and_says_so_is_finished_and_that_is_reported(home: SimulatedInstallation) -> None:
    job = home.submit(steps=40, retries=0)
    home.site.raise_at(job.id, 10)
    home.site.misbehave(job.id, lambda report, _: finished(report, step=10, manifest_step=10, stopped_early=True))
    home.settle()
    assert home.job(job).state == "finished"
    reported = home.events(job, "job.finished")[0].message
    assert "step 10 of 40" in reported
    assert "stop()" in reported


def test_a_program_that_never_attached_is_finished_when_it_ends(home: SimulatedInstallation) -> None:
    job = home.submit(steps=40, retries=0)
    home.site.raise_at(job.id, 0)
    home.site.misbehave(job.id, lambda report, _: RunReport(report.run_id, "finished"))
    home.settle()
    assert home.job(job).state == "finished"
    reported = home.events(job, "job.finished")[0].message
    assert "never called attach()" in reported
    view = current.job(home.installation, job.id)
    assert view.warnings == ("its program ended without reporting a step",)
    assert view.note.startswith(view.warnings[0])
    assert view.percent_done == "0/40 (finished)"
