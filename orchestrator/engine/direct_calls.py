"""Calls to providers by a process that only waits for their answers, such as `down`.

The control plane's loop never waits for an answer (engine.calls). `up` and `down` do, with a time limit: a provider
that does not answer is reported like one that refuses, and the other providers are still called.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

from orchestrator.engine.calls import LIMIT_S, Pending, Threads
from providers.errors import TimedOutError

T = TypeVar("T")
AGAIN_S = 1.0
"""Wall seconds for each further call to a provider that did not answer an earlier one; the calls may still take
effect."""


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
        if not pending.over:  # it raised something that is not an Exception
            made.result()
        result: T = pending.result()
        return result
