"""`submit`: what is found out about a job on this machine before it is handed over."""

from __future__ import annotations

import json
import os
import pty
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import Result

from providers import traits

Run = Callable[..., Result]

WRAPPED = """\
import functools


def traced(function):
    @functools.wraps(function)
    def inner(**given):
        return function(**given)
    return inner


@traced
def main(width=64):
    pass
"""


def test_a_job_whose_decorated_function_takes_other_arguments_is_refused_before_anything_is_rented(
    tradewind: Run, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(WRAPPED)
    text = (tmp_path / "job.yaml").read_text().replace("steps: 500", "steps: 500, args: {wide: 8}")
    (tmp_path / "job.yaml").write_text(text)
    refused = tradewind("submit", "job.yaml", "--yes")
    assert refused.exit_code == 3
    assert "train.args do not fit train:main(width=64): got an unexpected keyword argument 'wide'" in refused.stderr
    assert "Traceback" not in refused.stdout
    assert tradewind("status", "fresh").exit_code == 4  # nothing was submitted
    saved = tradewind("plan", "job.yaml", "-o", "plan.json")
    assert saved.exit_code == 0  # a look at a job file runs none of its code
    assert tradewind("apply", "plan.json", "--yes").exit_code == 3


def test_what_could_not_be_checked_here_is_reported_and_blocks_no_job(
    tradewind: Run, tmp_path: Path, state: Path
) -> None:
    (state / "up.lock").mkdir()  # no control plane is started
    (tmp_path / "train.py").write_text(WRAPPED + "\n\nraise RuntimeError('no CUDA device')\n")
    result = tradewind("submit", "job.yaml", "--yes", "--output", "json")
    (warning, *_) = json.loads(result.stdout)["command_warnings"]
    assert "train:main was not checked here: RuntimeError: no CUDA device" in warning["message"]
    assert json.loads(result.stdout)["name"] == "fresh"


LEARNING = """\
import torch
import trainers


def main(steps):
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = trainers.attach(model=model, optimizer=optimizer, steps=steps)
    for _ in run.batches():
        loss = model(torch.ones(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        run.step(loss)
"""


@pytest.fixture
def unmeasured(tradewind: Run, tmp_path: Path, state: Path) -> Path:
    """The folder of a job of whose speed nothing is known; no control plane is started."""
    (state / "up.lock").mkdir()
    (tmp_path / "job.yaml").write_text((tmp_path / "job.yaml").read_text().partition("expected:")[0])
    (tmp_path / "train.py").write_text(LEARNING)
    return tmp_path


def test_an_unmeasured_job_is_profiled_before_it_is_submitted_with_yes(tradewind: Run, unmeasured: Path) -> None:
    result = tradewind("submit", "job.yaml", "--yes", "--output", "json")
    assert result.exit_code == 0, result.stderr
    job = json.loads(result.stdout)
    assert job["trial"]["measured"] is True
    assert job["trial"]["step_wall_s"] > 0
    assert job["trial"]["precision"] == "fp32"
    again = tradewind("submit", "job.yaml", "--yes", "--output", "json")
    assert json.loads(again.stdout)["trial"] is None  # it is known by now


def test_a_profile_is_announced_and_the_plan_that_is_reviewed_uses_it(tradewind: Run, unmeasured: Path) -> None:
    result = tradewind("submit", "job.yaml", "--yes", "--why")
    assert "profiling fresh first: a few steps on this machine, 60 s at most" in result.stderr
    assert "a profile of its step" in result.stderr
    assert "not measured" not in result.stderr


def test_a_job_is_not_tried_here_if_that_is_not_wanted(tradewind: Run, unmeasured: Path) -> None:
    (unmeasured / "train.py").write_text("def main(steps):\n    raise AssertionError('it was run')\n")
    result = tradewind("submit", "job.yaml", "--yes", "--no-profile", "--output", "json")
    assert json.loads(result.stdout)["trial"] is None
    assert "profiling" not in result.stderr
    assert tradewind("submit", "job.yaml", "--dry-run").exit_code == 0


def test_a_trial_that_fails_on_this_machine_keeps_no_job_back(tradewind: Run, unmeasured: Path) -> None:
    (unmeasured / "train.py").write_text("def main(steps):\n    raise RuntimeError('no CUDA device')\n")
    result = tradewind("submit", "job.yaml", "--yes", "--output", "json")
    assert result.exit_code == 0
    job = json.loads(result.stdout)
    assert (job["name"], job["trial"]["measured"], job["trial"]["step_wall_s"]) == ("fresh", False, None)
    assert job["trial"]["why"] == "RuntimeError: no CUDA device"


def test_a_trial_that_would_fail_alike_anywhere_is_shown_and_nothing_is_submitted(
    tradewind: Run, unmeasured: Path
) -> None:
    (unmeasured / "train.py").write_text("def main(steps):\n    import transformres\n")
    result = tradewind("submit", "job.yaml", "--yes")
    assert result.exit_code == 3
    assert "ModuleNotFoundError: No module named 'transformres'" in result.stderr
    assert "line 2, in main" in result.stderr
    assert tradewind("status", "fresh").exit_code == 4


def test_on_a_terminal_it_is_asked_for(environment: dict[str, str], unmeasured: Path) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        command = [sys.executable, "-c", "from orchestrator.cli import main; main()", "submit", "job.yaml"]
        os.execve(sys.executable, command, environment)
    said = b""
    for question in (b"Profile it first (a few steps on this machine, 60 s at most)? [y/N]", b"Submit this job? [y/N]"):
        while question not in said:
            said += os.read(terminal, 4096)
        os.write(terminal, b"n\n")
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0
    assert b"the speed of fresh is unknown: the plan shows no cost and no finish time." in said


def test_queue_status_and_report_say_that_a_job_was_not_measured_yet(tradewind: Run, unmeasured: Path) -> None:
    assert tradewind("submit", "job.yaml", "--yes", "--no-profile").exit_code == 0
    (line,) = [line for line in tradewind("queue").stdout.splitlines() if line.startswith("fresh")]
    assert "  not measured yet  " in line
    (line,) = [line for line in tradewind("status", "fresh").stdout.splitlines() if line.startswith("to go")]
    assert line.split(maxsplit=2)[2] == "not measured yet"
    assert "fresh: to go: not measured yet" in tradewind("report").stdout
    listed = json.loads(tradewind("queue", "--output", "json").stdout)["jobs"]
    (job,) = [each for each in listed if each["name"] == "fresh"]
    assert (job["forecast"], job["no_forecast"]) == (None, "not measured yet")
    (line,) = [line for line in tradewind("status", "conv").stdout.splitlines() if line.startswith("to go")]
    assert line.endswith("p5-p95)")


@pytest.fixture
def sensitive(tradewind: Run, tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job's folder with a secret, on machines that do not have it; no control plane is started."""
    monkeypatch.setitem(traits._OF, "fake", replace(traits.traits_of("fake"), shares_host=False))
    (state / "up.lock").mkdir()
    (tmp_path / "code").mkdir()
    (tmp_path / "train.py").rename(tmp_path / "code" / "train.py")
    (tmp_path / "code" / "id_rsa").write_text("secret")
    text = (tmp_path / "job.yaml").read_text().replace('entry: "train:main"', 'entry: "train:main", workdir: code')
    (tmp_path / "job.yaml").write_text(text)
    return tmp_path


@pytest.mark.parametrize("json_too", [(), ("--output", "json")])
def test_what_may_be_a_secret_is_not_uploaded_unless_somebody_agrees(
    tradewind: Run, sensitive: Path, json_too: tuple[str, ...]
) -> None:
    assert tradewind("plan", "job.yaml", "-o", "plan.json").exit_code == 0
    for command in (("submit", "job.yaml"), ("apply", "plan.json")):
        refused = tradewind(*command, *json_too)
        assert refused.exit_code == 2
        said = refused.stdout if json_too else refused.stderr
        assert "may contain secrets: id_rsa" in said
        assert ".tradewindignore" in said
    assert tradewind("status", "fresh").exit_code == 4
    result = tradewind("submit", "job.yaml", "--yes", "--output", "json")
    assert result.exit_code == 0
    warnings = json.loads(result.stdout)["command_warnings"]
    assert any("id_rsa" in warning["message"] for warning in warnings)


def test_on_a_terminal_code_with_a_secret_is_asked_about_before_the_job(
    environment: dict[str, str], sensitive: Path
) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        remote = "from providers import traits; traits._OF['fake'] = traits.Traits(simulated=True)"
        command = [sys.executable, "-c", f"{remote}; from orchestrator.cli import main; main()", "submit", "job.yaml"]
        os.execve(sys.executable, command, environment)
    said = b""
    while b"Upload it? [y/N]" not in said:
        said += os.read(terminal, 4096)
    os.write(terminal, b"n\n")
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0
    assert b"id_rsa" in said
    assert b"Submit this job?" not in said
    assert b"2 files of" in said


STARTS_OVER = "from step 0 after each pause and each loss of a machine"
LOOP = "import torch\n\ndef main(**args):\n    for step in range(500):\n        torch.ones(1)\n"


def test_a_program_that_starts_over_is_named_before_a_machine_is_rented(tradewind: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LOOP)
    for command in (("plan", "job.yaml"), ("plan", "job.yaml", "--why"), ("submit", "job.yaml", "--dry-run")):
        said = " ".join(tradewind(*command).stdout.split())
        assert said.count(STARTS_OVER) == 1, command
        assert "call trainers.attach() (docs/training-code.md)" in said
    (caution,) = json.loads(tradewind("plan", "job.yaml", "--output", "json").stdout)["cautions"]
    assert caution.startswith("fresh: its program reads no saved state")
    (tmp_path / "train.py").write_text(f"import trainers\n{LOOP}")
    assert STARTS_OVER not in tradewind("plan", "job.yaml").stdout
    assert json.loads(tradewind("plan", "job.yaml", "--output", "json").stdout)["cautions"] == []


def test_a_submission_that_shows_no_plan_has_its_cautions_as_warnings(
    tradewind: Run, tmp_path: Path, state: Path
) -> None:
    (state / "up.lock").mkdir()  # no control plane is started
    (tmp_path / "train.py").write_text(LOOP)
    document = json.loads(tradewind("submit", "job.yaml", "--yes", "--output", "json").stdout)
    assert [STARTS_OVER in each["message"] for each in document["command_warnings"]].count(True) == 1


GROUP = """\
group: pair
defaults: {resources: {gpu: [V100]}, expected: {gpu: V100, steps_per_s: 4.5}}
jobs: [{file: job.yaml}, {name: second, train: {entry: "train:main", steps: 100, secrets: [TW_KEY]}}]
"""


@pytest.mark.parametrize("file", ["job.yaml", "group.yaml"])
def test_a_plan_needs_no_secrets_and_says_which_submit_needs(tradewind: Run, tmp_path: Path, file: str) -> None:
    text = (tmp_path / "job.yaml").read_text().replace("steps: 500", "steps: 500, secrets: [TW_TOKEN, TW_KEY]")
    (tmp_path / "job.yaml").write_text(text)
    (tmp_path / "group.yaml").write_text(GROUP)
    planned = tradewind("plan", file)
    assert planned.exit_code == 0, planned.stderr
    assert "to submit, export secrets that are missing or empty here: TW_TOKEN, TW_KEY" in planned.stdout
    refused = tradewind("submit", file)
    assert refused.exit_code == 2
    assert "TW_TOKEN, TW_KEY" in refused.stderr
    assert "prices" not in refused.stderr  # before the plan and the question
