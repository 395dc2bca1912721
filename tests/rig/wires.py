"""Wires: the calls to the cloud under way, in virtual time: a deterministic queue in the order of events.

A call is answered at once, unless `weather` makes it slow: then it takes effect at once or just before its answer, or
it is never answered. What was sent may take effect even if its sender is dead or sleeps by then.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from orchestrator.engine.calls import Pending, Place
from providers.clock import Clock


@dataclass(frozen=True, slots=True)
class Delay:
    """Seconds from the question until it takes effect, and from then until its answer; infinite: never."""

    before_s: float = 0.0
    after_s: float = 0.0


PROMPT = Delay()


def never(_place: Place, _key: str) -> bool:
    """No region is silent."""
    return False


@dataclass(slots=True)
class _Sent:
    at_s: float
    number: int
    step: Callable[[], None]


@dataclass
class Wires:
    """All calls to one cloud. `rate` is the probability that a call whose key contains `about` is slow, then by one of
    `slow`. Those that are `silent` are never answered, and have no effect. `counted` counts the slow ones."""

    clock: Clock
    rng: random.Random
    rate: float = 0.0
    slow: tuple[Delay, ...] = ()
    about: str = ""
    silent: Callable[[Place, str], bool] = never
    counted: int = 0
    _sent: list[_Sent] = field(default_factory=list)
    _number: int = 0

    def connect(self) -> _Wire:
        """The wire of a new control plane. What those before have sent may still arrive, or not."""
        self._sent = [each for each in self._sent if self.rng.random() < 0.5]
        return _Wire(self)

    def deliver(self) -> None:
        """Let everything happen that is due, in the order of time."""
        while due := [each for each in self._sent if each.at_s <= self.clock.monotonic_s()]:
            first = min(due, key=lambda each: (each.at_s, each.number))
            self._sent.remove(first)
            first.step()

    def delay(self, place: Place, key: str) -> Delay:
        """That of the next call."""
        if self.silent(place, key):
            return Delay(inf, inf)
        if self.slow and self.about in key and self.rng.random() < self.rate:
            return self.rng.choice(self.slow)
        return PROMPT

    def send(self, at_s: float, step: Callable[[], None]) -> None:
        """Let `step` happen at this time."""
        if at_s < inf:
            self._number += 1
            self._sent.append(_Sent(at_s, self._number, step))


@dataclass
class _Wire:
    """Implements orchestrator.engine.calls.Carrier for one control plane."""

    wires: Wires

    def carry(self, key: str, place: Place, call: Callable[[], object]) -> Pending:
        """See Carrier.carry."""
        delay, pending, now_s = self.wires.delay(place, key), Pending(), self.wires.clock.monotonic_s()
        if delay is PROMPT:
            pending.run(call)
            return pending
        self.wires.counted += 1
        inner = Pending()

        def answer() -> None:
            pending.value, pending.error, pending.over = inner.value, inner.error, True

        def effect() -> None:
            inner.run(call)
            self.wires.send(now_s + delay.before_s + delay.after_s, answer)

        if delay.before_s:
            self.wires.send(now_s + delay.before_s, effect)
        else:
            effect()
        return pending

    def next_tick(self) -> None:
        """See Carrier.next_tick."""
        self.wires.deliver()
