"""Every command: its result on stdout, everything else on stderr, its JSON, its exit code."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner, Result

from orchestrator import errors
from orchestrator.cli.app import TradewindGroup, app
from orchestrator.cli.suggestions import ELSEWHERE
from orchestrator.services.control_plane.version import installed_version
from providers.catalog.files import DATA
from providers.clock import VirtualClock
from providers.local import LocalProvider
from tests.disks import mounted
from tests.unit.services.recorded_history import OTHER_SPOT, Past

Run = Callable[..., Result]
REPOSITORY = Path(__file__).parents[3]
SNAPSHOT = Path(__file__).parent / "json_shapes.json"

READING: dict[str, tuple[str, ...]] = {
    "queue": ("queue", "--all"),
    "status": ("status", "conv"),
    "nodes": ("nodes",),
    "events": ("events", "gpt"),
    "explain": ("explain", "conv"),
    "explain-migration": ("explain", "mig_3"),
    "report": ("report",),
    "backtest": ("backtest", "arena.yaml"),
    "offers": ("offers", "--cloud", "fake"),
    "throughputs": ("throughputs", "rates.csv"),
    "convert": ("convert", "task.yaml"),
    "plan": ("plan", "job.yaml"),
    "plan-all": ("plan", "--all"),
    "submit-dry-run": ("submit", "job.yaml", "--dry-run"),
    "logs": ("logs", "gpt"),
    "wait": ("wait", "gpt"),
    "fetch": ("fetch", "gpt"),
    "checkpoints-ls": ("checkpoints", "ls", "gpt"),
    "checkpoints-verify": ("checkpoints", "verify", "gpt"),
    "checkpoints-prune": ("checkpoints", "prune", "gpt", "--keep", "1", "--dry-run"),
    "checkpoints-export": ("checkpoints", "export", "gpt", "model.pt"),
    "pause": ("pause", "conv"),
    "migrate": ("migrate", "conv", "--to", OTHER_SPOT),
    "cancel": ("cancel", "conv", "--yes"),
    "doctor": ("doctor",),
    "doctor-policy": ("doctor", "--policy", "azure"),
    "config-show": ("config", "show"),
    "catalog-show": ("catalog", "show"),
    "catalog-verify": ("catalog", "verify"),
    "catalog-update": ("catalog", "update", "--from", str(DATA)),
    "ledger-correct": ("ledger", "correct", "--dry-run"),
    "store-check": ("store", "check"),
    "store-backup": ("store", "backup", "copy.db"),
    "store-prune": ("store", "prune", "--older-than", "1s", "--outputs", "--dry-run"),
    "store-restore": ("store", "restore", "state/saved.db", "--yes"),
    "prices-status": ("prices", "status"),
    "prices-history": ("prices", "history", "--provider", "fake", "--limit", "2"),
    "prices-collect": ("prices", "collect", "--once"),
    "prices-export": ("prices", "export", "out.csv"),
    "prices-import": ("prices", "import", "recorded.csv"),
    "version": ("version",),
}


@pytest.mark.parametrize("name", READING)
def test_the_json_of_a_command_keeps_its_shape(tradewind: Run, name: str) -> None:
    result = tradewind(*READING[name], "--output", "json")
    assert result.exit_code == 0, result.stderr
    documents = (
        [json.loads(line) for line in result.stdout.splitlines()] if name == "logs" else [json.loads(result.stdout)]
    )
    assert documents[0]["schema"].startswith("tradewind/")
    shape = _shape(documents)
    shapes = json.loads(SNAPSHOT.read_text()) if SNAPSHOT.exists() else {}
    if os.environ.get("WRITE_SNAPSHOTS"):
        SNAPSHOT.write_text(json.dumps({**shapes, name: shape}, indent=1, sort_keys=True) + "\n")
        return
    assert shape == shapes[name], "a schema changed: raise its version, or WRITE_SNAPSHOTS=1 for an addition"


def _shape(value: Any) -> Any:
    """Keys and types. Lists are as their items together; numbers are one type, as 1.0 and 1 are to JSON."""
    if isinstance(value, dict):
        return {key: _shape(item) for key, item in value.items()}
    if isinstance(value, list):
        shapes = [_shape(item) for item in value]
        return ["many", _merge(shapes)]
    return "bool" if isinstance(value, bool) else "number" if isinstance(value, int | float) else type(value).__name__


def _merge(shapes: list[Any]) -> Any:
    if shapes and all(isinstance(shape, dict) for shape in shapes):
        return {key: _merge([shape[key] for shape in shapes if key in shape]) for shape in shapes for key in shape}
    distinct = {json.dumps(shape, sort_keys=True) for shape in shapes}
    return sorted(distinct)


@pytest.mark.parametrize("name", READING)
def test_the_table_of_a_command_goes_to_stdout_without_colour(tradewind: Run, name: str) -> None:
    result = tradewind(*READING[name])
    assert result.exit_code == 0, result.stderr
    assert result.stdout.strip()
    assert "\x1b" not in result.output


NAMING = (
    *(READING[name] for name in ("nodes", "explain", "plan", "offers", "doctor", "store-check")),
    ("queue",),
    ("status", "no-such-job"),
    ("status", "no-such-job", "--output", "json"),
)


@pytest.mark.parametrize("arguments", NAMING)
def test_a_command_that_is_named_acts_on_the_state_folder_that_was_typed(
    tradewind: Run, tmp_path: Path, state: Path, arguments: tuple[str, ...]
) -> None:
    """So that it can be pasted."""
    other = tmp_path / "an other state"
    state.rename(other)
    result = tradewind("--state-dir", str(other), *arguments)
    assert f"tradewind --state-dir '{other}' " in result.output
    commands = "|".join(get_command(app).commands)  # type: ignore[attr-defined]
    assert not re.findall(rf"\btradewind (?:{commands})(?![\w-]).*", result.output)
    assert not state.exists()


SIMULATED = ("queue", "status", "nodes", "explain", "report", "offers", "plan", "submit-dry-run")


@pytest.mark.parametrize("name", SIMULATED)
def test_whatever_shows_a_simulated_price_says_so(tradewind: Run, name: str) -> None:
    assert "simulated" in tradewind(*READING[name]).stdout
    reported = json.loads(tradewind(*READING[name], "--output", "json").stdout)
    assert (reported["job"] if name == "status" else reported)["simulated"] is True


def test_submit_shows_the_plan_on_stderr_and_the_job_on_stdout(tradewind: Run, state: Path) -> None:
    _a_control_plane_runs(state)
    result = tradewind("submit", "job.yaml", "--yes")
    assert result.exit_code == 0, result.stderr
    assert "fresh: start on" in result.stderr
    assert "tradewind logs -f fresh" in result.stderr
    assert "queued" in result.stdout


def test_with_json_stdout_and_stderr_together_are_one_document(tradewind: Run, state: Path) -> None:
    _a_control_plane_runs(state)
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


def test_a_queue_in_which_all_jobs_have_ended_says_how_to_see_them(tradewind: Run, state: Path, past: Past) -> None:
    with closing(sqlite3.connect(state / "tradewind.db")) as connection, connection:
        connection.execute("UPDATE job SET state = 'cancelled' WHERE state != 'finished'")
    queue = tradewind("queue")
    assert (queue.stdout, queue.stderr) == ("3 ended: tradewind queue --all\n", "")
    listed = json.loads(tradewind("queue", "--output", "json").stdout)
    assert (listed["jobs"], listed["ended"]) == ([], 3)
    everything = queue.stdout.strip().partition(": tradewind ")[2].split()
    assert "gpt" in tradewind(*everything).stdout


@pytest.mark.parametrize("command", ["queue", "status", "nodes"])
def test_open_jobs_and_machines_are_listed_with_a_warning_that_nobody_looks_after_them(
    tradewind: Run, past: Past, command: str
) -> None:
    listed = tradewind(command)
    assert listed.exit_code == 0
    assert "no control plane is running here" in listed.stderr
    assert "tradewind up" in listed.stderr
    (warning,) = json.loads(tradewind(command, "--output", "json").stdout)["command_warnings"]
    assert warning["hint"] == "tradewind up"


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
    _a_control_plane_runs(state)
    assert tradewind("plan", "job.yaml", "-o", "plan.json").exit_code == 0
    applied = tradewind("apply", "plan.json", "--yes")
    assert applied.exit_code == 0, applied.stderr
    assert "1 to start or move" in applied.stdout
    again = tradewind("apply", "plan.json", "--yes")
    assert again.exit_code == 7
    assert "was already submitted" in again.stderr


def _a_control_plane_runs(state: Path) -> None:
    """As the store tells it: this very process leads."""
    from orchestrator.store import Store
    from providers.clock import SystemClock

    store = Store.open(f"sqlite:///{state}/tradewind.db", SystemClock())
    assert store.campaign("test") is not None
    store.close()


def test_a_control_plane_that_is_stopped_is_named_with_its_remedy(tradewind: Run, state: Path) -> None:
    """By SIGSTOP, or by Ctrl-Z where it runs in the foreground: it holds the lead and does nothing."""
    leads = f"import sys, pathlib, {__name__} as tests; tests._a_control_plane_runs(pathlib.Path(sys.argv[1]))"
    command = [sys.executable, "-c", f"{leads}; print(flush=True); input()", str(state)]
    shown = [("queue",), ("status", "conv"), ("doctor",), ("nodes",)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=REPOSITORY) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            assert not [typed for typed in shown if "is stopped" in tradewind(*typed).output]
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            for typed in (*shown, ("up",), ("wait", "conv", "--timeout", "0")):
                said = " ".join(tradewind(*typed).output.split())
                assert "is stopped" in said, typed
                assert f"kill -CONT {process.pid}" in said, typed
            assert tradewind("up").exit_code == 5  # a script goes on only where jobs are attended to
            assert json.loads(tradewind("status", "conv", "--output", "json").stdout)["control_plane"]["stopped"]
            process.send_signal(signal.SIGCONT)
            os.waitid(os.P_PID, process.pid, os.WCONTINUED)
            assert not [typed for typed in shown if "is stopped" in tradewind(*typed).output]
        finally:
            process.kill()


def test_a_full_disk_is_named_where_jobs_are_listed(tradewind: Run, state: Path, tmp_path: Path) -> None:
    """Their states are the last that could be stored."""
    small = tmp_path / "small"
    small.mkdir()
    with mounted(small, "size=30m"):
        shutil.copytree(state, small / "state")
        typed = ("--state-dir", str(small / "state"))
        assert "is full" not in tradewind(*typed, "queue").output
        with closing(sqlite3.connect(small / "state" / "tradewind.db")) as in_use:  # as by a control plane
            in_use.execute("SELECT count(*) FROM job").fetchone()
            with suppress(OSError), open(small / "other", "wb") as other:
                while True:
                    other.write(bytes(100_000))
            for command in (("queue",), ("status", "conv"), ("nodes",)):
                result = tradewind(*typed, *command)
                assert result.exit_code == 0, result.output
                assert "the disk of the state folder is full" in " ".join(result.output.split()), command
            checks = json.loads(tradewind(*typed, "doctor", "--output", "json").stdout)["checks"]
            (store,) = [each for each in checks if each["name"] == "store"]
            assert store["state"] == "fail"
            assert "the disk is full, so nothing can be stored" in store["found"]
            assert store["fix"].startswith("free some space at ")
            started = tradewind(*typed, "up")
            assert started.exit_code == 5, started.output
            assert "No space left on device" in started.stderr
            assert "hint: free some space" in started.stderr


@pytest.mark.parametrize("command", ["queue", "status conv", "offers", "costs", "events", "doctor", "up", "report"])
def test_a_full_disk_is_named_where_no_control_plane_runs(
    tradewind: Run, state: Path, tmp_path: Path, command: str
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    with mounted(small, "size=30m"):
        shutil.copytree(state, small / "state")
        typed = ("--state-dir", str(small / "state"))
        assert "is full" not in tradewind(*typed, "queue").output
        with suppress(OSError), open(small / "other", "wb", buffering=0) as other:
            while True:
                other.write(bytes(4096))
        result = tradewind(*typed, *command.split())
        assert result.exit_code != 0
        said = " ".join(result.output.split())
        assert "the disk is full" in said
        assert "free some space" in said


def test_a_read_only_state_folder_is_called_that_and_a_copy_of_it_can_be_read(
    tradewind: Run, state: Path, tmp_path: Path
) -> None:
    sealed, copy = tmp_path / "sealed", tmp_path / "copy"
    sealed.mkdir()
    with mounted(sealed, "size=30m"):
        shutil.copytree(state, sealed / "state")
        subprocess.run(["mount", "-o", "remount,ro", str(sealed)], check=True)
        for command in ("queue", "up", "offers"):
            refused = tradewind("--state-dir", str(sealed / "state"), command)
            assert refused.exit_code == 5
            assert f"error: the state folder {sealed / 'state'} is read-only" in refused.stderr
            assert "hint: make it writable; to look only, copy it: cp -r" in refused.stderr
        missing = tradewind("--state-dir", str(sealed / "new"), "queue")
        assert f"the state folder {sealed / 'new'} cannot be created: Read-only file system" in missing.stderr
        subprocess.run(["cp", "-r", str(sealed / "state"), str(copy)], check=True)
    assert "conv" in tradewind("--state-dir", str(copy), "queue").stdout


def test_a_file_in_place_of_the_state_folder_is_called_one(tradewind: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = tradewind("--state-dir", str(tmp_path / "file"), "queue")
    assert refused.exit_code == 5
    assert f"error: the state folder {tmp_path / 'file'} is a file\n" in refused.stderr
    assert "--state-dir" in refused.stderr


@pytest.mark.parametrize("inside", ["", "state"])
def test_a_broken_link_is_named_with_its_target_wherever_a_folder_is_created(
    tradewind: Run, tmp_path: Path, inside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, target, whole = tmp_path / "link", tmp_path / "nowhere", tmp_path / "whole"
    link.symlink_to(target)
    whole.mkdir()
    named = f"{link} is a broken link to {target}"
    folder = str(link / inside)
    refused = tradewind("--state-dir", folder, "queue")
    assert refused.exit_code == 5
    assert f"error: the state folder {link / inside} cannot be created: {named}\n" in refused.stderr
    assert f"hint: create {target}, or name another folder with --state-dir" in refused.stderr
    assert named in tradewind("--state-dir", folder, "store", "check").stdout
    backup = tmp_path / "backup.db"
    assert tradewind("--state-dir", str(whole), "queue").exit_code == 0
    assert tradewind("--state-dir", str(whole), "store", "backup", str(backup)).exit_code == 0
    assert named in tradewind("--state-dir", folder, "store", "restore", str(backup), "--yes").stderr
    monkeypatch.setenv("TRADEWIND_STORE_ROOT", folder)
    assert f"store_root cannot be written: {named}" in tradewind("--state-dir", str(whole), "up").stderr
    assert not target.exists()


def test_the_report_goes_to_a_page_or_to_csv(tradewind: Run, tmp_path: Path) -> None:
    page = tradewind("report", "--html", "out.html")
    assert (page.exit_code, page.stdout) == (0, "")
    assert (tmp_path / "out.html").read_text().startswith("<!doctype html>")
    lines = tradewind("report", "--csv").stdout.splitlines()
    assert lines[0].startswith("id,job_id,run_id,")
    assert len(lines) == 9


EXIT_CODES: list[tuple[int, tuple[str, ...], str]] = [
    (0, ("queue",), ""),
    (2, ("queue", "--nonsense"), "No such option"),
    (2, ("offers", "--gpu", "H900"), "unknown GPU"),
    (2, ("resume", "conv"), "not paused"),
    (3, ("plan", "bad.yaml"), "bad.yaml:1"),
    (3, ("plan", "missing.yaml"), "cannot be read"),
    (4, ("status", "nobody"), "there is no job"),
    (3, ("catalog", "verify", "--file", "own.csv"), "own.csv:2:1: usd_per_hour"),
    (3, ("catalog", "show", "--file", "own.csv"), "own.csv:2:1: usd_per_hour"),
    (4, ("catalog", "verify", "--file", "missing.csv"), "is not a file"),
    (4, ("apply", "missing.json"), "missing.json"),
    (6, ("submit", "impossible.yaml", "--yes"), "no offer fits"),
    (6, ("submit", "impossible.yaml", "--dry-run"), "no offer fits"),
    (6, ("plan", "impossible.yaml"), "no offer fits"),
    (6, ("plan", "impossible.yaml", "job.yaml", "--check"), "no offer fits"),
    (0, ("plan", "elsewhere.yaml", "--check"), ""),
    (6, ("submit", "elsewhere.yaml", "--dry-run"), "plan --anywhere"),
    (6, ("submit", "elsewhere.yaml", "--yes"), "plan --anywhere"),
    (8, ("fetch", "partial"), "it has ended; see its output: tradewind logs gpt"),
    (8, ("wait", "conv", "--timeout", "0"), "still running"),
    (2, ("wait", "conv", "--timeout", "-1"), "must be at least "),
    (2, ("events", "--limit", "-3"), "must be at least "),
    (2, ("cancel", "gpt"), "gpt is finished"),
    (10, ("plan", "job.yaml", "--check"), ""),
]


@pytest.mark.parametrize(("code", "arguments", "message"), EXIT_CODES)
def test_the_exit_code_says_what_went_wrong(
    tradewind: Run, past: Past, state: Path, tmp_path: Path, code: int, arguments: tuple[str, ...], message: str
) -> None:
    (tmp_path / "bad.yaml").write_text("nme: x\ntrain: {entry: 1}\n")
    (tmp_path / "own.csv").write_text(
        "provider,region,instance_type,capacity,usd_per_hour,date,source\naws,us-east-1,p3.2xlarge,spot,nan,2026-11-01,x\n"
    )
    (tmp_path / "impossible.yaml").write_text(
        "name: no\ntrain: {entry: 'train:main', steps: 5}\nresources: {gpu: T4:7}\n"
    )
    (tmp_path / "elsewhere.yaml").write_text("name: no\ntrain: {entry: 'train:main', steps: 5}\nresources: {gpu: T4}\n")
    if "partial" in arguments:
        (state / "outputs" / past.gpt / "weights" / "final.pt").unlink()
        arguments = ("fetch", "gpt")
    result = tradewind(*arguments)
    assert result.exit_code == code, result.output
    assert message in result.stderr.replace("\n", " ")
    assert "Traceback" not in result.stderr


def test_a_spec_error_lists_every_problem_with_its_place(tradewind: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("nme: x\ntrain: {entri: 'train:main', steps: 5}\n")
    lines = tradewind("plan", "bad.yaml").stderr.splitlines()
    assert len(lines) >= 2
    assert all(line.startswith("bad.yaml:") for line in lines)
    assert any("did you mean" in line for line in lines)


def test_a_store_from_a_newer_version_is_left_alone(tradewind: Run, state: Path) -> None:
    with sqlite3.connect(state / "tradewind.db") as connection:
        connection.execute("UPDATE schema_revision SET version_num = 'from_the_future'")
    connection.close()
    result = tradewind("queue")
    assert result.exit_code == 5
    assert "hint:" in result.stderr
    doctor = tradewind("doctor")
    assert doctor.exit_code == 8
    assert "fail  store" in doctor.stdout


def test_a_state_folder_that_cannot_be_created_is_reported(tradewind: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = tradewind("--state-dir", str(tmp_path / "file" / "state"), "queue")
    assert result.exit_code == 5
    assert "TRADEWIND_STATE_DIR" in result.stderr


def test_mistakes_in_the_configuration_are_told_as_the_document_shows(tradewind: Run, tmp_path: Path) -> None:
    (tmp_path / "tradewind.toml").write_text("[projects.vision]\nwieght = 2\n")
    refused = tradewind("queue")
    assert refused.exit_code == errors.SpecError.exit_code
    assert f"```\n{refused.stderr}```" in (REPOSITORY / "docs" / "projects.md").read_text()


ERRORS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.TradewindError)]


@pytest.mark.parametrize("kind", ERRORS, ids=[kind.__name__ for kind in ERRORS])
def test_each_error_becomes_its_message_its_hint_and_its_code(kind: type[errors.TradewindError]) -> None:
    if kind is errors.SpecError:
        error: errors.TradewindError = errors.SpecError(
            [errors.Problem("job.yaml", 3, 4, "train", "is wrong", "fix it")]
        )
    elif kind is errors.MissingExtraError:
        error = errors.MissingExtraError("torch", "train")
    elif kind is errors.UnreadableRowError:
        error = errors.UnreadableRowError("run", "run_1", "its step is a word")
    else:
        error = kind("it went wrong", hint="do this")
    result = _program_that_raises(error)
    assert result.exit_code == kind.exit_code
    assert result.stdout == ""
    assert str(error) in result.stderr
    assert not error.hint or f"hint: {error.hint}" in result.stderr


def test_a_bug_is_one_line_unless_debugging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRADEWIND_DEBUG", raising=False)
    result = _program_that_raises(RuntimeError("boom"))
    assert result.exit_code == 1
    assert "unexpected error: RuntimeError: boom" in result.stderr
    assert "Traceback" not in result.stderr
    monkeypatch.setenv("TRADEWIND_DEBUG", "1")
    assert "Traceback" in _program_that_raises(RuntimeError("boom")).stderr


def test_the_version_is_an_option_too(tradewind: Run) -> None:
    result = tradewind("--version")
    assert (result.exit_code, result.stdout) == (0, f"tradewind {installed_version()}\n")


def test_the_example_of_migrate_names_an_offer_that_exists(tmp_path: Path) -> None:
    root: Any = get_command(app)
    named = root.commands["migrate"].epilog.rpartition(" ")[2]
    assert named in {offer.id for offer in LocalProvider(tmp_path, VirtualClock(), 1).offers()}


def test_waiting_for_a_job_that_is_not_there_says_only_that(tradewind: Run, past: Past) -> None:
    result = tradewind("wait", "nope")
    assert result.exit_code == 4
    assert result.stderr.splitlines() == ["error: there is no job 'nope'", "hint: tradewind queue lists them"]


def test_waiting_without_a_control_plane_says_once_that_nothing_happens(tradewind: Run, past: Past) -> None:
    result = tradewind("wait", "conv", "--timeout", "0")
    assert result.stderr.count("no control plane is running here") == result.stderr.count("tradewind up") == 1
    assert "hint: tradewind status conv" in result.stderr


def test_logs_of_a_job_that_has_not_run_say_so_and_why(tradewind: Run, state: Path, past: Past) -> None:
    result = tradewind("logs", "lstm")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.splitlines() == [
        "lstm has not run yet: submitted, objective cheapest",
        "warning: no control plane is running here, so jobs are not watched or moved, and costs are not booked",
        "hint: tradewind up",
    ]
    tradewind("cancel", "lstm")
    with sqlite3.connect(state / "tradewind.db") as connection:
        connection.execute("UPDATE job SET state = 'cancelled', finished_at_ms = 1 WHERE id = ?", (past.lstm,))
    connection.close()
    assert "lstm never ran: " in tradewind("logs", "lstm").stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["stop", "conv"], "No such command 'stop'. Did you mean 'pause', 'cancel', 'down'?"),
        (["launch", "job.yaml"], "No such command 'launch'. Did you mean 'submit'?"),
        (["quue"], "No such command 'quue'. Did you mean 'queue'?"),
        (["xyzzy"], "No such command 'xyzzy'."),
        (["budget", "conv", "3"], "No such command 'conv'. Commands: 'set'."),
        (["checkpoints", "stop"], "No such command 'stop'. Commands: 'export', 'ls', 'prune', 'verify'."),
        (["store", "chekc"], "No such command 'chekc'. Did you mean 'check'?"),
    ],
)
def test_a_word_that_is_no_command_is_answered_with_what_was_meant(tradewind: Run, words: list[str], said: str) -> None:
    result = tradewind(*words, "--output", "json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["message"] == said


@pytest.mark.parametrize("words", [["daemon", "logs"], ["daemon", "status"], ["logs"], ["logs", "-f"]])
def test_a_command_that_was_typed_for_the_log_of_the_control_plane_names_it(
    tradewind: Run, state: Path, tmp_path: Path, words: list[str]
) -> None:
    result = tradewind(*words)
    assert result.exit_code == 2
    assert f"controlplane'slog:{state / 'control-plane.log'}" in re.sub(r"[\s\u2502]", "", result.stderr)
    elsewhere = tradewind("--state-dir", str(tmp_path / "other"), *words, "--output", "json")
    said = json.loads(elsewhere.stdout)["error"]["message"]
    assert said.endswith(f"The control plane's log: {tmp_path / 'other' / 'control-plane.log'}")
    (tmp_path / "tradewind.toml").write_text("nonsense = 1\n")
    said = json.loads(tradewind(*words, "--output", "json").stdout)["error"]["message"]
    assert said.endswith("The control plane's log: control-plane.log in the state folder")


def test_the_log_of_the_control_plane_is_named_by_the_help_of_daemon_and_by_no_other_mistake(tradewind: Run) -> None:
    assert "control-plane.log" in tradewind("daemon").output
    assert "control-plane.log" not in tradewind("status").stderr
    assert "control-plane.log" not in tradewind("logs", "gpt", "--nonsense").stderr


def test_what_was_meant_by_the_words_of_other_tools_is_a_command() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    assert {name for names in ELSEWHERE.values() for name in names} <= commands.keys()
    assert not ELSEWHERE.keys() & commands.keys()


def test_waiting_for_a_paused_job_exits_with_its_reason(tradewind: Run, state: Path, past: Past) -> None:
    with sqlite3.connect(state / "tradewind.db") as connection:
        connection.execute("UPDATE job SET state = 'paused' WHERE id = ?", (past.conv,))
    connection.close()
    result = tradewind("wait", "conv")
    assert result.exit_code == 8
    assert "error: conv is paused at its last checkpoint" in result.stderr
    assert "hint: tradewind resume conv" in result.stderr


def test_the_hint_of_a_pause_does_not_contradict_its_reason(tradewind: Run, state: Path, past: Past) -> None:
    """`resume` alone would pause it again."""
    why = "paused: its budget is spent; to continue: tradewind budget set conv 9, then tradewind resume conv"
    with sqlite3.connect(state / "tradewind.db") as connection:
        connection.execute("UPDATE job SET state = 'paused' WHERE id = ?", (past.conv,))
        connection.execute(
            "INSERT INTO event (id, at_ms, kind, message, actor, job_id, data, project, owner, labels) "
            "SELECT 'ev_pause', at_ms, 'job.paused', ?, actor, job_id, data, project, owner, labels FROM event "
            "WHERE job_id = ? LIMIT 1",
            (why, past.conv),
        )
    connection.close()
    result = tradewind("wait", "conv")
    assert result.stderr.endswith(f"error: conv is {why}\n")
    assert json.loads(tradewind("wait", "conv", "--output", "json").stdout)["error"]["hint"] == ""


def test_a_failure_before_a_pause_is_a_sentence_of_its_own(tradewind: Run, state: Path, past: Past) -> None:
    with sqlite3.connect(state / "tradewind.db") as connection:
        connection.execute("UPDATE job SET state = 'paused' WHERE id = ?", (past.conv,))
        connection.execute("UPDATE run SET state = 'ended', end = 'failed' WHERE job_id = ?", (past.conv,))
    connection.close()
    assert re.search(r"conv: attempt \d+ of \d+ failed: .*; paused at its last", tradewind("wait", "conv").stderr)
    assert "conv: attempt" in tradewind("explain", "conv").stdout


def test_ctrl_c_is_130() -> None:
    assert _program_that_raises(KeyboardInterrupt()).exit_code == 130


def _program_that_raises(error: BaseException) -> Result:
    program = typer.Typer(cls=TradewindGroup)

    @program.command()
    def fail() -> None:
        raise error

    @program.command()
    def other() -> None:
        """Two commands, so that the group is not folded away."""

    return CliRunner().invoke(program, ["fail"])


@pytest.mark.parametrize(
    ("command", "usage"),
    [
        ("plan", "[OPTIONS] [FILE]..."),
        ("submit", "[OPTIONS] FILE"),
        ("status", "[OPTIONS] [JOB]"),
        ("fetch", "[OPTIONS] JOB [PATH]..."),
        ("prices import", "[OPTIONS] PATH..."),
        ("ssh", "[OPTIONS] JOB [COMMAND]..."),
        ("store", "[OPTIONS] COMMAND [ARGS]..."),
    ],
)
def test_a_usage_line_marks_what_is_optional_and_what_repeats_once(tradewind: Run, command: str, usage: str) -> None:
    shown = " ".join(tradewind(*command.split(), "--help").stdout.split())
    assert f"Usage: tradewind {command} {usage} " in shown


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (("offers", "--max-price", "x"), "Invalid value for '--max-price': must be a number, not \"x\""),
        (("offers", "--limit", "x"), "Invalid value for '--limit': must be a whole number, not \"x\""),
        (("queue", "--limit", "-1"), "Invalid value for '--limit': must be at least 1, not \"-1\""),
        (("offers", "--group-by", "x"), "Invalid value for '--group-by': 'x' is not one of 'gpu', 'region', 'cloud'"),
    ],
)
def test_a_value_that_an_option_cannot_have_is_named_with_what_is_expected(
    tradewind: Run, typed: tuple[str, ...], message: str
) -> None:
    refused = tradewind(*typed, "--output", "json")
    assert refused.exit_code == 2
    assert json.loads(refused.stdout)["error"]["message"] == message


def test_every_command_has_help_an_example_and_a_panel() -> None:
    root: Any = get_command(app)
    leaves = {name: each for name, each in root.commands.items() if not hasattr(each, "commands")}
    for group in ("daemon", "config", "catalog", "prices", "store", "budget"):
        leaves |= {f"{group} {name}": each for name, each in root.commands[group].commands.items()}
    assert len(leaves) == 50
    for name, command in leaves.items():
        assert command.help, name
        assert command.epilog.startswith("Example: tradewind "), name
        assert all(each.help for each in command.params if each.name != "help"), name
    assert {each.rich_help_panel for each in root.commands.values()} == {
        "Planning",
        "Jobs",
        "Control",
        "Insight",
        "Market",
        "System",
    }


def test_jobs_are_completed_from_the_store_and_from_nothing_else(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from orchestrator.cli.complete import jobs

    assert [name for name, _ in jobs("g")] == ["gpt"]
    assert len(jobs("job_")) == 3
    monkeypatch.setenv("TRADEWIND_STATE_DIR", str(tmp_path / "none"))
    assert jobs("") == []
    assert not (tmp_path / "none").exists()
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "tradewind.db").write_bytes(b"no database")
    assert jobs("") == []


STRANGE = "\x1b]0;title\x07\x1b[2J\x9b31m\x00\u202e[bold red]tail"


def test_what_a_stranger_wrote_steers_no_terminal(tradewind: Run, state: Path, past: Past) -> None:
    with closing(sqlite3.connect(state / "tradewind.db")) as connection, connection:
        connection.execute(
            "UPDATE job SET name = ?, spec = replace(spec, '\"conv\"', ?)", (STRANGE, json.dumps(STRANGE))
        )
        connection.execute("UPDATE migration SET error = ?", (STRANGE,))
    for command in (("queue", "--all"), ("status", past.conv), ("events",), ("explain", past.conv), ("report",)):
        result = tradewind(*command)
        assert result.exit_code == 0, result.stderr
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", result.output), command
    assert "[bold red]tail" in tradewind("queue", "--all").stdout  # no markup, and nothing of it lost
    failed = tradewind("status", "no\x1b[2Jbody")
    assert failed.exit_code == 2
    assert "no\\x1b[2Jbody" in failed.stderr


def test_a_conversion_that_is_not_saved_says_how_to_save_it(tradewind: Run, tmp_path: Path) -> None:
    task, job = tmp_path / "my task.yaml", tmp_path / "converted.yaml"
    task.write_text("run: python train.py\n")
    shown = tradewind("convert", str(task))
    assert shown.stderr.endswith(f"to save it: tradewind convert '{task}' -o job.yaml\n")
    saved = tradewind("convert", str(task), "-o", str(job))
    assert saved.stderr.endswith(f"check it: tradewind plan {job}\n")
    assert job.exists()


def test_events_of_all_jobs_say_whose_they_are(tradewind: Run, past: Past) -> None:
    every, own = tradewind("events").stdout.splitlines(), tradewind("events", "conv").stdout.splitlines()
    assert [line for line in every if " gpt " in line]
    assert [line for line in every if " conv " in line]
    assert not [line for line in own if " conv " in line]


def test_only_our_own_colours_are_sent() -> None:
    from orchestrator.cli.render.text import Screen, shown, visible

    painted = Screen(True)("fine", "green")
    assert shown(f"{painted}\n\ta\x1b[5mb\x9bc") == f"{painted}\n\ta\\x1b[5mb\\x9bc"
    assert visible("\x1b[32m\u202e\r\n\U000e0001") == "\\x1b[32m\\u202e\\x0d\\x0a\\U000e0001"
    assert visible("as it is: \u4e2d\u6587, \u00e9, \t tab") == "as it is: \u4e2d\u6587, \u00e9, \t tab"


def test_text_of_strangers_cannot_rewrite_the_screen() -> None:
    from orchestrator.cli.render.table import Column, numbers, table
    from orchestrator.cli.render.text import Screen, clean

    assert clean("a\x1b[2Jb\nc\u202ed") == "a [2Jb c d"
    plain = table((Column("name"), numbers("n")), [("\u4e2d\u6587", "1"), ("abc", "10")], Screen())
    assert plain.splitlines() == ["name   n", "\u4e2d\u6587   1", "abc   10"]
    assert "\x1b[32m" in table((Column("", state=True), Column("")), [("ok", "x")], Screen(True))


@pytest.mark.parametrize(
    ("command", "where", "said"),
    [
        (("up",), "orchestrator.services.control_plane.lifecycle.up", "the control plane may still start"),
        (("down",), "orchestrator.services.control_plane.lifecycle.down", "run tradewind down again"),
        (("logs", "-f", "conv"), "orchestrator.services.jobs.logs.logs", "the job continues: tradewind status conv"),
        (("wait", "conv"), "orchestrator.services.jobs.wait.wait", "the job continues: tradewind status conv"),
        (("fetch", "gpt"), "orchestrator.services.jobs.fetch.fetch", "not all files were fetched"),
    ],
)
def test_ctrl_c_says_what_goes_on_or_is_left_undone(
    tradewind: Run, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], where: str, said: str
) -> None:
    def interrupted(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(where, interrupted)
    done = tradewind(*command)
    assert (done.exit_code, done.stdout) == (130, "")
    assert said in done.stderr
    assert done.stderr.endswith("interrupted\n")


def test_prune_asks_with_a_preview_on_stderr_and_says_what_was_freed(tradewind: Run) -> None:
    refused = tradewind("store", "prune", "--older-than", "1s")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "add --yes" in refused.stderr
    assert "would be deleted" in refused.stderr
    done = tradewind("store", "prune", "--older-than", "1s", "--yes")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "deleted: 0.0 MB of 1 job and 1 unused runtime" in done.stdout
    again = tradewind("store", "prune", "--older-than", "1s")
    assert again.stdout.startswith("nothing to delete in")
    assert "duration" in tradewind("store", "prune", "--older-than", "long").stderr


def test_a_correction_of_the_books_wants_a_reason_and_finds_nothing_where_they_are_right(tradewind: Run) -> None:
    refused = tradewind("ledger", "correct", "--yes")
    assert (refused.exit_code, "--reason" in refused.stderr) == (2, True)
    done = tradewind("ledger", "correct", "--reason", "store check", "--yes")
    assert (done.exit_code, "nothing to correct" in done.stdout) == (0, True)


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


def test_costs_name_the_period_that_they_are_compared_with_and_one_that_has_not_ended(tradewind: Run) -> None:
    def shown(*period: str) -> list[str]:
        return tradewind("costs", *period).stdout.splitlines()

    month = json.loads(tradewind("costs", "--output", "json").stdout)
    name, before = month["period"], month["before_period"]
    this = datetime.fromtimestamp(month["from_ms"] / 1000, UTC)
    assert shown()[0] == f"{name} so far, by project"
    assert f"before is {before}; --csv shows exact amounts" in shown()
    assert (name, before) == (f"{this:%B %Y}", f"{this - timedelta(days=1):%B %Y}")
    week = ("--since", "2026-11-08", "--until", "2026-11-15")
    ranged = json.loads(tradewind("costs", *week, "--output", "json").stdout)
    assert (ranged["period"], ranged["before_period"]) == ("2026-11-08 to 2026-11-15", "2026-11-01 to 2026-11-08")


def test_what_explain_does_not_find_says_where_to_look(tradewind: Run) -> None:
    for wrong, remedy in (("plan_x", "plan FILE --why"), ("mig_x", "tradewind events JOB"), ("run_x", "events JOB")):
        refused = tradewind("explain", wrong)
        assert refused.exit_code == 4
        assert remedy in refused.stderr.splitlines()[-1]


def test_costs_are_titled_with_the_instants_that_were_named(tradewind: Run) -> None:
    def title(since: str, until: str) -> str:
        return json.loads(tradewind("costs", "--since", since, "--until", until, "--output", "json").stdout)["period"]

    assert title("2026-11-29T20:00:00+02:00", "2026-11-29T23:00:00Z") == "2026-11-29 18:00 to 2026-11-29 23:00 UTC"
    assert title("2026-11-21", "2026-11-28") == "2026-11-21 to 2026-11-28"


@pytest.mark.parametrize(
    ("option", "wrong", "remedy", "right"),
    [
        ("--kind", "compue", 'did you mean "compute"?', "egress"),
        ("--cloud", "awz", 'did you mean "aws"?', "gcp"),
        ("--project", "nosuch", "one of default", "default"),
    ],
)
def test_costs_of_what_does_not_exist_are_refused(
    tradewind: Run, option: str, wrong: str, remedy: str, right: str
) -> None:
    refused = tradewind("costs", option, wrong)
    assert refused.exit_code == 2
    assert f"unknown {option[2:]} '{wrong}'" in refused.stderr
    assert remedy in refused.stderr
    found = tradewind("costs", option, right, "--since", "2020-01-01", "--until", "2020-01-02")
    assert found.exit_code == 0
    assert "nothing was booked" in found.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("status", "LONG"),
        ("status", "LONG" * 40),
        ("submit", "job.yaml", "--token", "LONG"),
        ("queue", "--group", "LONG"),
        ("fetch", "gpt", "/LONG"),
        ("prices", "history", "--provider", "fake", "--since", "LONG"),
        ("report", "--month", "LONG"),
        ("costs", "--month", "LONG"),
        ("explain", "LONG"),
    ],
)
def test_an_error_quotes_the_beginning_of_a_long_word(tradewind: Run, arguments: tuple[str, ...]) -> None:
    result = tradewind(*(each.replace("LONG", "x" * 5000) for each in arguments))
    assert result.exit_code in (2, 4)
    assert "x" * 20 in result.stderr
    assert "x" * 100 not in result.stderr
