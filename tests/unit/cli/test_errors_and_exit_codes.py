"""What a command says that fails or is interrupted, and its exit code."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from orchestrator import errors
from orchestrator.cli.app import TradewindGroup
from tests.unit.cli.conftest import Run
from tests.unit.services.recorded_history import Past

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


def test_what_explain_does_not_find_says_where_to_look(tradewind: Run) -> None:
    for wrong, remedy in (("plan_x", "plan FILE --why"), ("mig_x", "tradewind events JOB"), ("run_x", "events JOB")):
        refused = tradewind("explain", wrong)
        assert refused.exit_code == 4
        assert remedy in refused.stderr.splitlines()[-1]


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
