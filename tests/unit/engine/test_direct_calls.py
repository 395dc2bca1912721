"""Calls of `up` and `down`, which wait for their answers, but not for ever."""

from __future__ import annotations

import threading

import pytest

from orchestrator.engine.direct_calls import Within
from providers.errors import CapacityError, TimedOutError, UnavailableError


def test_an_answer_and_an_error_are_passed_on() -> None:
    ask = Within()
    assert ask("here", lambda: 7) == 7
    with pytest.raises(CapacityError):
        ask("here", _refuse)


def test_a_call_that_hangs_is_given_up_and_other_providers_answer() -> None:
    ask, hang = Within(0.01), threading.Event()
    try:
        for _ in range(20):  # more than it would have threads for, if it waited for them
            with pytest.raises(TimedOutError, match="no answer from there"):
                ask("there", hang.wait)
        assert Within()("here", lambda: 7) == 7
        assert not any(each.name == "call" and not each.daemon for each in threading.enumerate())
    finally:
        hang.set()


def test_a_call_that_raises_what_is_no_exception_is_an_error_of_the_provider() -> None:
    """As pyo3 raises it for a panic in Rust."""

    class Panic(BaseException):
        pass

    def panic() -> None:
        raise Panic

    with pytest.raises(UnavailableError, match="Panic"):
        Within()("here", panic)


def _refuse() -> None:
    raise CapacityError("no capacity")
