"""Doctor: is everything here that Tradewind needs? One check a function, each with its remedy."""

from orchestrator.services.doctor.clouds import examine_clouds
from orchestrator.services.doctor.examine import examine

__all__ = ["examine", "examine_clouds"]
