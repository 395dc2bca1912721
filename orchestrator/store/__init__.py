"""The store: all durable state, in SQLite by default or in Postgres by URL.

Alembic is imported only to create or upgrade a store, SQLAlchemy's ORM never.
"""

from orchestrator.store.leadership.leader import TAKEOVER_S, LeaderInfo, Leadership
from orchestrator.store.market.availability import AvailabilityPoint
from orchestrator.store.market.changes import MarketChanges
from orchestrator.store.market.flags import NewFlag, StoredFlag
from orchestrator.store.market.polls import Named, Polled, PollRecord, PollState
from orchestrator.store.market.price_days import PriceDay
from orchestrator.store.market.price_series import PriceSeries
from orchestrator.store.market.prices import Interval
from orchestrator.store.queries.claims import Claim
from orchestrator.store.queries.commands import Command
from orchestrator.store.queries.costs import CostFilter, CostKey, CostSum, JobFilter, JobSort, SavingSum
from orchestrator.store.queries.former_roots import FormerRoot
from orchestrator.store.queries.groups import GroupOutline
from orchestrator.store.queries.jobs import JobFactFields, JobFacts
from orchestrator.store.queries.ledger import LedgerSum
from orchestrator.store.queries.plans import PerfPoint
from orchestrator.store.queries.project_limits import KeptLimits
from orchestrator.store.queries.quarantine import Quarantined
from orchestrator.store.queries.runs import MigrationFields, RunFields
from orchestrator.store.store import Store
from orchestrator.store.tx import Tx

__all__ = [
    "TAKEOVER_S",
    "AvailabilityPoint",
    "Claim",
    "Command",
    "CostFilter",
    "CostKey",
    "CostSum",
    "FormerRoot",
    "GroupOutline",
    "Interval",
    "JobFactFields",
    "JobFacts",
    "JobFilter",
    "JobSort",
    "KeptLimits",
    "LeaderInfo",
    "Leadership",
    "LedgerSum",
    "MarketChanges",
    "MigrationFields",
    "Named",
    "NewFlag",
    "PerfPoint",
    "PollRecord",
    "PollState",
    "Polled",
    "PriceDay",
    "PriceSeries",
    "Quarantined",
    "RunFields",
    "SavingSum",
    "Store",
    "StoredFlag",
    "Tx",
]
