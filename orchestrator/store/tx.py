"""Tx: all reads and writes of the store inside one transaction."""

from __future__ import annotations

from orchestrator.store.market.availability import MarketRows
from orchestrator.store.market.closed import ClosedRows
from orchestrator.store.market.quotas import QuotaRows
from orchestrator.store.queries.claims import ClaimRows
from orchestrator.store.queries.commands import CommandRows
from orchestrator.store.queries.comparisons import ComparisonRows
from orchestrator.store.queries.costs import CostRows, JobPageRows
from orchestrator.store.queries.events import EventRows
from orchestrator.store.queries.forecasts import ForecastRows
from orchestrator.store.queries.former_roots import FormerRootRows
from orchestrator.store.queries.groups import GroupRows
from orchestrator.store.queries.jobs import JobRows
from orchestrator.store.queries.plans import PlanRows
from orchestrator.store.queries.profiles import ProfileRows
from orchestrator.store.queries.project_limits import ProjectLimitRows
from orchestrator.store.queries.quarantine import QuarantineRows
from orchestrator.store.queries.repair import RepairRows
from orchestrator.store.queries.runs import RunRows


class Tx(
    JobRows,
    GroupRows,
    RepairRows,
    RunRows,
    MarketRows,
    QuotaRows,
    ClosedRows,
    PlanRows,
    ForecastRows,
    ProfileRows,
    EventRows,
    CostRows,
    JobPageRows,
    ComparisonRows,
    CommandRows,
    QuarantineRows,
    ClaimRows,
    ProjectLimitRows,
    FormerRootRows,
):
    """One transaction; each base class reads and writes one family of tables. Only valid inside its `with` block."""
