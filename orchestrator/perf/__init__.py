"""Throughput: how many steps per market second a job makes on a kind of hardware. Pure.

Must not know: prices, availability, policies, stores.
"""

from orchestrator.perf.book import Observation, PerfBook

__all__ = ["Observation", "PerfBook"]
