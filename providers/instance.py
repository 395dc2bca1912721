"""Instance: a machine that was really rented, as its provider describes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class InstanceState(StrEnum):
    """Life of an instance. Billing runs from `billed_from_ms` until TERMINATED."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    TERMINATED = "terminated"


class EndReason(StrEnum):
    """Who ended an instance."""

    USER = "user"  # we asked for it
    PREEMPTED = "preempted"  # the provider took it back, with or without notice
    FAILED = "failed"  # it broke or never came up
    EXPIRED = "expired"  # its time_to_live passed


@dataclass(frozen=True, slots=True)
class Instance:
    """What a provider says of one instance.

    `billed_from_ms`..`billed_to_ms` is the interval that the provider bills (market time; open while it lives; both
    None if it never became billable). `notice_deadline_ms` is set once the provider announced to take it back.
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
