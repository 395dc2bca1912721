"""Nap: a call that may fall asleep in the middle, as a process does that is stopped, and go on much later.

It runs on a stack of its own (greenlet: a switch between stacks costs a microsecond, a thread's waits for the host's
scheduler), never beside anybody else. So one thing happens at a time, and a history with naps is as deterministic as
one without.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")
_here: ContextVar[Nap[Any] | None] = ContextVar("nap", default=None)


class Abandoned(BaseException):
    """The machine of a sleeper is gone: it never wakes."""


class Nap(Generic[_T]):
    """One call."""

    def __init__(self, call: Callable[[], _T]) -> None:
        from greenlet import greenlet  # type: ignore[import-untyped]

        self._call = call
        self._stack = greenlet(self._run)
        self._caller = self._stack.parent
        self._abandoned = False
        self._result: _T | None = None
        self._error: BaseException | None = None
        self.over = False

    @staticmethod
    def here() -> Nap[Any] | None:
        """The call that is being carried out."""
        return _here.get()

    def go(self) -> bool:
        """Let it run until it sleeps or is over. Returns whether it is over."""
        from greenlet import getcurrent

        self._caller = self._stack.parent = getcurrent()
        self._stack.switch()
        return self.over

    def value(self) -> _T:
        """What the call returned, once it is over; raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    def abandon(self) -> None:
        """Let it never wake. What it would clean up on its way out, file_edges keeps it from."""
        self._abandoned = True
        while not self.over and self._stack:
            self.go()

    def sleep(self) -> None:
        """Called by the call itself. Raises Abandoned instead of returning when it is not to wake."""
        assert self._caller is not None
        self._caller.switch()
        if self._abandoned:
            raise Abandoned

    def _run(self) -> None:
        _here.set(self)
        try:
            self._result = self._call()
        except BaseException as error:  # the caller's to raise
            self._error = error
        self.over = True
