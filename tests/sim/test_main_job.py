"""The main job in virtual time."""

from __future__ import annotations

from tests.sim.harness import SimulatedInstallation, check_truth


def test_a_job_runs_to_its_end_and_the_books_agree_with_the_cloud(home: SimulatedInstallation) -> None:
    job = home.submit()
    home.settle()
    assert home.job(job).state == "finished"
    assert len(home.runs(job)) == 1
    check_truth(home)
    assert home.books()[0] > 0
