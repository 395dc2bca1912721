"""RunContext: what the runner lays out for the session of this process, and how a session ends the program."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainers.control import ControlDirectory, TrainerState
from trainers.journal import Journal
from trainers.spec import TrainerSpec

if TYPE_CHECKING:
    from trainers.loop.session import Session


@dataclass(frozen=True, slots=True)
class Timers:
    """The clocks of a run, as an argument so that tests need not wait. Seconds."""

    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    cpu: Callable[[], float] = time.process_time


@dataclass(slots=True)
class RunContext:
    """One run: its orders, its papers, its clocks; and its session once the program has called attach().

    `leaving` is how a program that did not call it is being ended (trainers.process.unmanaged).
    """

    spec: TrainerSpec
    control: ControlDirectory
    journal: Journal
    timers: Timers
    session: Session | None = None
    leaving: TrainerState | None = None
    on_step: Callable[[int], None] | None = None


class RunEnded(BaseException):
    """Ends the program from inside its loop, past its `except Exception`; the runner reports `state`."""

    def __init__(self, state: TrainerState) -> None:
        super().__init__(state)
        self.state = state


_open: RunContext | None = None


@contextmanager
def opened(context: RunContext) -> Iterator[None]:
    """Let `attach` find `context` in here."""
    global _open  # noqa: PLW0603  (one program per process, and its attach() is given no handle)
    _open = context
    try:
        yield
    finally:
        _open = None
        if context.session is not None:
            context.session.close()


def present_context() -> RunContext | None:
    """The desk of the run that this process executes, if it does."""
    return _open
