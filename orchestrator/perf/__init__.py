"""Perf: a job's steps per market second on each kind of hardware. Pure."""

from orchestrator.perf.book import PerfBook
from orchestrator.perf.colocation import ColocationModel
from orchestrator.perf.fitted import FITTED, FITTED_NARROW
from orchestrator.perf.fitted_colocation import FITTED_COLOCATION
from orchestrator.perf.kinds import InstanceKind, kind_name, kind_of, narrow, on_host
from orchestrator.perf.latency import Latencies, LatencyPrior, learned
from orchestrator.perf.measured import Observation, Series, by_kind
from orchestrator.perf.memory_together import Fitted, MemoryTogether
from orchestrator.perf.pairings import PairCell, Pairing
from orchestrator.perf.posterior import Floats, Posterior, student_quantile
from orchestrator.perf.program import Program, program_of
from orchestrator.perf.ratios import Cell, RatioModel, Row, calibrated, fit
from orchestrator.perf.sharing import PairMisfit, PairObservation, Sharing
from orchestrator.perf.structure import Spreads
from orchestrator.perf.work import SORTS, Sort, Work

__all__ = [
    "FITTED",
    "FITTED_COLOCATION",
    "FITTED_NARROW",
    "SORTS",
    "Cell",
    "ColocationModel",
    "Fitted",
    "Floats",
    "InstanceKind",
    "Latencies",
    "LatencyPrior",
    "MemoryTogether",
    "Observation",
    "PairCell",
    "PairMisfit",
    "PairObservation",
    "Pairing",
    "PerfBook",
    "Posterior",
    "Program",
    "RatioModel",
    "Row",
    "Series",
    "Sharing",
    "Sort",
    "Spreads",
    "Work",
    "by_kind",
    "calibrated",
    "fit",
    "kind_name",
    "kind_of",
    "learned",
    "narrow",
    "on_host",
    "program_of",
    "student_quantile",
]
