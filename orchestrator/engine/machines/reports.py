"""Reports: turn a node's statement about a run into a RunReport that the engine may act on.

A run whose report is not valid is alive, but nothing is known about its work: its report is `malformed`, with the
reason in `error`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import get_args

from orchestrator.engine.runtime import RunReport, TrainerState
from orchestrator.model import Job, Run
from trainers import checked_json
from trainers.checkpoint.manifest import ManifestName
from trainers.control import PROGRESS
from trainers.errors import MalformedMessage

MALFORMED_S = 60.0  # wall: a run with invalid reports is not paid for longer than this
_FORM: Mapping[str, checked_json.Check] = {
    **{name: check for name, check in PROGRESS.items() if name != "still_since_s"},
    "state": checked_json.one_of(*get_args(TrainerState)),
    "silent_s": checked_json.seconds,
    "exit_status": checked_json.optional(checked_json.status),
    "still_s": checked_json.seconds,
    "setup_failed": checked_json.yes_no,
    "fetching": checked_json.yes_no,
    "fetched_bytes": checked_json.count,
    "ships": checked_json.yes_no,
    "setup_s": checked_json.optional(checked_json.seconds),
    "notice_s": checked_json.optional(checked_json.seconds),
}
_OF = "its report"
_OF_A_TRAINING_RUN = ("training", "quiesced", "finished", "checkpointed_and_stopped", "failed", "fenced")


def report_of(run_id: str, said: object) -> RunReport:
    """A node's report about a run, `malformed` unless every field is valid. Unknown fields are ignored."""
    try:
        fields = checked_json.fitting(said, _FORM, _OF)
    except MalformedMessage as error:
        return RunReport(run_id, "malformed", error=str(error), silent_s=_silent_s(said))
    if "state" not in fields:
        return RunReport(run_id, "malformed", error=f"{_OF} has no state")
    report = RunReport(run_id=run_id, **fields)
    if (wrong := _contradiction(report)) is not None:
        return RunReport(run_id, "malformed", error=f"{_OF}: {wrong}", silent_s=report.silent_s)
    if report.total_steps is not None and report.step > report.total_steps:
        return replace(report, total_steps=None)  # the loader's length is only approximate
    return report


def _contradiction(report: RunReport) -> str | None:
    """What a report says about its checkpoint that cannot be true."""
    step = 0 if report.manifest is None else ManifestName.parse(report.manifest).step
    return (
        None if report.manifest_step == step else f"checkpoint {report.manifest} is not of step {report.manifest_step}"
    )


def judged(job: Job, run: Run, report: RunReport) -> RunReport:
    """The report, or a `malformed` one if a training run's steps are impossible. A report that a run has ended is
    accepted anyway, unless it claims that the run finished."""
    if run.state not in ("training", "quiesced") or report.state not in _OF_A_TRAINING_RUN:
        return report
    steps = job.spec.train.steps
    wrong = None
    if steps is not None and report.step > steps:
        wrong = f"it reports step {report.step} of {steps}"
    elif report.step < run.last_step and report.start_step == run.start_step:
        wrong = f"it reports step {report.step} after step {run.last_step}"
    if wrong is None:
        return report
    if report.state in ("checkpointed_and_stopped", "failed", "fenced"):
        return replace(report, step=run.last_step)
    return RunReport(run.id, "malformed", error=wrong, silent_s=report.silent_s)


def _silent_s(said: object) -> float:
    """Seconds since the report, according to the node's own bridge."""
    try:
        return float(checked_json.fitting(said, {"silent_s": checked_json.seconds}, _OF).get("silent_s", 0.0))
    except MalformedMessage:
        return 0.0
