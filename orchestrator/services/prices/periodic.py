"""Background price tasks of the control plane: polling sources, summarizing past days, archiving months and deleting
old prices.

They run in a thread, in transactions of a few thousand rows, so that the tick does not wait. Failures are logged and
retried.
"""

from __future__ import annotations

import random
import threading
import traceback
from collections.abc import Callable

from orchestrator.engine.machines.collect import collector
from orchestrator.errors import TradewindError
from orchestrator.installation import Installation
from orchestrator.prices.archive import archive, month_of, roll_up
from orchestrator.prices.sources import configured_sources
from orchestrator.store import Leadership
from providers.collect.runner import Collector, PollOutcome

DAY_MS = 86_400_000
LOOK_EVERY_S = 60.0
ROLL_UP = "roll-up"
ARCHIVE = "archive"
"""Names of periodic tasks in the store; `archive` also deletes old prices."""


class PeriodicPriceTasks:
    """A context manager that runs the tasks for the leader with `leadership`. `say` receives failures, one line
    each."""

    def __init__(self, installation: Installation, leadership: Leadership | None, say: Callable[[str], None]) -> None:
        self._installation = installation
        self._leadership = leadership
        self._say = say
        self._collector: Collector | None = None
        self._failing: dict[tuple[str, str], str] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tradewind-prices", daemon=True)

    def __enter__(self) -> PeriodicPriceTasks:
        """Starts the thread."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Ends child processes. An archive that is being written is finished or ends with the process."""
        self._ended.set()
        if self._collector is not None:
            self._collector.stop()
        self._thread.join(timeout=5.0)

    def turn(self) -> float:
        """Runs the tasks that are due. Returns the wall seconds until the next may be due."""
        wait_s = self._collect()
        now = self._installation.clock.now_ms()
        with self._installation.store.read() as tx:
            rolled_up, archived = tx.task_done_ms(ROLL_UP) or 0, tx.task_done_ms(ARCHIVE) or 0
        if now // DAY_MS > rolled_up // DAY_MS:
            roll_up(self._installation.store, now, self._leadership)
            self._done(ROLL_UP, now)
            real_now = (
                self._installation.outside_clock.now_ms()
            )  # real prices age in real time, even with a faster simulated market
            if month_of(real_now) != month_of(archived):  # after a failure it is retried once a day
                keep_days = self._installation.config.prices.keep_days
                folder = self._installation.state_dir / "archive"
                archive(self._installation.store, folder, real_now, keep_days=keep_days, leadership=self._leadership)
                self._done(ARCHIVE, real_now)
        return wait_s

    def _collect(self) -> float:
        specs = configured_sources(self._installation.config)
        if not specs:
            return LOOK_EVERY_S
        clock = self._installation.outside_clock
        if self._collector is None:
            self._collector = collector(
                self._installation.store,
                clock,
                specs,
                random.Random(),
                self._report,
                leadership=self._leadership,
                reserved=self._installation.providers.keys(),
            )
        due_ms = self._collector.next_ms()
        if due_ms is not None and due_ms <= clock.now_ms():
            self._collector.collect()
            due_ms = self._collector.next_ms()
        return LOOK_EVERY_S if due_ms is None else min(max((due_ms - clock.now_ms()) / 1000, 1.0), LOOK_EVERY_S)

    def _report(self, poll: PollOutcome) -> None:
        """Logs a failed or untrusted poll once, and the recovery."""
        place, before = (poll.source, poll.region), self._failing.get((poll.source, poll.region))
        if poll.suspect:
            if place not in self._failing:
                self._say(
                    f"prices: {poll.source} {poll.region}: {poll.suspect}; waiting for another poll to confirm it"
                )
            self._failing[place] = poll.suspect
        elif poll.error is None:
            if self._failing.pop(place, None) is not None:
                self._say(f"prices: {poll.source} {poll.region}: recovered")
        elif str(poll.error) != before:
            self._failing[place] = str(poll.error)
            self._say(f"prices: {poll.source} {poll.region}: {poll.error}{_hint(poll.error.hint)}")

    def _done(self, task: str, now_ms: int) -> None:
        with self._installation.store.write(self._leadership) as tx:
            tx.set_task_done(task, now_ms)

    def _run(self) -> None:
        while not self._ended.is_set():
            wait_s = LOOK_EVERY_S
            try:
                wait_s = self.turn()
            except TradewindError as error:
                self._say(f"prices: {error}; trying again{_hint(error.hint)}")
            except Exception:  # prices show their age; the control plane must continue
                self._say(f"prices: unexpected, trying again: {traceback.format_exc()}")
            self._ended.wait(wait_s)


def _hint(hint: str) -> str:
    return f" (hint: {hint})" if hint else ""
