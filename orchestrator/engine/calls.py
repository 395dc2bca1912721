"""Calls: requests of the control plane to providers and to the store of control objects, made outside its loop.

A tick never waits for an answer: it begins a call, continues, and reads the answer in a later tick, with the time at
which the call began. A call occupies a slot of its place (a provider's region). A call that is not answered in time is
abandoned: it ends with a TimedOutError, a late answer is ignored, and the call keeps its slot for a while. When all
slots of a place are lost this way, one call at a time tries it again, until one ends. So a region that never answers
uses up only its own slots, and few threads. A call that finds no free slot does not begin; it gets its turn when it is
requested again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from providers.errors import TimedOutError, UnavailableError
from providers.offer import provider_of, region_of

T = TypeVar("T")
Place = tuple[str, str]
"""A provider and a region; "" for calls that concern all of its regions."""


def place_of(offer_id: str) -> Place:
    """The place of an offer's machines."""
    return provider_of(offer_id), region_of(offer_id)


AT_ONCE = 6
"""Calls that may be under way in one place."""
LIMIT_S = 30.0
"""Wall seconds after which a call without an answer is abandoned."""
HELD_S, LONGEST_HELD_S = 60.0, 3600.0
"""How long an abandoned call keeps its slot unless it ends: twice as long with each further one in a row. Calls that
were under way together count as one."""
QUEUES_S = 5.0
"""A call that waits for a slot and is not requested again for this long loses its turn."""
FORGET_S = 600.0
PROMPT_S = 0.005
"""An answer that arrives within this time is read in the tick that began the call."""
MOST_THREADS = 256
PATIENCE_S = 0.01
"""The longest time that all calls of one tick together wait for prompt answers."""


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """The result of a call that began at `asked_ms` (market) and `asked_s` (monotonic). It may be out of date since
    then."""

    asked_ms: int
    asked_s: float
    value: T | None = None
    error: Exception | None = None

    def result(self) -> T:
        """The value that the call returned. Raises what the call raised: a ProviderError, or an unexpected
        exception."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]


@dataclass(slots=True)
class Pending:
    """A call that has begun. Its carrier sets `value` or `error`, and `over` last."""

    over: bool = False
    value: Any = None
    error: Exception | None = None

    def run(self, call: Callable[[], object]) -> None:
        """Make the call."""
        try:
            self.value = call()
        except Exception as error:  # raised again when the answer is read
            self.error = error
        self.over = True

    def result(self) -> Any:
        """The value that the call returned, once it is over. Raises what the call raised."""
        if self.error is not None:
            raise self.error
        return self.value


class Carrier(Protocol):
    """Makes the calls."""

    def carry(self, key: str, place: Place, call: Callable[[], object]) -> Pending:
        """Begin a call. It may be over already."""
        ...

    def next_tick(self) -> None:
        """Called at the beginning of each tick."""
        ...


class AtOnce:
    """Makes each call at once, and waits until it ends."""

    def carry(self, _key: str, _place: Place, call: Callable[[], object]) -> Pending:
        """See Carrier.carry."""
        pending = Pending()
        pending.run(call)
        return pending

    def next_tick(self) -> None:
        """See Carrier.next_tick."""


@dataclass(slots=True)
class _Begun:
    place: Place
    asked_ms: int
    asked_s: float
    limit_s: float
    pending: Pending


@dataclass(slots=True)
class _Slots:
    """For one place: the calls that have not ended, those that wait for their turn (with the time of the last request),
    when the place last answered, and how often in a row calls were abandoned since then, the last time at `lost_s`."""

    taken: list[_Begun] = field(default_factory=list)
    queue: dict[str, float] = field(default_factory=dict)
    answered_s: float = -inf
    lost: int = 0
    lost_s: float = -inf

    def give_up(self, begun: _Begun, now_s: float) -> None:
        """Count a call that was not answered in time; calls that began together count once."""
        if begun.asked_s >= self.lost_s:
            self.lost, self.lost_s = self.lost + 1, now_s


class Calls:
    """The calls under way and the unread answers, by key. For one thread."""

    def __init__(self, carrier: Carrier | None = None) -> None:
        self._carrier: Carrier = AtOnce() if carrier is None else carrier
        self._begun: dict[str, list[_Begun]] = {}
        self._places: dict[Place, _Slots] = {}

    def next_tick(self, now_s: float) -> None:
        """Begin a new tick at monotonic time `now_s`, and forget answers that were not read."""
        self._carrier.next_tick()
        old = [key for key, begun in self._begun.items() if now_s - begun[-1].asked_s > FORGET_S]
        for key in old:
            del self._begun[key]

    def forget(self, key: str) -> None:
        """Ignore the answers to the calls with this key."""
        self._begun.pop(key, None)

    def under_way(self, key: str) -> bool:
        """Whether a call with this key has begun and its answer has not been read."""
        return bool(self._begun.get(key))

    def answer(self, key: str, now_s: float, *, keep: bool = False) -> Answer[Any] | None:
        """The newest answer, once; None if there is none. From then on, answers to earlier calls are ignored. If
        `keep`, a returned value stays available for further reads, for FORGET_S at most."""
        begun = self._begun.get(key, [])
        for number, each in reversed([*enumerate(begun)]):
            overdue = not each.pending.over and now_s - each.asked_s >= each.limit_s
            if each.pending.over or overdue:
                del begun[: number if keep and each.pending.over and each.pending.error is None else number + 1]
                if not begun:
                    del self._begun[key]
                if overdue:
                    self._places[each.place].give_up(each, now_s)
                    error = TimedOutError(f"no answer from {' '.join(each.place).strip()} for {each.limit_s:g} s")
                    return Answer(each.asked_ms, each.asked_s, error=error)
                return Answer(each.asked_ms, each.asked_s, each.pending.value, each.pending.error)
        return None

    def may_begin(self, key: str, place: Place, now_s: float, abreast: int = 1) -> bool:
        """Whether a call with this key may begin now: fewer than `abreast` calls of the key are under way, its place
        has a free slot, and it is its turn. Otherwise it queues."""
        if len(self._begun.get(key, ())) >= abreast:
            return False
        slots = self._places.setdefault(place, _Slots())
        taken = [each for each in slots.taken if not each.pending.over]
        if len(taken) < len(slots.taken):  # it answers, perhaps late
            slots.taken, slots.lost, slots.answered_s = taken, 0, now_s
        held_s = min(LONGEST_HELD_S, HELD_S * 2.0 ** min(slots.lost, 10))
        expired = [each for each in slots.taken if now_s - each.asked_s >= each.limit_s + held_s]
        held = len(slots.taken) - len(expired)
        # nothing ended since then: one call at a time tries, or threads would run out
        silent = slots.lost and any(each.asked_s >= slots.answered_s for each in expired)
        free = (1 if silent else AT_ONCE) - held
        slots.queue = {each: at_s for each, at_s in slots.queue.items() if now_s - at_s <= QUEUES_S}
        before = [*slots.queue].index(key) if key in slots.queue else len(slots.queue)
        if before < free:
            slots.queue.pop(key, None)
            return True
        slots.queue[key] = now_s
        return False

    def begin(
        self,
        key: str,
        place: Place,
        call: Callable[[], T],
        now_ms: int,
        now_s: float,
        limit_s: float = LIMIT_S,
        *,
        keep: bool = False,
    ) -> Answer[T] | None:
        """Begin a call for which `may_begin` is true. Returns its answer if it is already available, as `answer`
        does."""
        pending = self._carrier.carry(key, place, call)
        begun = _Begun(place, now_ms, now_s, limit_s, pending)
        self._places.setdefault(place, _Slots()).taken.append(begun)
        self._begun.setdefault(key, []).append(begun)
        return self.answer(key, now_s, keep=keep)


class Threads:
    """Makes calls in at most `most` threads, which do not prevent the process from ending."""

    def __init__(self, most: int = MOST_THREADS) -> None:
        self._left = most
        self._tasks: SimpleQueue[tuple[Place, Callable[[], object], Pending, threading.Event]] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._slow: set[Place] = set()
        self._patience_s = PATIENCE_S

    def carry(self, _key: str, place: Place, call: Callable[[], object]) -> Pending:
        """See Carrier.carry. Waits for a moment if answers usually arrive at once."""
        pending, ended = Pending(), threading.Event()
        if not self._idle.acquire(blocking=False) and self._left > 0:
            self._left -= 1
            threading.Thread(target=self._work, name="call", daemon=True).start()
        self._tasks.put((place, call, pending, ended))
        if place not in self._slow and self._patience_s > 0:
            began_s = time.monotonic()
            if not ended.wait(min(PROMPT_S, self._patience_s)):
                self._slow.add(place)
            self._patience_s -= time.monotonic() - began_s
        return pending

    def next_tick(self) -> None:
        """See Carrier.next_tick."""
        self._patience_s = PATIENCE_S

    def _work(self) -> None:
        while True:
            place, call, pending, ended = self._tasks.get()
            began_s = time.monotonic()
            try:
                pending.run(call)
            except BaseException as error:  # a library in another language may raise something that is not an Exception
                pending.error, pending.over = UnavailableError(f"the call failed: {error!r}"), True
            if time.monotonic() - began_s < PROMPT_S:
                self._slow.discard(place)
            ended.set()
            self._idle.release()
