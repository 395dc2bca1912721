from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.sim.conftest import databases, home, memory
from tests.sim.conftest import install as usual_install
from tests.sim.harness import FINE_STRIDE_S, SimulatedInstallation

__all__ = ["databases", "home", "memory", "usual_install"]


@pytest.fixture
def install(usual_install: Callable[..., SimulatedInstallation]) -> Callable[..., SimulatedInstallation]:
    """Control planes that die at certain passes must reach them in short histories."""
    return partial(usual_install, stride_s=FINE_STRIDE_S)
