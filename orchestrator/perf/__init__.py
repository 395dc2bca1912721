"""Throughput: how many steps per market second a job makes on a kind of hardware. Pure.

Must not know: prices, availability, policies, stores.
"""

from orchestrator.perf.belief import Belief, Floats, student_quantile
from orchestrator.perf.book import Observation, PerfBook
from orchestrator.perf.kinds import Kind, kind_name, kind_of
from orchestrator.perf.ratios import Cell, RatioModel, Row, Spreads, fit

__all__ = [
    "Belief",
    "Cell",
    "Floats",
    "Kind",
    "Observation",
    "PerfBook",
    "RatioModel",
    "Row",
    "Spreads",
    "fit",
    "kind_name",
    "kind_of",
    "student_quantile",
]
