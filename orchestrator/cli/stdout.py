"""Standard output that may be closed or full: whatever writes to it, it ends with the right exit code and no traceback.

A reader that has left (`| head`) has what it wanted: nothing is said. Anything else is an error: a disk that is full, a
descriptor that was closed before the start. What comes from other sockets and files is not mistaken for it.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

from orchestrator.errors import OutputError


class ReaderGoneError(Exception):
    """Whoever read standard output has left."""


class _Watched:
    """A text stream whose failures are distinguished from all others. The first one is raised by all that
    follows: a library that swallowed it (click does, as it looks at the stream) would else end in success."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._failure: OutputError | ReaderGoneError | None = None

    def write(self, text: str) -> int:
        with self._recorded_failure():
            return self._open().write(text)

    def flush(self) -> None:
        if self._stream is not None:
            with self._recorded_failure():
                self._stream.flush()

    def isatty(self) -> bool:
        return self._stream is not None and self._stream.isatty()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._open(), name)

    def _open(self) -> TextIO:
        if self._stream is None:
            raise OutputError("standard output is closed", hint="run it with an output, such as > result.txt")
        return self._stream

    @contextmanager
    def _recorded_failure(self) -> Iterator[None]:
        if self._failure is not None:
            raise self._failure
        try:
            yield
        except OSError as error:
            self._discard()
            if error.errno == errno.EPIPE:
                self._failure = ReaderGoneError()
                raise self._failure from None
            self._failure = OutputError(
                f"standard output cannot be written: {error.strerror}", hint="free some space, or write it elsewhere"
            )
            raise self._failure from error

    def _discard(self) -> None:
        """What is still in the buffer goes nowhere, or the interpreter would complain at its end."""
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._open().fileno())


@contextmanager
def watched_stdout() -> Iterator[None]:
    """In this block, what cannot be written to stdout is an OutputError or a ReaderGoneError, at its end too. A
    character that its encoding lacks is written as an escape."""
    stream = sys.stdout
    with suppress(AttributeError, ValueError):  # closed, or not a text file
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    watched = cast(TextIO, _Watched(stream))
    sys.stdout = watched
    try:
        yield
    finally:
        try:
            watched.flush()
        finally:
            sys.stdout = stream
