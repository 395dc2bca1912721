from __future__ import annotations

from tests.sim.conftest import home, install, memory, slates

__all__ = ["home", "install", "memory", "slates"]
