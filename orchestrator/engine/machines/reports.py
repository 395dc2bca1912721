"""Reports: from what a node says of a run to a RunReport that the engine may act on.

A run whose words make no sense lives, but nothing is known of its work: its report is `malformed`, and `error` says
why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import get_args

from orchestrator.engine.runtime import RunReport, TrainerState
from orchestrator.model import Job, Run
from trainers import checked_json
from trainers.control import PROGRESS
from trainers.errors import MalformedMessage

MALFORMED_S = 60.0  # wall: a run of which nobody knows what it does is billed no longer
_FORM: Mapping[str, checked_json.Check] = {
    **{name: check for name, check in PROGRESS.items() if name != "still_since_s"},
    "state": checked_json.one_of(*get_args(TrainerState)),
    "silent_s": checked_json.seconds,
    "exit_status": checked_json.optional(checked_json.status),
    "still_s": checked_json.seconds,
    "setup_failed": checked_json.yes_no,
    "setup_s": checked_json.optional(checked_json.seconds),
}
_OF = "its report"
_OF_A_TRAINING_RUN = ("training", "quiesced", "finished", "checkpointed_and_stopped", "failed", "fenced")


def report_of(run_id: str, said: object) -> RunReport:
    """What a node said of a run, if all of it is what it must be; fields that nobody knows are left out."""
    try:
        fields = checked_json.fitting(said, _FORM, _OF)
    except MalformedMessage as error:
        return RunReport(run_id, "malformed", error=str(error), silent_s=_silent_s(said))
    if "state" not in fields:
        return RunReport(run_id, "malformed", error=f"{_OF} does not say in which state it is")
    report = RunReport(run_id=run_id, **fields)
    if report.total_steps is not None and report.step > report.total_steps:
        return replace(report, total_steps=None)  # a loader whose length is only about right: nobody knows the end
    return report


def judged(job: Job, run: Run, report: RunReport) -> RunReport:
    """The report, unless what it says of a training run's steps cannot be. That a run is over is believed all the same,
    but for one that says it finished."""
    if run.state not in ("training", "quiesced") or report.state not in _OF_A_TRAINING_RUN:
        return report
    steps = job.spec.train.steps
    wrong = None
    if steps is not None and report.step > steps:
        wrong = f"it says that it is at step {report.step} of {steps}"
    elif report.step < run.last_step and report.start_step == run.start_step:
        wrong = f"it says that it is at step {report.step}, and was at step {run.last_step} before"
    if wrong is None:
        return report
    if report.state in ("checkpointed_and_stopped", "failed", "fenced"):
        return replace(report, step=run.last_step)
    return RunReport(run.id, "malformed", error=wrong, silent_s=report.silent_s)


def _silent_s(said: object) -> float:
    """How long ago that was, which the node's own bridge says."""
    try:
        return float(checked_json.fitting(said, {"silent_s": checked_json.seconds}, _OF).get("silent_s", 0.0))
    except MalformedMessage:
        return 0.0
