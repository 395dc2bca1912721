from __future__ import annotations

from tests.sim.conftest import databases, home, install, memory

__all__ = ["databases", "home", "install", "memory"]
