"""The command as a process of its own, at a terminal and in a pipe."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import subprocess
import sys
from pathlib import Path

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


def test_colour_is_for_terminals_that_want_it(environment: dict[str, str]) -> None:
    for extra, coloured in (({"TERM": "xterm", "NO_COLOR": ""}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False)):
        ours, theirs = pty.openpty()
        process = subprocess.Popen([*MAIN, "version"], stdout=theirs, env={**environment, **extra})
        os.close(theirs)
        seen = _read_until(ours, b"Python")
        process.wait(timeout=PATIENCE_S)
        os.close(ours)
        assert (b"\x1b[" in seen) is coloured
