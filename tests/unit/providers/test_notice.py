"""How long it takes until a machine knows of a notice, in virtual time: it looks for one every second."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from orchestrator.nodes import agent
from providers.aws.metadata import SpotNotices
from providers.azure.metadata import ScheduledEvents
from providers.gcp.metadata import PreemptionNotices
from providers.notice import NoticeWatch

NOW = datetime(2031, 1, 1, 12, tzinfo=UTC)
LOOKS = 20


class _Over(Exception):
    """Enough looks."""


class Slow:
    """A metadata service in virtual time whose answers take `takes_s`, or fail after that."""

    def __init__(self, takes_s: float, *, fails: bool = False) -> None:
        self.takes_s, self.fails = takes_s, fails
        self.now_s = 5000.0
        self.asked_at: list[float] = []

    def get(self, _: str) -> tuple[None, datetime]:
        return self._answered((None, NOW))

    def preemptions(self) -> tuple[list[dict[str, Any]], datetime]:
        return self._answered(([], NOW))

    def wait(self, _path: str, _etag: str, _longest_s: int) -> tuple[str, str]:
        return self._answered(("FALSE", "1"))

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        if len(self.asked_at) == LOOKS:
            raise _Over

    def _answered(self, answer: Any) -> Any:
        self.asked_at.append(self.now_s)
        self.now_s += self.takes_s
        if self.fails:
            raise TimeoutError
        return answer


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("takes_s", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("watch", [SpotNotices, ScheduledEvents, PreemptionNotices])
def test_a_service_that_answers_slowly_or_not_is_asked_every_second_all_the_same(
    watch: Callable[..., NoticeWatch], takes_s: float, fails: bool
) -> None:
    service: Any = Slow(takes_s, fails=fails)
    with pytest.raises(_Over):
        watch(service, lambda: service.now_s).watch(service.sleep)
    # A notice is given just after the question that precedes an answer without it.
    pauses = [later - earlier for earlier, later in pairwise(service.asked_at)]
    assert max(pauses) <= 1.0 + 1e-9
    assert max(pauses) + takes_s + agent.LOOK_S <= 2.0 + 1e-9
