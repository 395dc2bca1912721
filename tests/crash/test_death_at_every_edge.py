"""The control plane dies, and another begins with empty memory: nothing is lost, leaked or doubled.

Every test ends with the cloud's own books (check_truth). A failing sweep is replayed by its parameter: `-k "loss-57"`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orchestrator.model import STEP_ORDER, Step
from providers.fake import Behaviour
from tests.sim.harness import EXPENSIVE, RESERVE, FaultInjector, SimulatedInstallation, check_truth

Install = Callable[..., SimulatedInstallation]
QUICK = Behaviour(boot_s=1.0, listing_lag_s=3.0, stop_s=1.0)
EDGE_STRIDE_S = 2.0  # with longer ticks, a short job ends before its move
STEPS = 14
WORTH_A_MOVE = 240  # so many that moving them saves more than it costs
EDGES = 180  # of a short history
GATE_EVERY = 13


def planned_move(home: SimulatedInstallation) -> None:
    """A job that is moved once, killed or not."""
    job = home.submit(steps=STEPS)
    home.until_step(job, 4)
    home.ask("migrate", job, offer_id=RESERVE.id)
    home.settle(stride_s=EDGE_STRIDE_S)


def loss(home: SimulatedInstallation) -> None:
    """A job that loses its first machine without a word."""
    job = home.submit(steps=STEPS)
    run = home.until_step(job, 7)
    home.cloud.preempt(home.machine(run).id)
    home.settle(stride_s=EDGE_STRIDE_S)


def change_of_mind(home: SimulatedInstallation) -> None:
    """A job that is on its way to a cheaper offer when that becomes expensive."""
    job = home.submit(steps=WORTH_A_MOVE)
    home.until_step(job, 12)
    home.reprice(EXPENSIVE.id, "0.40")
    home.until(lambda: len(home.migrations(job)) == 2)
    home.reprice(EXPENSIVE.id, "2.00")
    home.settle(stride_s=EDGE_STRIDE_S)


HISTORIES = {"move": planned_move, "loss": loss}


def outcome(home: SimulatedInstallation) -> None:
    (job,) = home.read(lambda tx: tx.jobs())
    assert job.state == "finished"
    assert max(run.last_step for run in home.runs(job)) == STEPS
    check_truth(home)


@pytest.mark.parametrize("strike", range(1, EDGES, GATE_EVERY))
@pytest.mark.parametrize("history", HISTORIES)
def test_a_death_at_any_edge_loses_leaks_and_doubles_nothing(install: Install, history: str, strike: int) -> None:
    home = install(behaviour=QUICK)
    home.injector.count, home.injector.at = 0, strike
    HISTORIES[history](home)
    outcome(home)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("step", [step for step in STEP_ORDER if step is not Step.DONE])
@pytest.mark.parametrize("history", HISTORIES)
def test_a_death_around_each_step_of_a_migration_is_survived(
    install: Install, history: str, step: Step, moment: str
) -> None:
    home = install(behaviour=QUICK)
    struck = strike_at(home, step, moment)
    HISTORIES[history](home)
    assert struck.when is None, f"{step} was never reached"
    outcome(home)


@pytest.mark.parametrize("strike", range(30, 160, GATE_EVERY))
def test_a_death_on_the_way_to_giving_up_a_move_that_no_longer_pays_is_survived(install: Install, strike: int) -> None:
    home = install(behaviour=QUICK)
    home.injector.count, home.injector.at = 0, strike
    change_of_mind(home)
    (job,) = home.read(lambda tx: tx.jobs())
    assert [(run.end, run.last_step) for run in home.runs(job)] == [("finished", WORTH_A_MOVE), ("aborted", 0)]
    check_truth(home)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_death_during_the_abort_of_a_migration_is_survived(install: Install, moment: str) -> None:
    home = install(behaviour=QUICK)
    job = home.submit(steps=STEPS)
    home.until_step(job, 4)
    home.ask("migrate", job, offer_id=RESERVE.id)
    home.until(lambda: home.migrations(job)[-1].step is Step.CHECKPOINT)
    home.cloud.preempt(home.machine(home.runs(job)[-1]).id)
    strike_at(home, Step.ABORTED, moment)
    home.settle(stride_s=EDGE_STRIDE_S)
    assert home.migrations(job)[-1].step is Step.ABORTED
    outcome(home)


def strike_at(home: SimulatedInstallation, step: Step, moment: str) -> FaultInjector:
    """Strike when the second migration gets to `step`: just before that is committed, or just after."""
    position = STEP_ORDER.index(step) if step in STEP_ORDER else 0
    came = "abort" if step is Step.ABORTED else f"step {STEP_ORDER[position - 1]}>{step}" if position else "intent"

    def due(name: str) -> bool:
        moves = len(home.read(lambda tx: tx.migrations()))
        if step is Step.PROVISION:  # the command by which it came, or the plan
            return moves == 1 + (moment == "after") and name in (f"{moment} intent", f"{moment} command")
        return moves == 2 and name == f"{moment} {came}"

    home.injector.when = due
    return home.injector


def test_a_death_every_few_edges_only_delays_the_end(install: Install) -> None:
    home = install(behaviour=QUICK)
    job = home.submit(steps=STEPS)
    deaths = 0
    while home.job(job).state != "finished" and deaths < 40:
        home.injector.count, home.injector.at = 0, 14
        home.until(lambda: home.injector.at is None or home.job(job).state == "finished")
        deaths += home.injector.at is None
    home.injector.at = None
    home.settle(stride_s=EDGE_STRIDE_S)
    assert 3 < deaths < 40
    outcome(home)
