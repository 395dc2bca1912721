"""Reads a line from the terminal. Ctrl-C always ends the wait.

A signal that arrives just before a blocking read is only noticed when the read returns, which may be never. So the code
waits for two things: input, and the byte that the interpreter writes to a pipe when a signal arrives.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


def answer(question: str) -> str:
    """Ask, and return the next line of stdin, stripped; empty if stdin has ended. Call it from the main thread only."""
    with _signals() as arrived:  # set up before asking, so that an early Ctrl-C is noticed
        sys.stderr.write(question)
        sys.stderr.flush()
        while sys.stdin not in select.select([sys.stdin, arrived], [], [])[0]:
            os.read(arrived, 1)  # a signal whose handler did not raise, such as a window resize
    return sys.stdin.readline().strip()


@contextmanager
def _signals() -> Iterator[int]:
    """A file descriptor that can be read after each signal."""
    reader, writer = _pipe()
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(before)


@cache
def _pipe() -> tuple[int, int]:
    """One pipe for the life of the process: with one per question, a badly timed Ctrl-C could leak a pipe."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    return reader, writer
