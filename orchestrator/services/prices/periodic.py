"""What a control plane does for prices beside its tick: sources polled at their own pace, days rolled up once they are
over, months archived, old prices let go.

All of it happens in a thread, in transactions of a few thousand rows, so that the tick waits for none of it; what fails
is said, and tried again.
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
"""Names of duties in the store; `archive` includes that old prices leave."""


class PriceDuties:
    """Acts between entering and leaving, for the control plane that holds `leadership`. `say` hears what goes wrong."""

    def __init__(self, installation: Installation, leadership: Leadership | None, say: Callable[[str], None]) -> None:
        self._installation = installation
        self._leadership = leadership
        self._say = say
        self._collector: Collector | None = None
        self._failing: dict[tuple[str, str], str] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tradewind-prices", daemon=True)

    def __enter__(self) -> PriceDuties:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Children are ended; a month that is being written is left to the end of the process."""
        self._ended.set()
        if self._collector is not None:
            self._collector.stop()
        self._thread.join(timeout=5.0)

    def turn(self) -> float:
        """Do what is due. Returns the wall seconds until something may be due again."""
        wait_s = self._collect()
        now = self._installation.clock.now_ms()
        with self._installation.store.read() as tx:
            rolled_up, archived = tx.duty(ROLL_UP) or 0, tx.duty(ARCHIVE) or 0
        if now // DAY_MS > rolled_up // DAY_MS:
            roll_up(self._installation.store, now, self._leadership)
            self._done(ROLL_UP, now)
            real_now = (
                self._installation.outside_clock.now_ms()
            )  # a simulated market that runs faster ages no real price
            if month_of(real_now) != month_of(archived):  # where it cannot be done, it is tried once a day
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
                self._told,
                leadership=self._leadership,
                reserved=self._installation.providers.keys(),
            )
        due_ms = self._collector.next_ms()
        if due_ms is not None and due_ms <= clock.now_ms():
            self._collector.collect()
            due_ms = self._collector.next_ms()
        return LOOK_EVERY_S if due_ms is None else min(max((due_ms - clock.now_ms()) / 1000, 1.0), LOOK_EVERY_S)

    def _told(self, poll: PollOutcome) -> None:
        """Say what fails or is not believed once, and that it recovered."""
        place, before = (poll.source, poll.region), self._failing.get((poll.source, poll.region))
        if poll.suspect:
            if place not in self._failing:
                self._say(f"prices: {poll.source} {poll.region}: {poll.suspect}; waiting for another poll to agree")
            self._failing[place] = poll.suspect
        elif poll.error is None:
            if self._failing.pop(place, None) is not None:
                self._say(f"prices: {poll.source} {poll.region}: recovered")
        elif str(poll.error) != before:
            self._failing[place] = str(poll.error)
            self._say(f"prices: {poll.source} {poll.region}: {poll.error}{_hint(poll.error.hint)}")

    def _done(self, duty: str, now_ms: int) -> None:
        with self._installation.store.write(self._leadership) as tx:
            tx.set_duty(duty, now_ms)

    def _run(self) -> None:
        while not self._ended.is_set():
            wait_s = LOOK_EVERY_S
            try:
                wait_s = self.turn()
            except TradewindError as error:
                self._say(f"prices: {error}; trying again{_hint(error.hint)}")
            except Exception:  # prices that age are told by their age; nothing else may suffer
                self._say(f"prices: unexpected, trying again: {traceback.format_exc()}")
            self._ended.wait(wait_s)


def _hint(hint: str) -> str:
    return f" (hint: {hint})" if hint else ""
