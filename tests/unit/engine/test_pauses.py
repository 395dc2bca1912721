"""How often the control plane looks: most often while a job moves to a machine that is ready."""

from __future__ import annotations

import pytest

from orchestrator.daemon import BUSY_S, IDLE_S, WATCH_S, pause_s
from orchestrator.engine.context import Work
from orchestrator.model import Migration, Step


def moving(step: Step, reason: str = "first placement") -> Work:
    offer = "local/sim-a/sim-a1/SIM-L/on_demand"
    return Work(
        migrations=(Migration("mig_A", "job_A", None, "run_A", offer, 1, reason, step, 1, "token", 1, 1),),
    )


@pytest.mark.parametrize("step", [Step.PROVISION, Step.READY, Step.RELEASE])
def test_a_machine_that_starts_or_ends_is_looked_at_like_one_that_is_up(step: Step) -> None:
    assert pause_s(moving(step)) == WATCH_S


@pytest.mark.parametrize("step", [Step.CHECKPOINT, Step.TRANSFER, Step.RESTORE, Step.VERIFY, Step.CUTOVER])
def test_a_move_to_a_machine_that_is_ready_waits_for_no_pause_of_the_control_plane(step: Step) -> None:
    assert pause_s(moving(step)) == BUSY_S


def test_a_standby_that_waits_is_watched() -> None:
    assert pause_s(moving(Step.CHECKPOINT, "standby")) == WATCH_S


def test_with_nothing_to_do_it_looks_seldom() -> None:
    assert pause_s(Work()) == IDLE_S
