from __future__ import annotations

from tests.sim.conftest import home, install, slates

__all__ = ["home", "install", "slates"]
