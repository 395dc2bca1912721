"""Tx: everything that can be asked of, or written to, the store inside one transaction."""

from __future__ import annotations

from orchestrator.store.claims import ClaimRows
from orchestrator.store.commands import CommandRows
from orchestrator.store.comparisons import ComparisonRows
from orchestrator.store.events import EventRows
from orchestrator.store.jobs import JobRows
from orchestrator.store.ledger import LedgerRows
from orchestrator.store.market import MarketRows
from orchestrator.store.mending import MendingRows
from orchestrator.store.plans import PlanRows
from orchestrator.store.profiles import ProfileRows
from orchestrator.store.quarantine import QuarantineRows
from orchestrator.store.runs import RunRows


class Tx(
    JobRows,
    MendingRows,
    RunRows,
    MarketRows,
    PlanRows,
    ProfileRows,
    EventRows,
    LedgerRows,
    ComparisonRows,
    CommandRows,
    QuarantineRows,
    ClaimRows,
):
    """One transaction, a family of tables per base class. Only valid inside its `with` block."""
