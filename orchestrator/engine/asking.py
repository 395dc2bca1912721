"""Asking: calls to providers by a process that has nothing else to do until they are answered, such as `down`.

The control plane's loop waits for no answer (engine.calls). `up` and `down` do, but not for ever: a provider that does
not answer is reported like one that refuses, and the others are still asked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

from orchestrator.engine.calls import LIMIT_S, Pending, Threads
from providers.errors import TimedOutError

T = TypeVar("T")
AGAIN_S = 1.0
"""Wall seconds for the further calls to a provider that has left one unanswered; they may still take effect."""


class Ask(Protocol):
    """Makes a call to the provider of this name and returns its answer. Raises what the call raises."""

    def __call__(self, provider: str, call: Callable[[], T], /) -> T:
        """See Ask."""
        ...


def at_once(_provider: str, call: Callable[[], T], /) -> T:
    """Make the call, however long it takes."""
    return call()


class Within:
    """Makes each call in a thread, and raises TimedOutError if it is not answered within `limit_s`."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s, self._threads, self._silent = limit_s, Threads(), set[str]()

    def __call__(self, provider: str, call: Callable[[], T], /) -> T:
        """See Ask."""
        limit_s = min(AGAIN_S, self._limit_s) if provider in self._silent else self._limit_s
        answered, pending = threading.Event(), Pending()

        def make() -> None:
            try:
                pending.run(call)
            finally:
                answered.set()

        made = self._threads.carry(provider, (provider, ""), make)
        if not answered.wait(limit_s):
            self._silent.add(provider)
            raise TimedOutError(f"no answer from {provider} for {limit_s:g} s")
        if not pending.over:  # it raised what is no Exception
            made.result()
        result: T = pending.result()
        return result
