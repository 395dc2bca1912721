"""Money as it was spent: integers of nano-USD, append-only, exact. Pure.

Must not know: offers beyond their id and price path, policies, stores.
"""

from orchestrator.ledger.accrual import accrue, amend, charge, correction, restate, twice_booked
from orchestrator.ledger.counterfactual import Counterfactual, counterfactual
from orchestrator.ledger.duty import Duty, duty
from orchestrator.ledger.totals import total_nano_usd, totals

__all__ = [
    "Counterfactual",
    "Duty",
    "accrue",
    "amend",
    "charge",
    "correction",
    "counterfactual",
    "duty",
    "restate",
    "total_nano_usd",
    "totals",
    "twice_booked",
]
