"""The virtual world: the same engine and services on simulated machines. Holds no scheduling logic."""

from orchestrator.sim.site import Pace, SimCatalog, SimSite

__all__ = ["Pace", "SimCatalog", "SimSite"]
