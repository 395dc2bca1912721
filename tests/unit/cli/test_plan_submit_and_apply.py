"""Plans and submissions by command: what is shown, what is refused, what is stored."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from orchestrator import errors
from tests.unit.cli.conftest import Run, a_control_plane_runs


def test_submit_shows_the_plan_on_stderr_and_the_job_on_stdout(tradewind: Run, state: Path) -> None:
    a_control_plane_runs(state)
    result = tradewind("submit", "job.yaml", "--yes")
    assert result.exit_code == 0, result.stderr
    assert "fresh: start on" in result.stderr
    assert "tradewind logs -f fresh" in result.stderr
    assert "queued" in result.stdout


def test_with_json_stdout_and_stderr_together_are_one_document(tradewind: Run, state: Path) -> None:
    a_control_plane_runs(state)
    result = tradewind("submit", "job.yaml", "--yes", "--output", "json")
    job = json.loads(result.output)
    assert (result.exit_code, job["name"], job["state"]) == (0, "fresh", "queued")


def test_a_gpu_that_the_simulated_market_lacks_needs_init(tradewind: Run, tmp_path: Path) -> None:
    job = "name: no\ntrain: {entry: 'train:main', steps: 5}\nresources: {gpu: GPU}\n"
    for gpu, named in (("H200:8", True), ("A100-80GB:8", False)):
        (tmp_path / "no.yaml").write_text(job.replace("GPU", gpu))
        refused = tradewind("submit", "no.yaml", "--yes")
        assert refused.exit_code == 6
        hint = " ".join(refused.stderr.split())
        assert ("the simulated market has no such GPUs" in hint) == named
        assert ("`tradewind init`" in hint) == named


def test_what_is_impossible_is_shown_whole_before_it_is_refused(tradewind: Run, tmp_path: Path) -> None:
    (tmp_path / "no.yaml").write_text("name: no\ntrain: {entry: 'train:main', steps: 5}\nresources: {gpu: T4:7}\n")
    for command in (("plan", "no.yaml"), ("submit", "no.yaml", "--dry-run")):
        shown = tradewind(*command, "--output", "json")
        assert shown.exit_code == 6
        (decision,) = json.loads(shown.stdout)["decisions"]
        assert (decision["name"], decision["offer_id"]) == ("no", None)


def test_a_stored_job_exits_0_with_a_warning_when_no_control_plane_can_be_started(tradewind: Run, state: Path) -> None:
    (state / "up.lock").mkdir()
    result = tradewind("submit", "job.yaml", "--yes", "--token", "once", "--output", "json")
    assert result.exit_code == 0, result.stderr
    job = json.loads(result.stdout)["id"]
    (warning,) = json.loads(result.stdout)["command_warnings"]
    assert warning["message"].startswith(f"fresh is submitted as {job}, but: ")
    assert warning["hint"]
    again = tradewind("submit", "job.yaml", "--yes", "--token", "once", "--wait", "--output", "json")
    assert (again.exit_code, json.loads(again.stdout)["id"]) == (0, job)
    assert json.loads(again.stdout)["command_warnings"]
    assert job in tradewind("submit", "job.yaml", "--yes", "--token", "once").stderr
    Path("job.yaml").write_text(Path("job.yaml").read_text().replace("500", "501"))
    other = tradewind("submit", "job.yaml", "--yes", "--token", "once")
    assert (other.exit_code, "another submission" in other.stderr) == (2, True)


def test_a_stored_job_and_an_accepted_plan_exit_0_with_a_warning_whatever_breaks_after_that(
    tradewind: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(*_arguments: Any, **_more: Any) -> None:
        raise LookupError("what nobody expects")

    assert tradewind("plan", "job.yaml", "-o", "plan.json").exit_code == 0
    monkeypatch.setattr(subprocess, "Popen", break_down)  # no control plane can be started
    result = tradewind("submit", "job.yaml", "--yes")
    assert result.exit_code == 0, result.stderr
    assert ", but: LookupError: what nobody expects\nhint: " in result.stderr
    applied = tradewind("apply", "plan.json", "--yes")
    assert applied.exit_code == 0, applied.stderr
    assert "is accepted, but: LookupError: what nobody expects\nhint: " in applied.stderr
    assert tradewind("up").exit_code == 1  # of another command it is an error


def test_submit_asks_and_without_a_terminal_leaves_nothing_behind(tradewind: Run) -> None:
    result = tradewind("submit", "job.yaml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "hint: add --yes" in result.stderr
    assert "fresh" not in tradewind("queue", "--all").stdout


def test_a_task_file_of_another_tool_is_named_and_its_conversion_written_once(tradewind: Run, tmp_path: Path) -> None:
    for command in (("plan",), ("submit", "--yes")):
        refused = tradewind(*command, "task.yaml")
        assert refused.exit_code == errors.SpecError.exit_code
        assert "SkyPilot" in refused.stderr
        assert "tradewind convert task.yaml" in refused.stderr
    result = tradewind("convert", "task.yaml", "-o", "mine.yaml")
    assert result.exit_code == 0
    assert not result.stdout
    assert "task.yaml:3:49: resources.disk_size: left out" in result.stderr
    assert "before you submit: mine.yaml:" in result.stderr
    assert "FILL IN" in (tmp_path / "mine.yaml").read_text()
    again = tradewind("convert", "task.yaml", "-o", "mine.yaml")
    assert again.exit_code == errors.UsageError.exit_code
    assert "--force" in again.stderr
    assert tradewind("convert", "task.yaml", "-o", "mine.yaml", "--force").exit_code == 0
    assert tradewind("convert", "mine.yaml").exit_code == errors.SpecError.exit_code


def test_a_saved_plan_is_applied(tradewind: Run, state: Path, tmp_path: Path) -> None:
    a_control_plane_runs(state)
    assert tradewind("plan", "job.yaml", "-o", "plan.json").exit_code == 0
    applied = tradewind("apply", "plan.json", "--yes")
    assert applied.exit_code == 0, applied.stderr
    assert "1 to start or move" in applied.stdout
    again = tradewind("apply", "plan.json", "--yes")
    assert again.exit_code == 7
    assert "was already submitted" in again.stderr


def test_a_conversion_that_is_not_saved_says_how_to_save_it(tradewind: Run, tmp_path: Path) -> None:
    task, job = tmp_path / "my task.yaml", tmp_path / "converted.yaml"
    task.write_text("run: python train.py\n")
    shown = tradewind("convert", str(task))
    assert shown.stderr.endswith(f"to save it: tradewind convert '{task}' -o job.yaml\n")
    saved = tradewind("convert", str(task), "-o", str(job))
    assert saved.stderr.endswith(f"check it: tradewind plan {job}\n")
    assert job.exists()


def test_yes_does_not_accept_a_plan_that_is_unlikely_to_meet_its_budget(tradewind: Run, tmp_path: Path) -> None:
    planned = json.loads(tradewind("plan", "job.yaml", "--output", "json").stdout)["decisions"][0]
    likely = f"{planned['cost_nano_usd'] / 1e9:.6f} USD"
    (tmp_path / "risky.yaml").write_text((tmp_path / "job.yaml").read_text() + f"budget: {likely}\n")
    refused = tradewind("submit", "risky.yaml", "--yes")
    assert refused.exit_code == 9
    assert "--accept-risk" in refused.stderr
    assert tradewind("status", "fresh").exit_code == 4  # nothing was submitted


def test_a_plan_says_if_submit_will_need_consent_to_its_risk(tradewind: Run, tmp_path: Path) -> None:
    (tmp_path / "late.yaml").write_text((tmp_path / "job.yaml").read_text() + "deadline: 1s\n")
    (tmp_path / "sure.yaml").write_text((tmp_path / "job.yaml").read_text() + "deadline: 300h\nbudget: 1000 USD\n")
    line = "deadline may not be met: fresh 0% likely; submit --yes needs --accept-risk"
    for arguments in ((), ("--why",), ("--policy-trace",)):
        shown = tradewind("plan", "late.yaml", *arguments)
        assert (shown.exit_code, line in shown.stdout.splitlines()) == (0, True)
        assert "--accept-risk" not in tradewind("plan", "sure.yaml", *arguments).stdout
    assert line in tradewind("plan", "late.yaml", "job.yaml").stdout.splitlines()
    assert "--accept-risk" not in tradewind("plan", "--all").stdout  # these jobs are submitted


def test_a_hopeless_deadline_is_said_at_once_and_needs_consent(tradewind: Run, tmp_path: Path) -> None:
    (tmp_path / "late.yaml").write_text((tmp_path / "job.yaml").read_text() + "deadline: 1s\n")
    shown = tradewind("plan", "late.yaml")
    assert (shown.exit_code, "the deadline cannot be met" in shown.stdout) == (0, True)
    refused = tradewind("submit", "late.yaml", "--yes")
    assert (refused.exit_code, "0% likely" in refused.stderr) == (9, True)


def test_a_policy_trace_shows_the_rule_and_each_option_and_is_saved_with_the_plan(
    tradewind: Run, tmp_path: Path
) -> None:
    shown = tradewind("plan", "job.yaml", "--policy-trace").stdout
    both = tradewind("plan", "job.yaml", "--policy-trace", "--why").stdout
    assert "all figures and reasons: tradewind plan job.yaml --policy-trace --why" in shown
    assert all(part in both for part in ("compared by", "\nwhy ", "\nmade of "))
    assert "compared by objective cheapest" in shown
    assert "offers: " in shown
    traced = json.loads(tradewind("plan", "job.yaml", "--policy-trace", "-o", "plan.json", "--output", "json").stdout)
    options = traced["decisions"][0]["trace"]["options"]
    assert options[0]["offer_id"] == traced["decisions"][0]["offer_id"]
    assert options[0]["value"] == 1
    assert json.loads((tmp_path / "plan.json").read_text())["decisions"][0]["trace"]["options"] == options
    assert json.loads(tradewind("plan", "job.yaml", "--output", "json").stdout)["decisions"][0]["trace"] is None


def test_an_unmeasured_job_has_no_forecast_and_a_hint_how_to_get_one(tradewind: Run, tmp_path: Path) -> None:
    text = (tmp_path / "job.yaml").read_text().replace("name: fresh", "name: llm").partition("expected:")[0]
    (tmp_path / "unknown.yaml").write_text(text + "deadline: 48h\nbudget: 1 USD\n")
    first = tradewind("plan", "unknown.yaml").stdout
    assert "tradewind profile unknown.yaml" in first
    assert "90%" not in first
    shown = tradewind("plan", "unknown.yaml", "--why").stdout
    assert "not measured yet" in shown
    assert "tradewind profile unknown.yaml" in shown
    assert "expected:" in shown
    assert "x A100-80GB" in shown
    assert "done " not in shown
    assert "p5-p95" not in shown
    listed = tradewind("offers", "--for", "unknown.yaml", "--gpu", "V100").stdout
    assert "x A100-80GB" in listed
    assert "tradewind profile" in listed
