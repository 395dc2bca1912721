"""Nap: a call that can be paused in the middle, like a stopped process, and resumed much later.

It runs on its own stack (greenlet: a switch costs a microsecond; threads would wait for the scheduler), never
concurrently. So a history with pauses is as deterministic as one without.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")
_here: ContextVar[Nap[Any] | None] = ContextVar("nap", default=None)


class Abandoned(BaseException):
    """Ends a paused call whose machine is gone."""


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
        """The call that is running now."""
        return _here.get()

    def go(self) -> bool:
        """Runs the call until it pauses or ends. True if it has ended."""
        from greenlet import getcurrent

        self._caller = self._stack.parent = getcurrent()
        self._stack.switch()
        return self.over

    def value(self) -> _T:
        """The result of the ended call. Raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    def abandon(self) -> None:
        """Ends the paused call for good. file_edges prevents its cleanup."""
        self._abandoned = True
        while not self.over and self._stack:
            self.go()

    def sleep(self) -> None:
        """Pauses the running call. Raises Abandoned if it is never resumed."""
        assert self._caller is not None
        self._caller.switch()
        if self._abandoned:
            raise Abandoned

    def _run(self) -> None:
        _here.set(self)
        try:
            self._result = self._call()
        except BaseException as error:  # raised in `value`
            self._error = error
        self.over = True
