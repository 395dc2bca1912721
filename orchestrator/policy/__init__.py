"""Policy: decides where each job should run, as a pure function. Equal inputs give a byte-identical Plan."""

from orchestrator.policy.decide import decide, plan_id
from orchestrator.policy.demand import Demand, MoveLimits, Running, Underway
from orchestrator.policy.explanation.compare import Comparison, Prospect, cheapest, compare, prospects, ruled_out
from orchestrator.policy.explanation.expected import expected
from orchestrator.policy.explanation.explain import FOR_MONEY, MAY_PASS, NOT_MEASURED, OLD_PRICE, OTHER_GPU, OVER_LIMITS
from orchestrator.policy.trace import trace

__all__ = [
    "FOR_MONEY",
    "MAY_PASS",
    "NOT_MEASURED",
    "OLD_PRICE",
    "OTHER_GPU",
    "OVER_LIMITS",
    "Comparison",
    "Demand",
    "MoveLimits",
    "Prospect",
    "Running",
    "Underway",
    "cheapest",
    "compare",
    "decide",
    "expected",
    "plan_id",
    "prospects",
    "ruled_out",
    "trace",
]
