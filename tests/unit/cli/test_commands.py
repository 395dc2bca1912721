"""Every command: its result on stdout, everything else on stderr, its JSON, its help, its name."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from orchestrator.cli.app import app
from orchestrator.cli.suggestions import ELSEWHERE
from orchestrator.services.control_plane.version import installed_version
from providers.catalog.files import DATA
from providers.clock import VirtualClock
from providers.local import LocalProvider
from tests.unit.cli.conftest import Run
from tests.unit.services.recorded_history import OTHER_SPOT

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


def test_the_version_is_an_option_too(tradewind: Run) -> None:
    result = tradewind("--version")
    assert (result.exit_code, result.stdout) == (0, f"tradewind {installed_version()}\n")


def test_the_example_of_migrate_names_an_offer_that_exists(tmp_path: Path) -> None:
    root: Any = get_command(app)
    named = root.commands["migrate"].epilog.rpartition(" ")[2]
    assert named in {offer.id for offer in LocalProvider(tmp_path, VirtualClock(), 1).offers()}


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
