"""Doctor: checks whether everything that Tradewind needs is available. Each check is a function and has a remedy."""

from orchestrator.services.doctor.clouds import examine_clouds, policy
from orchestrator.services.doctor.examine import examine

__all__ = ["examine", "examine_clouds", "policy"]
