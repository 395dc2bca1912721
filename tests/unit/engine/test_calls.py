"""Calls beside the tick: answers, slots, turns, time-outs; and the threads that make them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from orchestrator.engine.calls import (
    AT_ONCE,
    FORGET_S,
    HELD_S,
    LIMIT_S,
    QUEUES_S,
    Answer,
    Calls,
    Pending,
    Place,
    Threads,
)
from providers.errors import CapacityError, TimedOutError, UnavailableError

HERE, THERE = ("fake", "alpha"), ("fake", "beta")


class Silent:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.pending: list[Pending] = []

    def carry(self, _key: str, _place: Place, _call: Callable[[], object]) -> Pending:
        self.pending.append(Pending())
        return self.pending[-1]

    def next_tick(self) -> None: ...

    def answer(self, number: int, value: object) -> None:
        self.pending[number].run(lambda: value)


def test_an_answer_is_read_once_with_the_instant_of_its_question() -> None:
    calls, silent = _calls()
    assert calls.begin("key", HERE, lambda: "ignored", 5_000, 5.0) is None
    assert calls.answer("key", 6.0) is None
    assert calls.under_way("key")
    silent.answer(0, "value")
    assert calls.answer("key", 7.0) == Answer(5_000, 5.0, "value")
    assert calls.answer("key", 7.0) is None
    assert not calls.under_way("key")


def test_a_kept_answer_is_there_until_it_is_forgotten_and_an_error_is_not_kept() -> None:
    calls, silent = _calls()
    calls.begin("key", HERE, _refuse, 0, 0.0)
    silent.answer(0, "value")
    for at_s in (1.0, FORGET_S):
        assert calls.answer("key", at_s, keep=True) == Answer(0, 0.0, "value")
    calls.next_tick(FORGET_S + 1.0)
    assert calls.answer("key", FORGET_S + 1.0, keep=True) is None
    prompt = Calls()
    assert prompt.begin("key", HERE, lambda: "value", 0, 0.0, keep=True) == prompt.answer("key", 1.0)
    prompt.begin("key", HERE, _refuse, 0, 2.0, keep=True)
    assert prompt.answer("key", 3.0, keep=True) is None


def test_an_answer_that_comes_at_once_is_returned_at_once_and_an_error_is_raised_when_it_is_read() -> None:
    answer = Calls().begin("key", HERE, _refuse, 0, 0.0)
    assert answer is not None
    with pytest.raises(CapacityError):
        answer.result()


def test_the_answer_to_an_earlier_question_is_ignored_once_a_later_one_is_read() -> None:
    calls, silent = _calls()
    for at_s in (1.0, 2.0):
        assert calls.may_begin("key", HERE, at_s, abreast=2)
        calls.begin("key", HERE, _refuse, int(1000 * at_s), at_s)
    assert not calls.may_begin("key", HERE, 3.0, abreast=2)
    silent.answer(1, "later")
    assert calls.answer("key", 4.0) == Answer(2_000, 2.0, "later")
    silent.answer(0, "earlier")
    assert calls.answer("key", 4.0) is None


def test_a_place_has_so_many_slots_and_another_place_has_its_own() -> None:
    calls, silent = _calls()
    for number in range(AT_ONCE):
        assert _begin(calls, str(number), 0.0)
    assert not calls.may_begin("late", HERE, 0.0)
    assert calls.may_begin("elsewhere", THERE, 0.0)
    silent.answer(0, None)
    assert calls.may_begin("late", HERE, 0.0)


def test_the_job_that_has_waited_longest_for_a_slot_comes_first_if_it_still_asks() -> None:
    calls, silent = _calls()
    for number in range(AT_ONCE):
        _begin(calls, str(number), 0.0)
    assert not calls.may_begin("first", HERE, 1.0)
    assert not calls.may_begin("second", HERE, 1.0)
    silent.answer(0, None)
    assert not calls.may_begin("second", HERE, 2.0)
    assert not calls.may_begin("third", HERE, 2.0)
    assert calls.may_begin("first", HERE, 2.0)
    assert calls.may_begin("second", HERE, 1.0 + QUEUES_S + 2.0)


def test_a_call_that_is_not_answered_in_time_is_given_up_and_its_late_answer_ignored() -> None:
    calls, silent = _calls()
    _begin(calls, "key", 0.0)
    answer = calls.answer("key", LIMIT_S)
    assert answer is not None
    with pytest.raises(TimedOutError, match="no answer from fake alpha for 30 s"):
        answer.result()
    silent.answer(0, "late")
    assert calls.answer("key", LIMIT_S) is None


def test_a_place_that_never_answers_is_asked_less_and_less_and_at_once_again_when_it_does() -> None:
    calls, silent = _calls()
    begun = now_s = 0
    while now_s < 24 * 3600:
        calls.answer("key", now_s)
        begun += _begin(calls, "key", now_s)
        now_s += 1
    assert AT_ONCE < begun < 40 * AT_ONCE
    for each in silent.pending:
        each.run(lambda: None)
    now_s += int(QUEUES_S) + 1
    assert all(_begin(calls, str(number), now_s) for number in range(AT_ONCE))


def test_a_given_up_call_keeps_its_slot_for_a_while() -> None:
    calls, _ = _calls()
    for number in range(AT_ONCE):
        _begin(calls, str(number), 0.0)
    assert calls.answer("0", LIMIT_S) is not None
    assert not calls.may_begin("key", HERE, LIMIT_S)
    assert calls.may_begin("key", HERE, LIMIT_S + 2 * HELD_S)


def test_calls_that_never_end_do_not_slow_a_place_down_that_answers_others() -> None:
    calls, silent = _calls()
    for number in range(AT_ONCE):
        calls.begin(f"stuck/{number}", HERE, _refuse, 0, 0.0)
    now_s = LIMIT_S
    assert all(calls.answer(f"stuck/{number}", now_s) is not None for number in range(AT_ONCE))
    now_s += 4 * HELD_S  # they still have not ended
    assert calls.may_begin("answered", HERE, now_s)
    calls.begin("answered", HERE, _refuse, 0, now_s)
    silent.answer(AT_ONCE, "value")
    assert calls.may_begin("lost", HERE, now_s)
    calls.begin("lost", HERE, _refuse, 0, now_s)
    now_s += LIMIT_S
    assert calls.answer("lost", now_s) is not None
    assert calls.may_begin("next", HERE, now_s)


def test_a_place_that_recovers_after_minutes_is_asked_again_after_minutes() -> None:
    """Machines there must be ended. That six calls were under way at once does not make its silence longer."""
    calls, _ = _calls()
    for number in range(AT_ONCE):
        _begin(calls, str(number), 0.0)
    for number in range(AT_ONCE):
        assert calls.answer(str(number), LIMIT_S + number) is not None
    assert not calls.may_begin("terminate", HERE, LIMIT_S + HELD_S)
    assert calls.may_begin("terminate", HERE, LIMIT_S + 2 * HELD_S)


def test_a_place_that_never_answers_occupies_few_threads_however_long_that_lasts() -> None:
    """Days later, other places must still find threads."""
    calls, silent = _calls()
    for now_s in range(0, 3 * 86_400, 15):
        for number in range(10):
            calls.answer(str(number), float(now_s))
            _begin(calls, str(number), float(now_s))
    assert AT_ONCE < len(silent.pending) < 2 * AT_ONCE + 3 * 24
    for each in silent.pending:
        each.run(lambda: None)
    now_s += int(QUEUES_S) + 1
    assert all(_begin(calls, f"again {number}", now_s) for number in range(AT_ONCE))


def test_a_call_that_raises_what_is_no_exception_is_answered_and_costs_no_thread() -> None:
    """As pyo3 raises it for a panic in Rust."""

    class Panic(BaseException):
        pass

    def panic() -> None:
        raise Panic

    threads = Threads(1)
    for number in range(3):
        broken = threads.carry(f"panic {number}", HERE, panic)
        _until_over(broken)
        with pytest.raises(UnavailableError, match="Panic"):
            broken.result()
    sound = threads.carry("key", HERE, lambda: 7)
    _until_over(sound)
    assert sound.result() == 7


def _until_over(pending: Pending) -> None:
    give_up_s = time.monotonic() + 10
    while not pending.over:
        assert time.monotonic() < give_up_s
        time.sleep(0.001)


def test_an_answer_that_nobody_wants_is_forgotten() -> None:
    calls, silent = _calls()
    _begin(calls, "key", 0.0)
    silent.answer(0, None)
    calls.next_tick(3600.0)
    assert not calls.under_way("key")


def test_threads_give_prompt_answers_at_once_and_one_that_hangs_holds_up_nobody() -> None:
    hang = threading.Event()
    threads = Threads()
    calls = Calls(threads)
    try:
        for number in range(AT_ONCE):
            assert calls.begin(f"hangs {number}", HERE, hang.wait, 0, 0.0) is None
        threads.next_tick()
        ended = threading.Event()
        calls.begin("key", THERE, ended.set, 0, 0.0)
        assert ended.wait(10)
        names = [each for each in threading.enumerate() if each.name == "call"]
        assert all(each.daemon for each in names), "the process could not end"
    finally:
        hang.set()


def _calls() -> tuple[Calls, Silent]:
    silent = Silent()
    return Calls(silent), silent


def _begin(calls: Calls, key: str, now_s: float) -> bool:
    """Begin a call in HERE if it may begin."""
    if not calls.may_begin(key, HERE, now_s):
        return False
    calls.begin(key, HERE, _refuse, int(1000 * now_s), now_s)
    return True


def _refuse() -> None:
    raise CapacityError("no capacity")
