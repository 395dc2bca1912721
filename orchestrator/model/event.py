"""Event and Entry: the audit trail and the ledger, both append-only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from providers.billing.charges import ChargeKind

EntryKind = Literal["compute", ChargeKind, "correction"]


@dataclass(frozen=True, slots=True)
class Event:
    """Who did what, when (market ms) and why. `data` holds the values behind `message`."""

    id: str
    at_ms: int
    kind: str  # dotted: job.submitted, run.training, migration.step, plan.decided, instance.notice, ...
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
    """A signed amount (nano-USD) of one run over one period (market ms). Never edited: a correction is a new row with
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
