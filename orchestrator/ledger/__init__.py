"""Ledger: what was spent, in integers of nano-USD: append-only and exact. Pure."""

from orchestrator.ledger.accrual import accrue, amend, charge, correction, cost_between, restate, twice_booked, usage_of
from orchestrator.ledger.comparison import (
    BASELINES,
    Baseline,
    BaselineTotal,
    Comparison,
    Inputs,
    Prices,
    Rate,
    baseline_nano_usd,
    baseline_totals,
    elsewhere,
)
from orchestrator.ledger.stays import Part, Stay, carried_nano_usd, stays
from orchestrator.ledger.time_breakdown import TimeBreakdown, job_breakdown, time_breakdown
from orchestrator.ledger.totals import total_nano_usd, totals

__all__ = [
    "BASELINES",
    "Baseline",
    "BaselineTotal",
    "Comparison",
    "Inputs",
    "Part",
    "Prices",
    "Rate",
    "Stay",
    "TimeBreakdown",
    "accrue",
    "amend",
    "baseline_nano_usd",
    "baseline_totals",
    "carried_nano_usd",
    "charge",
    "correction",
    "cost_between",
    "elsewhere",
    "job_breakdown",
    "restate",
    "stays",
    "time_breakdown",
    "total_nano_usd",
    "totals",
    "twice_booked",
    "usage_of",
]
