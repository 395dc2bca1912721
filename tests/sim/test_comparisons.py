"""Comparisons are kept by the control plane when a job's books close, also when it is killed, and one job's fault stays
its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from orchestrator.engine.billing.comparisons import NO_STEP
from orchestrator.engine.compartment import Compartment
from orchestrator.ledger import Comparison
from orchestrator.model import Job
from orchestrator.reports.report import report
from tests import reconciled
from tests.sim.harness import CHEAP, EXPENSIVE, RESERVE, SimulatedInstallation, check_truth

Install = Callable[..., SimulatedInstallation]


def kept(home: SimulatedInstallation, job: Job) -> list[Comparison]:
    return home.read(lambda tx: tx.comparisons(job.id, all_versions=True))


def test_a_comparison_is_kept_when_the_last_machine_is_booked_and_not_before(home: SimulatedInstallation) -> None:
    job = home.submit(steps=20)
    home.until_state(job, "finished")
    assert kept(home, job) == []
    assert report(home.installation).jobs[0].provisional
    home.settle()
    assert [each.version for each in kept(home, job)] == [1, 1, 1]
    assert not report(home.installation).jobs[0].provisional
    check_truth(home)


def test_what_a_finished_job_saved_stays_when_another_runs_and_prices_move(home: SimulatedInstallation) -> None:
    first = home.submit("first", steps=60)
    home.settle()
    before = report(home.installation, "first")
    home.submit("second", steps=200)
    home.run_for(60)
    home.reprice(RESERVE.id, "0.10")
    home.settle()
    after = report(home.installation, "first")
    assert after.jobs[0].compared == before.jobs[0].compared
    assert after.totals == before.totals
    assert len(kept(home, first)) == 3
    reconciled.check(report(home.installation))


def test_a_job_that_ran_wholly_on_demand_saved_nothing_against_the_same_machine(install: Install) -> None:
    home = install(catalog=((RESERVE, 3 * 10**9),))
    job = home.submit(steps=40)
    home.settle()
    (cell, *others) = kept(home, job)
    assert cell.saved_nano_usd == 0
    assert cell.paid_nano_usd == cell.baseline_nano_usd > 0
    assert [each.saved_nano_usd for each in others] == [0, 0]
    assert report(home.installation).jobs[0].compared[0].verdict == "cost as much as same machine on demand"


def test_while_it_runs_wholly_on_demand_it_saves_nothing_either(install: Install) -> None:
    home = install(catalog=((RESERVE, 3 * 10**9),))
    job = home.submit(steps=2000)
    home.until(lambda: report(home.installation).paid_nano_usd > 0, limit_s=2000, stride_s=5)
    assert home.job(job).state == "running"
    (row,) = report(home.installation).jobs
    assert row.provisional
    assert row.against("same_machine").saved_nano_usd == 0


def test_a_loss_adds_to_what_was_paid_and_not_to_what_the_same_machine_would_have_cost(
    install: Install,
) -> None:
    spots = [(replace(EXPENSIVE, zone=f"beta-{number}"), 16 * 10**8) for number in (1, 2, 3)]
    calm, struck = (install(catalog=(*spots, (RESERVE, 3 * 10**9)), seed=seed) for seed in (1, 1))
    costs = []
    for home in (calm, struck):
        job = home.submit(steps=60, capacity=("spot",))
        if home is struck:
            for step in (14, 34):
                home.cloud.crash(home.machine(home.until_step(job, step)).id)
        home.settle(stride_s=2.0)  # what a loss costs depends on when it is noticed
        check_truth(home)
        costs.append(kept(home, job)[0])
    quiet, lossy = costs
    assert lossy.paid_nano_usd > quiet.paid_nano_usd
    assert quiet.baseline_nano_usd is not None
    assert lossy.baseline_nano_usd is not None
    assert abs(lossy.baseline_nano_usd - quiet.baseline_nano_usd) < quiet.baseline_nano_usd * 0.15


def test_jobs_that_never_trained_are_left_out_with_the_reason(home: SimulatedInstallation) -> None:
    job = home.submit(steps=20)
    home.ask("cancel", job)
    home.settle()
    assert {each.left_out for each in kept(home, job)} == {NO_STEP}
    view = report(home.installation)
    assert [each.jobs for each in view.totals] == [0, 0, 0]
    reconciled.check(view)


def test_a_machine_that_is_not_sold_on_demand_in_its_region_is_left_out_of_that_baseline(
    home: SimulatedInstallation,
) -> None:
    job = home.submit(steps=20)
    home.settle()
    assert {run.offer_id for run in home.runs(job)} == {CHEAP.id}
    same, at_submission, hindsight = kept(home, job)
    assert "v100.1" in same.left_out
    assert at_submission.offer_ids == (RESERVE.id,)
    assert hindsight.offer_ids == (CHEAP.id,)
    reconciled.check(report(home.installation))


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_death_around_the_comparison_keeps_it_once(home: SimulatedInstallation, moment: str) -> None:
    job = home.submit(steps=20)
    home.until_step(job, 5)
    home.injector.when = lambda edge: edge == f"{moment} compare"
    home.settle()
    assert home.injector.when is None, "it was never reached"
    assert [each.version for each in kept(home, job)] == [1, 1, 1]
    check_truth(home)


def test_a_job_that_cannot_be_compared_harms_no_other_and_is_compared_when_it_is_released(
    home: SimulatedInstallation,
) -> None:
    innocent, struck = home.submit("innocent", steps=20), home.submit("struck", steps=20)
    home.saboteur.arm(Compartment.COMPARE.value, struck.id, times=2)
    home.until(lambda: bool(home.events(struck, "job.quarantined")))
    home.until(lambda: len(kept(home, innocent)) == 3)
    assert home.job(struck).state == "finished"
    assert kept(home, struck) == []
    home.ask("resume", struck)
    home.until(lambda: len(kept(home, struck)) == 3)
    check_truth(home)


def test_down_compares_what_it_books_to_the_end(home: SimulatedInstallation) -> None:
    job = home.submit(steps=20)
    home.until_state(job, "finished")
    home.go_down()
    assert len(kept(home, job)) == 3
