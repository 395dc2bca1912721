"""Checkpoints that are asked beside the tick: begun once, kept for their purpose, given up after a while."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.engine.calls import Calls, Pending, Place
from orchestrator.engine.context import Context
from orchestrator.engine.jobs.background_catalog import KEPT_S, LIMIT_S, BackgroundCatalog
from orchestrator.engine.jobs.checkpoints import CheckpointsAwaited, CheckpointsOutOfReach, CheckpointUnusable
from providers.clock import VirtualClock

ROOT, JOB = "s3://bucket", "job"


class Books:
    """A catalogue whose answers the test sets, and the calls under way."""

    def __init__(self) -> None:
        self.fence_of = 1
        self.under_way: list[tuple[Pending, Callable[[], object]]] = []

    def carry(self, _key: str, _place: Place, call: Callable[[], object]) -> Pending:
        self.under_way.append((Pending(), call))
        return self.under_way[-1][0]

    def next_tick(self) -> None:
        """Nothing is due."""

    def answer(self) -> None:
        """Let what is under way happen."""
        for pending, call in self.under_way:
            pending.run(call)
        self.under_way.clear()

    def fenced(self, _root: object, _job: str) -> int:
        return self.fence_of

    def fence(self, _root: object, _job: str, generation: int, _manifest: str | None) -> bool:
        self.fence_of = generation
        return True

    def newest(self, *_: object) -> None:
        raise CheckpointUnusable("it is damaged")


class Home:
    """What a context needs of an installation here."""

    def __init__(self) -> None:
        self.clock = VirtualClock(0)


def made() -> tuple[Books, VirtualClock, BackgroundCatalog, BackgroundCatalog]:
    """The catalogue for two purposes."""
    books, home = Books(), Home()
    inner: Any = books
    ctx = Context(home, inner, inner, inner, calls=Calls(inner))  # type: ignore[arg-type]
    return books, home.clock, ctx.catalog("one"), ctx.catalog("other")


def test_a_question_is_begun_once_and_its_answer_kept_for_its_purpose() -> None:
    books, _, one, other = made()
    for _ in range(3):
        with pytest.raises(CheckpointsAwaited):
            one.fenced(ROOT, JOB)
    assert len(books.under_way) == 1
    books.answer()
    books.fence_of = 2
    assert [one.fenced(ROOT, JOB), one.fenced(ROOT, JOB)] == [1, 1]
    with pytest.raises(CheckpointsAwaited):
        other.fenced(ROOT, JOB)
    books.answer()
    assert other.fenced(ROOT, JOB) == 2


def test_an_answer_is_not_kept_for_ever() -> None:
    books, clock, one, _ = made()
    with pytest.raises(CheckpointsAwaited):
        one.fenced(ROOT, JOB)
    books.answer()
    assert one.fenced(ROOT, JOB) == 1
    clock.advance(KEPT_S + 1.0)
    with pytest.raises(CheckpointsAwaited):
        one.fenced(ROOT, JOB)


def test_a_fence_that_was_begun_is_remembered_and_makes_what_was_known_before_void() -> None:
    books, clock, one, _ = made()
    with pytest.raises(CheckpointsAwaited):
        one.fenced(ROOT, JOB)
    books.answer()
    assert one.fenced(ROOT, JOB) == 1
    clock.advance(1.0)
    assert not one.has_asked_for_fence(ROOT, JOB, 2, None)
    with pytest.raises(CheckpointsAwaited):
        one.fence(ROOT, JOB, 2, None)
    assert one.has_asked_for_fence(ROOT, JOB, 2, None)
    with pytest.raises(CheckpointsAwaited):
        one.fenced(ROOT, JOB)
    books.answer()
    assert one.fence(ROOT, JOB, 2, None)
    assert one.fenced(ROOT, JOB) == 2


def test_a_store_that_never_answers_is_out_of_reach_after_a_while() -> None:
    _, clock, one, _ = made()
    with pytest.raises(CheckpointsAwaited):
        one.fence(ROOT, JOB, 2, None)
    clock.advance(LIMIT_S + 1.0)
    with pytest.raises(CheckpointsOutOfReach):
        one.fence(ROOT, JOB, 2, None)


def test_an_error_is_raised_once_and_the_question_asked_again() -> None:
    books, clock, one, _ = made()
    for _ in range(2):
        with pytest.raises(CheckpointsAwaited):
            one.newest(ROOT, JOB, 1)
        books.answer()
        with pytest.raises(CheckpointUnusable, match="damaged"):
            one.newest(ROOT, JOB, 1)
        clock.advance(1.0)
