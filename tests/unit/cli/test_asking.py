"""Ctrl-C ends a question, even if it is pressed in the moment before the answer is read."""

from __future__ import annotations

import os
import pty
import select
import sys

QUESTIONS = 20_000
ASKS = f"""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))  # a file that a lost moment leaves open is noticed soon
from orchestrator.cli.output import Output
for number in range(1, {QUESTIONS} + 1):
    try:
        Output().confirm(f"question {{number}}?")
    except KeyboardInterrupt:
        continue
"""


def test_no_ctrl_c_is_lost_however_early_it_is_pressed() -> None:
    """The moment is a few instructions long: a plain read loses one in some ten thousand."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", ASKS])
    asked, said = 0, b""
    try:
        while asked < QUESTIONS:
            assert select.select([terminal], [], [], 60)[0], f"question {asked} did not end"
            try:
                said += os.read(terminal, 4096)
            except OSError:
                raise AssertionError(f"ended after question {asked}: {said.decode()}") from None
            if f"question {asked + 1}?".encode() in said:  # an interrupted write may show it twice
                asked, said = asked + 1, b""
                os.write(terminal, b"\x03")
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(terminal)


def test_an_answer_is_the_line_without_its_end() -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        ask = "from orchestrator.cli.output import Output; print([Output().confirm('?') for _ in range(3)])"
        os.execv(sys.executable, [sys.executable, "-c", ask])
    said = b""
    for reply in (b"yes\n", b"no\n", b"y\n"):
        asked = said.count(b"[y/N]")
        while said.count(b"[y/N]") == asked:
            said += os.read(terminal, 4096)
        os.write(terminal, reply)
    while b"]\r\n" not in said:
        said += os.read(terminal, 4096)
    os.waitpid(pid, 0)
    os.close(terminal)
    assert b"[True, False, True]" in said
