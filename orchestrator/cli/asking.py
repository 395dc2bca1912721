"""A line from the terminal. Ctrl-C ends the wait for it, whenever it is pressed.

A signal that arrives just before a blocking read is noticed only when the read returns, which may be never. So the wait
is for two things: input, and the byte that the interpreter writes to a pipe as soon as a signal arrives.
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
    """Ask, and return the next line of stdin without its end; empty if stdin has ended. Only for the main thread."""
    with _signals() as arrived:  # before the question, which a quick Ctrl-C answers
        sys.stderr.write(question)
        sys.stderr.flush()
        while sys.stdin not in select.select([sys.stdin, arrived], [], [])[0]:
            os.read(arrived, 1)  # of a signal whose handler did not raise, such as a new window size
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
    """One for the life of the process: of a pipe per question, Ctrl-C in the wrong moment would leave one open."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    return reader, writer
