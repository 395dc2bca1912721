"""Collections of jobs: policies that share a limited or priced supply among many jobs at once, with certified answers.

A policy (policies/) makes a Program of a Collection. `solve` finds the best shares of time and proves how good they
are.
"""

from orchestrator.policy.groups.collection import Budgets, Collection, Quota, Supply, Together, collection
from orchestrator.policy.groups.engine import solve, verify
from orchestrator.policy.groups.program import Allocation, Certificate, Program

__all__ = [
    "Allocation",
    "Budgets",
    "Certificate",
    "Collection",
    "Program",
    "Quota",
    "Supply",
    "Together",
    "collection",
    "solve",
    "verify",
]
