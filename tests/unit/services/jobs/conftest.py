"""Jobs whose user waits for them: the next act of a script comes with each pause of the clock."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from orchestrator.installation import Installation
from orchestrator.model import Event
from providers.clock import VirtualClock


@dataclass
class ScriptedClock(VirtualClock):
    """Runs the next act of its script at each pause."""

    script: list[object] = field(default_factory=list)

    def sleep(self, wall_s: float) -> None:
        super().sleep(wall_s)
        assert self.script, "nothing more will happen, and yet somebody waits"
        act = self.script.pop(0)
        assert callable(act)
        act()


@pytest.fixture
def clock() -> VirtualClock:
    return ScriptedClock()


def script(installation: Installation, *acts: object) -> None:
    assert isinstance(installation.clock, ScriptedClock)
    installation.clock.script.extend(acts)


def set_state(installation: Installation, job_id: str, state: str) -> None:
    with installation.store.write() as tx:
        tx.set_job_state(job_id, state)  # type: ignore[arg-type]


def book(installation: Installation, run_id: str) -> None:
    with installation.store.write() as tx:
        tx.update_run(run_id, state="ended", end="finished", billed_to_ms=installation.clock.now_ms())


def pause_with_reason(installation: Installation, job_id: str, why: str) -> None:
    with installation.store.write() as tx:
        tx.set_job_state(job_id, "paused")
        now = installation.clock.now_ms()
        tx.add_event(Event(id=f"ev_{why}", at_ms=now, kind="job.paused", message=why, actor="me", job_id=job_id))
