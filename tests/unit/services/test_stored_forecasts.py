"""What lists of jobs say of the future is the last decision's word, while that is fresh, and else a new decision's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.model import START_UNKNOWN, Expected, GpuRequest, JobForecast, JobSpec
from orchestrator.reports.job_list import job_table
from orchestrator.reports.job_page import job_page
from orchestrator.reports.overview import overview
from orchestrator.reports.periods import period_of
from orchestrator.services.jobs.current import jobs
from orchestrator.services.jobs.forecasts import FRESH_S, forecasts
from providers.base import Covered, Quota
from providers.fake import Behaviour, default_catalog
from providers.money import usd
from tests.rig import SimulatedInstallation, SqliteScratchDatabase, Timings, train_spec


@pytest.fixture
def home(tmp_path: Path) -> Iterator[SimulatedInstallation]:
    database = SqliteScratchDatabase(tmp_path)
    made = SimulatedInstallation(
        tmp_path,
        database,
        catalog=default_catalog(),
        behaviour=Behaviour(boot_s=2.0, listing_lag_s=3.0, stop_s=1.0, late_s=4.0),
        timings=Timings(step_s=1.0, prepare_s=1.0, restore_s=1.0, checkpoint_every_s=10.0),
    )
    for number in range(3):
        made.submit_job(JobSpec(f"job-{number}", train_spec(100_000, args={"seed": number})))
    for _ in range(40):
        made.tick(2.0)
    yield made
    database.close()


def test_a_decision_leaves_what_it_expects_and_lists_of_jobs_tell_it(home: SimulatedInstallation) -> None:
    offer, price = default_catalog()[0]
    home.cloud.set_price(offer.id, price + 1)
    for _ in range(20):
        home.tick(2.0)
    with home.store.read() as tx:
        known = tx.job_forecasts([job.id for job in tx.jobs()], 0)
        assert len(known) == 3
        assert forecasts(home.installation, tx, tx.jobs()) == known
    assert {view.id: view.forecast for view in jobs(home.installation).jobs} == known


def test_an_outdated_forecast_is_made_again(home: SimulatedInstallation) -> None:
    with home.store.read() as tx:
        before = tx.job_forecasts([job.id for job in tx.jobs()], 0)
    home.clock.advance(FRESH_S + 1)
    with home.store.read() as tx:
        renewed = forecasts(home.installation, tx, tx.jobs())
    assert renewed.keys() == before.keys()
    assert all(said != before[job_id] for job_id, said in renewed.items())


def test_a_job_whose_machine_starts_is_not_said_to_fit_nowhere_because_machines_are_in_use(
    home: SimulatedInstallation,
) -> None:
    """Its own machine is one of them."""
    job = home.submit_job(JobSpec("starting", train_spec(100_000), expected=Expected(GpuRequest("V100"), 4.5)))
    for _ in range(20):
        home.tick(0.5)
        if home.job(job).state == "starting" and home.runs(job)[0].instance_id is not None:
            break
    assert home.job(job).state == "starting"
    scopes = {each.region for each, _ in default_catalog()}
    with home.store.write() as tx:
        tx.set_quotas("fake", [Quota("P", each, 4, 4, Covered("machines")) for each in scopes], home.clock.now_ms())
        tx.put_forecasts({job.id: "no offer fits"}, home.clock.now_ms() - 10**9)
    with home.store.read() as tx:
        assert forecasts(home.installation, tx, [home.job(job)]) == {job.id: "its machine is starting"}


def test_a_forecast_by_a_clock_that_was_an_hour_fast_is_made_again(home: SimulatedInstallation) -> None:
    offer, price = default_catalog()[0]
    home.clock.start_ms += 3_600_000
    home.cloud.set_price(offer.id, price + 1)
    for _ in range(40):
        home.tick(2.0)
    home.clock.start_ms -= 3_600_000
    now_ms = home.clock.now_ms()
    with home.store.read() as tx:
        before = tx.job_forecasts([job.id for job in tx.jobs()], 0)
        again = forecasts(home.installation, tx, tx.jobs())
    assert all(isinstance(said, JobForecast) and said.at_ms > now_ms for said in before.values())
    assert all(isinstance(said, JobForecast) and said.at_ms == now_ms for said in again.values())


@pytest.mark.parametrize("later_s", [0.0, FRESH_S + 1])
def test_the_dashboard_shows_no_forecast_that_is_too_old_for_the_queue(
    home: SimulatedInstallation, later_s: float
) -> None:
    """Its lists leave such a forecast out, and the page of one job has a new one."""
    home.clock.advance(later_s)
    queue = {view.id: view.forecast for view in jobs(home.installation).jobs}
    pages = [job_page(home.installation, job_id).report.job for job_id in queue]
    assert {view.id: view.forecast for view in pages} == queue
    first = overview(home.installation, period_of(home.clock.now_ms()))
    wanted = queue if later_s == 0.0 else dict.fromkeys(queue)
    for views in (job_table(home.installation).jobs, first.running):
        assert {view.id: view.forecast for view in views} == wanted
        assert all("no recent decision" in view.no_forecast for view in views if view.forecast is None)
    assert first.expected.to_go_nano_usd == sum(known.cost_nano_usd for known in wanted.values() if known)


def test_what_is_paid_since_a_forecast_is_not_expected_once_more(home: SimulatedInstallation) -> None:
    """Else a job that costs just its budget seems to exceed it, until it is decided again."""
    job = home.submit_job(JobSpec("short", train_spec(5000), budget_nano_usd=usd(100)))
    for _ in range(100):
        home.tick(2.0)
    with home.store.read() as tx:
        known = tx.job_forecasts([job.id], 0)[job.id]
        assert tx.total_nano_usd(job.id) == 0  # nothing is booked yet
    assert isinstance(known, JobForecast)
    for _ in range(110):
        home.tick(2.0)
        expected = overview(home.installation, period_of(home.clock.now_ms())).expected
        assert 0 < expected.budgeted_expected_nano_usd < 1.01 * known.cost_nano_usd
    assert home.books()[0] > 0.05 * known.cost_nano_usd


def test_the_less_a_job_has_to_go_the_fresher_its_forecast_is(home: SimulatedInstallation) -> None:
    """Else `queue` would say the same time to go until a job of a few minutes is done."""
    short = home.submit_job(JobSpec("short", train_spec(1000)))
    for _ in range(40):
        home.tick(2.0)
    with home.store.write() as tx:
        tx.put_forecasts(dict.fromkeys([short.id], _forecast(home.clock.now_ms(), 600.0)), home.clock.now_ms())
    at_ms, ages = home.clock.now_ms(), []
    for _ in range(2):
        home.clock.advance(0.06 * 600.0)
        (view,) = [each for each in jobs(home.installation).jobs if each.id == short.id]
        assert view.forecast is not None
        ages.append(view.forecast.at_ms - at_ms)
    assert ages == [0, 72_000]


def _forecast(at_ms: int, duration_s: float) -> JobForecast:
    return JobForecast(at_ms, 3, 2, 4, duration_s, duration_s / 2, duration_s * 2, "measured")


def test_what_a_job_waits_for_holds_until_the_control_plane_decides_again(home: SimulatedInstallation) -> None:
    first = home.read(lambda tx: tx.jobs())[0]
    with home.store.write() as tx:
        tx.set_job_state(first.id, "queued")
        tx.put_forecasts({first.id: START_UNKNOWN}, home.clock.now_ms())
    home.clock.advance(FRESH_S + 1)
    (view,) = [each for each in jobs(home.installation).jobs if each.id == first.id]
    assert (view.forecast, view.no_forecast) == (None, START_UNKNOWN)


def test_a_paused_job_has_no_forecast_anywhere(home: SimulatedInstallation) -> None:
    """The last decision's forecast was for a job that goes on."""
    first = home.read(lambda tx: tx.jobs())[0]
    home.ask("pause", first)
    for _ in range(20):
        home.tick(2.0)
    assert home.job(first).state == "paused"
    assert isinstance(home.read(lambda tx: tx.job_forecasts([first.id], 0))[first.id], JobForecast)
    listed = {
        "queue": jobs(home.installation).jobs,
        "dashboard": job_table(home.installation).jobs,
        "page": (job_page(home.installation, first.id).report.job,),
    }
    for where, views in listed.items():
        (view,) = [each for each in views if each.id == first.id]
        assert (view.forecast, view.no_forecast) == (None, "it is paused"), where
