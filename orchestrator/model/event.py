"""Event and Entry: the audit trail and the ledger, both append-only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from orchestrator.model.run import RunEnd, Step
from providers.billing.charges import ChargeKind

EntryKind = Literal["compute", ChargeKind, "correction"]

EVENT_KINDS: frozenset[str] = frozenset(
    {
        *(f"job.{name}" for name in ("submitted", "waits", "missing_secrets", "budget", "quarantined")),
        *(f"job.{name}" for name in ("at_risk", "on_time")),
        *(f"job.{name}" for name in ("released", "pausing", "paused", "gave_way", "resumed")),
        *(f"job.{name}" for name in ("cancelling", "cancelled", "finished", "failed")),
        *(f"run.{end}" for end in get_args(RunEnd)),
        *(f"run.{name}" for name in ("suspected", "malformed", "mended", "stalled", "loss_not_finite")),
        *(f"migration.{step.value}" for step in Step),
        *("migration.asked", "migration.blocked"),
        *("standby.decided", "standby.waits", "standby.promoted"),
        *("placement.wasted", "move.wasted", "standby.wasted"),
        *(f"instance.{name}" for name in ("notice", "adopted", "other_offer", "returned", "surplus", "unknown")),
        *("plan.decided", "site.unavailable", "egress.estimated", "command.refused", "engine.fault"),
        *("group.budget", "price.accepted", "ledger.corrected", "store.pruned"),
    }
)
"""All kinds of events."""


@dataclass(frozen=True, slots=True)
class Event:
    """Who did what, when (market ms) and why. `data` holds the values behind `message`."""

    id: str
    at_ms: int
    kind: str  # of EVENT_KINDS
    message: str
    actor: str  # "user:NAME", "control-plane", "provider:local"
    job_id: str | None = None
    run_id: str | None = None
    migration_id: str | None = None
    plan_id: str | None = None
    data: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)
    project: str = "default"
    owner: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entry:
    """A signed amount (nano-USD) for one run and one period (market ms). Never edited: a correction is a new row with
    `reverses`."""

    id: str
    run_id: str
    job_id: str
    period_start_ms: int
    period_end_ms: int
    kind: EntryKind
    amount_nano_usd: int
    basis: Literal["estimated", "billed"]
    offer_id: str
    at_ms: int
    reverses: str | None = None
    project: str = "default"
    owner: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
