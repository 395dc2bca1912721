"""A job that says what makes no sense: its run is no progress, then a failure of its own; nobody else notices."""

from __future__ import annotations

import pytest

from orchestrator.engine.machines.observe import IDLE_S
from tests.sim.harness import SimulatedInstallation, check_truth


@pytest.mark.parametrize(
    "said",
    [
        {"step": 10**30},
        {"state": "winning"},
        {"error": ["no text"], "state": "failed"},
        {"step": 41},
    ],
    ids=str,
)
def test_garbage_counts_against_the_job_that_says_it_and_harms_no_other(
    home: SimulatedInstallation, said: dict[str, object]
) -> None:
    liar, innocent = home.submit("liar", steps=40, retries=0), home.submit("innocent", steps=40)
    home.until_step(liar, 3)
    home.site.garble(liar.id, **said)
    home.until_state(innocent, "finished")
    home.until_state(liar, "failed")
    home.settle()
    assert home.events(liar, "run.malformed")
    assert not home.events(liar, "job.quarantined")
    (run,) = home.runs(liar)
    assert 3 <= run.last_step <= 40
    assert "reports were not valid" in str(home.read(lambda tx: tx.job_facts(liar.id)).error)
    check_truth(home)


def test_an_impossible_speed_is_no_measurement_and_stops_nobodys_plans(home: SimulatedInstallation) -> None:
    liar = home.submit("liar", steps=40)
    home.until_step(liar, 3)
    home.site.garble(liar.id, step_wall_s=5e-324)
    home.run_for(20)
    innocent = home.submit("innocent", steps=20)
    home.until_state(innocent, "finished")
    home.settle()
    assert home.job(liar).state == "finished"
    assert not home.read(lambda tx: tx.perf([liar.id]))
    check_truth(home)


@pytest.mark.parametrize("state", ["starting", "prepared", "restored", "quiesced"])
def test_a_run_that_has_the_job_and_never_says_that_it_trains_is_not_paid_for_ever(
    home: SimulatedInstallation, state: str
) -> None:
    job = home.submit(steps=60)
    run = home.until_step(job, 13)
    home.site.garble(job.id, state=state)
    home.until(lambda: home.current(job) is None, limit_s=IDLE_S + 30)
    home.site.garble(job.id)
    home.settle()
    assert home.runs(job)[0].id == run.id
    assert home.runs(job)[0].end == "lost"
    assert home.job(job).state == "finished"
    check_truth(home)


def test_a_run_whose_reports_become_valid_in_time_continues(home: SimulatedInstallation) -> None:
    job = home.submit(steps=90)
    home.until_step(job, 3)
    home.site.garble(job.id, step=2)  # backwards
    home.until(lambda: bool(home.events(job, "run.malformed")))
    run = home.current(job)
    assert run is not None
    home.run_for(20)
    again = home.current(job)
    assert again is not None
    assert again.last_step == run.last_step
    home.site.garble(job.id)
    home.until_state(job, "finished")
    assert len(home.runs(job)) == 1
    home.settle()
    check_truth(home)


def test_a_job_whose_reports_are_invalid_from_the_start_uses_up_its_retries_and_then_fails(
    home: SimulatedInstallation,
) -> None:
    liar, innocent = home.submit("liar", steps=40, retries=1), home.submit("innocent", steps=40)
    home.site.garble(liar.id, start_step=-1)
    home.until_state(innocent, "finished")
    home.until_state(liar, "failed")
    home.settle()
    assert len(home.runs(liar)) == 2
    check_truth(home)
