"""Instance: a rented machine as its provider describes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum


class InstanceState(StrEnum):
    """Lifecycle of an instance. Billing runs from `billed_from_ms` until TERMINATED."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    TERMINATED = "terminated"


class EndReason(StrEnum):
    """Why an instance ended."""

    USER = "user"  # we terminated it
    PREEMPTED = "preempted"  # the provider reclaimed it, with or without notice
    FAILED = "failed"  # it failed or never started
    EXPIRED = "expired"  # its time to live ran out


@dataclass(frozen=True, slots=True)
class Instance:
    """What a provider reports about one instance.

    `billed_from_ms`..`billed_to_ms` is the billed interval in market time (no end while it is alive; both None if it
    never became billable). `notice_deadline_ms` is set once the provider announces that it will reclaim the machine.
    """

    id: str
    provider: str
    offer_id: str
    token: str
    state: InstanceState
    billed_from_ms: int | None
    billed_to_ms: int | None = None
    end_reason: EndReason | None = None
    notice_deadline_ms: int | None = None
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def alive(self) -> bool:
        """Not TERMINATED: it may still cost money or run a trainer."""
        return self.state is not InstanceState.TERMINATED


_LEAST = (InstanceState.TERMINATED, InstanceState.STOPPING, InstanceState.PENDING, InstanceState.RUNNING)


def together(machines: Sequence[Instance]) -> Instance:
    """Several machines of one launch as one instance that needs them all: in the state of the machine that is furthest
    from running, with the earliest notice and the earliest start of billing."""
    if len(machines) == 1:
        return machines[0]
    least = min(machines, key=lambda each: _LEAST.index(each.state))
    began = [each.billed_from_ms for each in machines if each.billed_from_ms is not None]
    notices = [each.notice_deadline_ms for each in machines if each.notice_deadline_ms is not None]
    return replace(least, billed_from_ms=min(began, default=None), notice_deadline_ms=min(notices, default=None))
