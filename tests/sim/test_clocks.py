"""The control plane's clock is wrong, and put right."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.model import JobSpec
from tests.sim.harness import SimulatedInstallation, train_spec

HOUR_MS = 3_600_000


def test_a_job_does_not_wait_for_an_hour_because_the_clock_was_an_hour_fast(home: SimulatedInstallation) -> None:
    home.tick()  # prices are known
    home.clock.start_ms += HOUR_MS
    job = home.submit_job(JobSpec("secretive", replace(train_spec(5), secrets=("API_KEY",))))
    home.until(lambda: bool(home.events(job, "job.waits")))
    home.clock.start_ms -= HOUR_MS
    home.give_secrets(job)
    home.until_state(job, "finished")


def test_the_daily_decision_is_not_put_off_by_a_clock_that_was_a_year_fast(home: SimulatedInstallation) -> None:
    def decided_ms() -> int:
        return home.read(lambda tx: tx.task_done_ms("decide")) or 0

    job = home.submit_job(JobSpec("secretive", replace(train_spec(5), secrets=("API_KEY",))))
    home.until(lambda: bool(home.events(job, "job.waits")))
    home.clock.start_ms += 365 * 24 * HOUR_MS
    home.tick()
    assert decided_ms() > home.clock.now_ms() - HOUR_MS
    home.clock.start_ms -= 365 * 24 * HOUR_MS
    home.tick()
    assert decided_ms() <= home.clock.now_ms()
