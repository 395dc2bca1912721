"""Repeats requests to a store that throttles or does not answer, for a bounded time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

from trainers.errors import StoreThrottled, StoreUnavailable

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long one request may take, and how often it is repeated, with random pauses that double each time
    (https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/, "full jitter"). It is repeated more than
    `tries` times if that takes less than `least_s`, because in some outages errors come at once.
    """

    connect_s: float = 5.0
    request_s: float = 30.0
    tries: int = 5
    first_pause_s: float = 0.2
    longest_pause_s: float = 5.0
    least_s: float = 0.0
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[], float] = random.random
    monotonic: Callable[[], float] = time.monotonic

    def repeat(self, request: Callable[[bool], _T]) -> _T:
        """The result of `request`. The argument of `request` says whether an earlier try may have taken effect.

        Raises the last error if all tries end in StoreThrottled or StoreUnavailable, and any other error at once.
        """
        give_up_s = self.monotonic() + self.least_s
        for number in count():
            try:
                return request(number > 0)
            except (StoreThrottled, StoreUnavailable):
                if number + 1 >= self.tries and self.monotonic() >= give_up_s:
                    raise
                self.sleep(self.chance() * min(self.first_pause_s * 2 ** min(number, 30), self.longest_pause_s))
        raise AssertionError
