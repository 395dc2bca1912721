"""Standard output that may be closed or full: the command still ends with the right exit code and no traceback.

If the reader has exited (`| head`), it has all it wanted, and no message is shown. Everything else is an error: a full
disk, or a descriptor that was closed before the start. Errors of other sockets and files are not confused with it.
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
    """The reader of standard output has closed it."""


class _Watched:
    """A text stream whose errors are distinguished from all others. After the first error, every call raises it again:
    a library that ignored it (click does, when it inspects the stream) would otherwise let the command succeed."""

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
            raise OutputError("standard output is closed", hint="redirect it, for example with > result.txt")
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
                f"standard output cannot be written: {error.strerror}", hint="free some space, or write elsewhere"
            )
            raise self._failure from error

    def _discard(self) -> None:
        """Discard the buffer; otherwise the interpreter would report an error at exit."""
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._open().fileno())


@contextmanager
def watched_stdout() -> Iterator[None]:
    """In this block, and at its end, a failed write to stdout raises OutputError or ReaderGoneError. A character that
    the encoding lacks is written as an escape."""
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
