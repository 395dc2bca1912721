"""Two control planes on one store: one acts, the other stands by, and what was deposed writes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orchestrator.errors import NotLeaderError
from orchestrator.model import STEP_ORDER, Step
from orchestrator.store.leader import TAKEOVER_S
from providers.fake import Fault
from tests.sim.harness import RESERVE, Installation, check_truth

Install = Callable[..., Installation]


def everything(home: Installation) -> object:
    return home.read(
        lambda tx: (tx.jobs(), tx.runs(), tx.migrations(), tx.events(), tx.entries(), tx.polls(), tx.perf())
    )


def depose(home: Installation) -> None:
    """Another control plane on the same store takes over from one that has fallen asleep."""
    standby = home.open_store()
    assert standby.campaign("standby") is None
    home.clock.advance(TAKEOVER_S + 1)
    leadership = standby.campaign("standby")
    assert leadership is not None
    home.plane, home.deposed = home.control_plane(standby, leadership), home.plane  # type: ignore[attr-defined]
    home.store = standby


def test_a_second_control_plane_stands_by_while_the_first_one_acts(home: Installation) -> None:
    job = home.submit(steps=20)
    standby = home.open_store()
    for _ in range(20):
        home.tick()
        assert standby.campaign("standby") is None
    assert home.job(job).state == "running"


def test_a_deposed_leader_changes_nothing(home: Installation) -> None:
    job = home.submit(steps=40)
    home.until_step(job, 5)
    depose(home)
    home.ask("migrate", job, offer_id=RESERVE.id)
    before, bills = everything(home), len(home.cloud.bills())
    for _ in range(3):
        with pytest.raises(NotLeaderError):
            home.deposed.tick()  # type: ignore[attr-defined]
        home.clock.advance(1)
    assert everything(home) == before
    assert len(home.cloud.bills()) == bills
    home.settle()
    assert home.job(job).state == "finished"
    check_truth(home)


@pytest.mark.parametrize("step", [step for step in STEP_ORDER if step is not Step.DONE])
def test_whoever_takes_over_in_the_middle_of_a_move_completes_it(home: Installation, step: Step) -> None:
    job = home.submit(steps=40)
    home.until_step(job, 5)
    home.faults.inject("launch", Fault.NO_ANSWER)
    home.ask("migrate", job, offer_id=RESERVE.id)
    home.until(lambda: len(found := home.migrations(job)) > 1 and found[-1].step is step)
    depose(home)
    home.settle()
    assert home.job(job).state == "finished"
    assert RESERVE.id in [run.offer_id for run in home.runs(job) if run.training_from_ms is not None]
    check_truth(home)
