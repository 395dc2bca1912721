"""The site (Ray) runs only while machines need it: it starts with the first one, and ends some time after the last."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from orchestrator.engine.inputs import latencies
from orchestrator.engine.runtime import Runtime
from orchestrator.model import Job, Resources, Step
from orchestrator.perf import kind_of
from providers.money import usd
from tests.rig import SimSite
from tests.sim.harness import CATALOG, SimulatedInstallation, check_truth

Install = Callable[..., SimulatedInstallation]
IDLE_S = 60.0


@pytest.fixture
def home(install: Install) -> SimulatedInstallation:
    """Whose site ends after a minute. Should a test see it asked to end while a machine is up, it fails."""
    return install(overrides={"site.stop_after_idle_s": IDLE_S})


def messages(home: SimulatedInstallation, job: Job, kind: str) -> list[str]:
    return [event.message for event in home.events(job, kind)]


def test_the_site_starts_with_the_first_job_and_ends_when_nothing_has_run_for_a_while(
    home: SimulatedInstallation,
) -> None:
    home.run_for(2 * IDLE_S)
    assert not home.site.runs, "it started without a job"
    home.submit()
    home.settle()
    home.run_for(IDLE_S / 2)
    assert home.site.runs, "it ended at once: the next job would wait for it"
    home.submit("soon")
    home.settle()
    assert home.site.starts == 1
    home.run_for(IDLE_S + 10)
    assert not home.site.runs
    home.submit("later")
    home.settle()
    assert home.site.starts == 2
    assert not home.site.released_from
    check_truth(home)


def test_a_job_that_only_waits_for_an_offer_does_not_keep_the_site(home: SimulatedInstallation) -> None:
    home.submit()
    home.settle()
    waiting = home.submit("waiting", resources=Resources(cpu=1000))
    home.run_for(IDLE_S + 10)
    assert home.job(waiting).state == "queued"
    assert not home.site.runs


@pytest.mark.parametrize("standby", ["none", "warm"])
def test_the_site_stays_while_a_machine_runs_however_long_and_through_moves_and_losses(
    home: SimulatedInstallation, standby: str
) -> None:
    job = home.submit(steps=int(6 * IDLE_S), standby=standby)
    first = home.until_step(job, int(2 * IDLE_S))
    home.cloud.crash(home.machine(first).id)
    home.until_step(job, int(4 * IDLE_S))
    home.settle(limit_s=1200.0)
    assert home.site.starts == 1
    assert not home.site.released_from
    check_truth(home)


def test_the_site_stays_while_a_pausing_job_saves_and_ends_once_it_is_paused(home: SimulatedInstallation) -> None:
    job = home.submit(steps=500)
    home.until_step(job, 5)
    home.ask("pause", job)
    home.until_state(job, "paused")
    home.settle()
    assert home.site.runs
    home.run_for(IDLE_S + 10)
    assert not home.site.runs
    home.ask("resume", job)
    home.until_step(job, 10)
    assert home.site.starts == 2
    assert not home.site.released_from


def test_nothing_is_rented_before_the_site_runs_and_the_offer_is_not_blamed_for_the_wait(
    home: SimulatedInstallation,
) -> None:
    home.site.starts_in(30.0)
    job = home.submit()
    home.until(lambda: bool(home.events(job, "site.starting")))
    home.run_for(20.0)
    assert not home.cloud.instances()
    assert [each.step for each in home.migrations(job)] == [Step.PROVISION]
    home.settle()
    assert len(home.events(job, "site.starting")) == 1
    (run,) = home.runs(job)
    kind = kind_of("V100", 1)
    ((_, took_s),) = latencies._starts([run], lambda _: kind, 1.0)
    assert took_s < 10.0, "the offer's machines seem to start late"
    check_truth(home)


def test_the_control_plane_works_on_while_the_site_starts(home: SimulatedInstallation) -> None:
    home.site.starts_in(1000.0)
    job = home.submit()
    home.until(lambda: bool(home.events(job, "site.starting")))
    home.ask("cancel", job)
    home.until_state(job, "cancelled")
    assert not home.cloud.instances()


def test_a_site_that_does_not_start_is_reported_once_and_the_job_runs_when_it_does(home: SimulatedInstallation) -> None:
    home.site.fail_to_start("Ray's head did not start in 3 attempts")
    job = home.submit()
    home.run_for(60.0)
    (message,) = messages(home, job, "site.unavailable")
    assert "did not start in 3 attempts" in message
    assert "repair it" in message
    assert not home.cloud.instances()
    home.site.fail_to_start(None)
    home.settle()
    assert home.job(job).state == "finished"
    check_truth(home)


def test_prices_that_change_while_the_site_starts_are_seen_before_a_machine_is_rented(
    home: SimulatedInstallation,
) -> None:
    (cheap, _), (other, _), _ = CATALOG
    home.site.starts_in(30.0)
    job = home.submit()
    home.until(lambda: bool(home.events(job, "site.starting")))
    assert [each.offer_id for each in home.migrations(job)] == [cheap.id]
    home.cloud.set_price(cheap.id, usd("2.50"))
    home.settle()
    assert {bill.offer_id for bill in home.cloud.bills()} == {other.id}


def test_a_new_control_plane_adopts_the_site_with_its_jobs(home: SimulatedInstallation) -> None:
    job = home.submit(steps=int(3 * IDLE_S))
    run = home.until_step(job, 5)
    home.start()
    home.settle()
    assert [each.id for each in home.runs(job)] == [run.id]
    assert home.site.starts == 1
    assert not home.site.released_from


def test_a_new_control_plane_ends_a_site_that_another_one_left_only_after_the_whole_time(
    home: SimulatedInstallation,
) -> None:
    home.submit()
    home.settle()
    home.run_for(IDLE_S - 10)
    home.start()
    home.run_for(IDLE_S - 10)
    assert home.site.runs
    home.run_for(20.0)
    assert not home.site.runs


def test_a_site_that_is_released_when_another_control_plane_has_just_used_it_does_no_harm(
    home: SimulatedInstallation,
) -> None:
    """A control plane is paused just before it asks the site to end; when it goes on, another one has taken over."""
    home.submit()
    home.settle()
    home.run_for(IDLE_S - 2)
    late = Asleep(home.site)
    home.plane._ctx.runtime = cast("Runtime", late)
    home.run_for(10.0)
    assert late.asked
    home.take_over()
    job = home.submit("after", steps=30)
    run = home.until_step(job, 5)
    home.site.release()  # the one that was asked for before
    home.settle()
    assert [each.id for each in home.runs(job)] == [run.id]
    check_truth(home)


class Asleep:
    """A site whose control plane sleeps when it is about to end it."""

    def __init__(self, site: SimSite) -> None:
        self._site = site
        self.asked = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._site, name)

    def release(self) -> None:
        self.asked = True
