"""The command as a process of its own, at a terminal and in a pipe."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.cli.app import app
from orchestrator.cli.stdout import watched_stdout
from orchestrator.errors import OutputError
from tests.unit.cli.test_commands import READING

MAIN = (sys.executable, "-c", "from orchestrator.cli import main; main()")
PATIENCE_S = 60.0


def _at_a_terminal(arguments: list[str], environment: dict[str, str]) -> tuple[subprocess.Popen[bytes], int]:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*MAIN, *arguments],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=environment,
        start_new_session=True,
    )
    os.close(theirs)
    return process, ours


def _read_until(terminal: int, words: bytes) -> bytes:
    seen = b""
    while words not in seen and select.select([terminal], [], [], PATIENCE_S)[0]:
        try:
            seen += os.read(terminal, 4096)
        except OSError:  # the other end is closed
            break
    return seen


def test_no_is_the_answer_to_anything_but_yes(environment: dict[str, str]) -> None:
    process, terminal = _at_a_terminal(["cancel", "conv"], environment)
    try:
        assert b"Cancel conv at step 50?" in _read_until(terminal, b"[y/N]")
        os.write(terminal, b"\n")
        assert b"nothing was cancelled" in _read_until(terminal, b"nothing was cancelled")
        process.communicate(timeout=PATIENCE_S)
    finally:
        with contextlib.suppress(OSError):
            process.kill()
        os.close(terminal)
    assert process.returncode == 0


def test_a_reader_that_leaves_ends_it_quietly(environment: dict[str, str], state: Path) -> None:
    (state / "runs" / "run_1" / "log").write_text("line\n" * 10_000)
    process = subprocess.Popen([*MAIN, "logs", "gpt"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    assert process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(timeout=PATIENCE_S) == 141


def _ended(environment: dict[str, str], output: int, *arguments: str) -> int:
    """The exit code of `tradewind ...` in a process of its own, forked: the libraries are loaded once for all."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 99
        try:
            os.dup2(output, 1)
            os.dup2(os.open("stderr", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
            sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
            app(list(arguments), prog_name="tradewind")
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 98
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_failure_that_a_library_swallowed_as_it_looked_at_the_stream_is_an_error_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def write_and_swallow() -> None:
        with watched_stdout():
            sys.stdout.write("x")
            with contextlib.suppress(OutputError):
                sys.stdout.flush()
            with contextlib.suppress(OutputError):
                sys.stdout.write("the rest")

    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(OutputError, match="No space left"):
            write_and_swallow()


@pytest.mark.parametrize("name", [*READING, "help", "help of a command", "version option"])
def test_every_command_ends_quietly_without_a_reader_and_with_an_error_on_a_full_disk(
    environment: dict[str, str], name: str, state: Path
) -> None:
    helps = {"help": ("--help",), "help of a command": ("queue", "--help"), "version option": ("--version",)}
    arguments = helps.get(name) or READING[name]
    reading, writing = os.pipe()
    os.close(reading)
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        assert _ended(environment, writing, *arguments) == 141
        said = Path("stderr").read_text()
        assert "error" not in said, said
        assert "Traceback" not in said
        shutil.rmtree("gpt", ignore_errors=True)
        for made in ("copy.db", "out.csv"):
            Path(made).unlink(missing_ok=True)
        as_json = () if name in helps else ("--output", "json")
        assert _ended(environment, full, *arguments, *as_json) == 5
        assert "error: standard output cannot be written: No space left on device\nhint: " in Path("stderr").read_text()
    finally:
        os.close(writing)
        os.close(full)


def test_a_stored_job_exits_0_also_without_a_reader_and_on_a_full_disk(
    environment: dict[str, str], state: Path
) -> None:
    (state / "up.lock").mkdir()  # no control plane can be started
    reading, writing = os.pipe()
    os.close(reading)
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        assert _ended(environment, writing, "submit", "job.yaml", "--yes") == 0
        assert _ended(environment, full, "submit", "job.yaml", "--yes") == 0
        said = Path("stderr").read_text()
    finally:
        os.close(writing)
        os.close(full)
    assert said.count("warning: fresh is submitted as job_") == 2
    assert "but: standard output cannot be written: No space left on device" in said


@pytest.mark.parametrize(
    ("redirected", "code", "said"),
    [
        (">/dev/full", 5, "error: standard output cannot be written: No space left on device"),
        (">&-", 5, "error: standard output is closed"),
        ("| true", 141, ""),
        ("2>/dev/full >/dev/full", 5, ""),
        ("2>&- | true", 141, ""),
    ],
)
def test_the_end_of_the_interpreter_adds_nothing(
    environment: dict[str, str], redirected: str, code: int, said: str
) -> None:
    command = f'"$0" -c "$1" version {redirected}; exit ${{PIPESTATUS[0]}}'
    done = subprocess.run(
        ["bash", "-c", command, MAIN[0], MAIN[2]], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert done.stderr.splitlines()[:1] == ([said] if said else [])
    assert "ignored" not in done.stderr


def test_a_log_is_raw_in_a_pipe_and_plain_on_a_terminal(environment: dict[str, str], state: Path) -> None:
    (state / "runs" / "run_1" / "log").write_bytes(b"\x1b[31mred\x1b]0;title\x07 \xc2\x9b\x00 100%\r\n")
    piped = subprocess.run([*MAIN, "logs", "gpt"], env=environment, capture_output=True, check=True)
    assert b"\x1b[31mred\x1b]0;title\x07 \xc2\x9b\x00 100%\n" in piped.stdout
    ours, theirs = pty.openpty()
    process = subprocess.Popen([*MAIN, "logs", "gpt"], stdout=theirs, env=environment)
    os.close(theirs)
    seen = _read_until(ours, b"hello from 3")
    process.wait(timeout=PATIENCE_S)
    os.close(ours)
    assert rb"\x1b[31mred\x1b]0;title\x07 \x9b\x00 100%" in seen


def test_colour_is_for_terminals_that_want_it(environment: dict[str, str]) -> None:
    for extra, coloured in (({"TERM": "xterm", "NO_COLOR": ""}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False)):
        ours, theirs = pty.openpty()
        process = subprocess.Popen([*MAIN, "version"], stdout=theirs, env={**environment, **extra})
        os.close(theirs)
        seen = _read_until(ours, b"Python")
        process.wait(timeout=PATIENCE_S)
        os.close(ours)
        assert (b"\x1b[" in seen) is coloured


def test_a_character_that_the_encoding_of_the_output_lacks_is_written_as_an_escape(environment: dict[str, str]) -> None:
    shutil.copy("job.yaml", "caf\u00e9.yaml")
    narrow = {**environment, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([*MAIN, "plan", "caf\u00e9.yaml"], env=narrow, capture_output=True, check=False)
    assert (done.returncode, b"unexpected" in done.stderr) == (0, False)
    assert rb"caf\xe9.yaml" in done.stdout


def test_the_control_plane_starts_in_a_folder_whose_modules_have_the_names_of_those_of_python(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "queue.py").write_text("raise RuntimeError('this is of the user')\n")
    main = (sys.executable, "-P", *MAIN[1:])
    empty = {**environment, "TRADEWIND_STATE_DIR": str(tmp_path / "empty")}
    started = subprocess.run([*main, "up"], env=empty, capture_output=True, text=True, timeout=PATIENCE_S)
    ended = subprocess.run([*main, "down"], env=empty, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (started.returncode, ended.returncode) == (0, 0), started.stderr
