"""Ends programs that never called attach() and therefore have no session that follows the control directory.

When asked to stop, or before the machine is taken away, the program gets SIGTERM if it has a handler for it, and a few
seconds to write its own checkpoint; then its folder is stored, and this process ends. From then on, and as soon as the
machine may be lost, the folder is stored at full speed. The program ends at once if the lease has expired or a newer
generation owns the job: another machine may already train it.

A rank that has called attach() may wait for ranks that it can no longer reach. It is ended, too, if it has not ended by
itself some seconds after its lease expired.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from trainers.control import EXIT_CODES, TrainerState
from trainers.errors import TrainerError
from trainers.process.own_folder import try_store
from trainers.process.run_context import RunContext

GRACE_S = 5.0  # from SIGTERM, or the end of the lease, to the end
POLL_S = 0.5
NOTICE_MARGIN_S = 1.0  # ends this long before the machine is taken away


@contextmanager
def watched(context: RunContext) -> Iterator[None]:
    """Watch the control directory while the program runs. When the program must end, `context.leaving` is set to the
    final state.
    """
    over = threading.Event()
    threading.Thread(target=_watch, args=[context, over], daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _watch(context: RunContext, over: threading.Event) -> None:
    while not over.wait(POLL_S):
        if context.rank is not None:
            _keep_process_group(context)
        if context.own is not None and _may_end_soon(context):
            context.own.hurry()
        if context.session is None and (state := _final_state(context)) is not None:
            context.leaving = state
            if state == "checkpointed_and_stopped" and callable(signal.getsignal(signal.SIGTERM)):
                os.kill(os.getpid(), signal.SIGTERM)
                if over.wait(GRACE_S):
                    return  # the program ended by itself
            if state == "checkpointed_and_stopped":
                state = _stored(context) or state
            _leave(context, state)
        if context.session is not None and context.rank is not None and _waits_without_lease(context):
            _leave(context, "fenced")


def _keep_process_group(context: RunContext) -> None:
    """Hold torch's process group until this process ends. If a program returns from the function that destroyed its
    group, the group is freed: Python's lock is held while gloo's threads are joined, and under load these often need
    that lock (torch 2.13: 10 of 27 runs of a small program with four ranks never ended).
    """
    torch_distributed = sys.modules.get("torch.distributed")
    if torch_distributed is not None and torch_distributed.is_available() and torch_distributed.is_initialized():
        context.process_group = torch_distributed.group.WORLD


def _leave(context: RunContext, state: TrainerState) -> NoReturn:
    context.journal.enter(state)
    os._exit(EXIT_CODES[state])


def _waits_without_lease(context: RunContext) -> bool:
    try:
        until = context.control.lease_until()
    except TrainerError:
        return False
    return until is not None and context.timers.monotonic() >= until + GRACE_S


def _stored(context: RunContext) -> TrainerState | None:
    """Store the program's checkpoints before it is ended. "fenced" if it must end before that is done."""
    if (own := context.own) is None:
        return None
    own.hurry()
    storing = threading.Thread(target=try_store, args=[own], daemon=True)
    storing.start()
    while storing.is_alive():
        storing.join(POLL_S)
        if _final_state(context) == "fenced":
            return "fenced"
    return None


def _may_end_soon(context: RunContext) -> bool:
    control = context.control
    try:
        return control.stop_requested() or control.warned() or control.notice() is not None
    except (OSError, TrainerError):
        return False  # it is read again


def _final_state(context: RunContext) -> TrainerState | None:
    """The state in which the program must end now; None if it may continue."""
    spec, control = context.spec, context.control
    try:
        until, notice = control.lease_until(), control.notice()
        if context.leads and context.ownership.generation() > spec.generation:
            return "fenced"
        if until is not None and context.timers.monotonic() >= until:
            return "fenced"
        if control.stop_requested():
            return "checkpointed_and_stopped"
        if notice is not None:
            left_s = notice.deadline_monotonic_s - context.timers.monotonic()
            return "checkpointed_and_stopped" if left_s <= GRACE_S + NOTICE_MARGIN_S else None
    except (OSError, TrainerError):
        pass  # try again: a store that fails for a moment must not end the program
    return None
