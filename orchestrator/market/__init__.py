"""The market: everything known at an instant, and nothing later. Pure: no I/O, no clock, no random source.

Must not know: jobs, throughput, policies, stores.
"""

from orchestrator.market.availability import AvailabilityKind, AvailabilityPoint
from orchestrator.market.snapshot import Market
from orchestrator.market.transfer import Place, egress_nano_usd

__all__ = ["AvailabilityKind", "AvailabilityPoint", "Market", "Place", "egress_nano_usd"]
