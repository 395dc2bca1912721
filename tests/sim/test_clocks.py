"""The control plane's clock is wrong, and put right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from orchestrator.model import JobSpec
from providers.money import usd
from tests.sim.harness import BRISK, CHEAP, SimulatedInstallation, check_truth, train_spec

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


def test_prices_collected_by_a_clock_that_was_an_hour_fast_are_known_when_it_is_put_right(
    home: SimulatedInstallation,
) -> None:
    """The cloud dates its prices itself, before they were collected."""
    home.clock.start_ms += HOUR_MS
    home.tick()
    home.clock.start_ms -= HOUR_MS
    home.until_state(home.submit(steps=5), "finished")


def test_prices_that_change_after_a_clock_that_was_an_hour_fast_is_put_right_are_booked(
    home: SimulatedInstallation,
) -> None:
    home.tick()
    home.clock.start_ms += HOUR_MS
    home.plane._ctx.pacing.pop("collect:fake")
    home.tick()  # the prices of the next hour seem to be known
    home.clock.start_ms -= HOUR_MS
    job = home.submit(steps=20)
    home.until_step(job, 5)
    assert all(each.period_end_ms <= home.clock.now_ms() for each in home.read(lambda tx: tx.entries()))
    for dollars in ("1.50", "1.20"):
        home.cloud.set_price(CHEAP.id, usd(dollars))
        home.run_for(4.0)
    home.settle()
    check_truth(home)


def test_a_price_that_changed_twice_while_the_clock_was_fast_does_not_return_when_it_is_put_right(
    home: SimulatedInstallation,
) -> None:
    home.until_step(home.submit(steps=40), 3)
    now_ms = home.clock.now_ms()
    home.cloud.set_price(CHEAP.id, usd("0.90"), at_ms=now_ms + 1000)
    home.cloud.set_price(CHEAP.id, usd("0.80"), at_ms=now_ms + 2000)
    home.clock.start_ms += HOUR_MS
    home.run_for(10.0)  # both are known
    home.clock.start_ms -= HOUR_MS
    home.settle()
    paid = home.read(lambda tx: tx.price_changes(CHEAP.id, now_ms, home.clock.now_ms()))
    assert [price for since_ms, price in paid if since_ms > now_ms + 2000] == [usd("0.80")]
    check_truth(home)


def test_a_notice_that_is_read_after_its_time_names_no_negative_span(
    install: Callable[..., SimulatedInstallation],
) -> None:
    home = install(behaviour=replace(BRISK, boot_s=20.0))
    job = home.submit(steps=20)
    home.until(lambda: any(run.instance_id is not None for run in home.runs(job)))
    (run,) = home.runs(job)
    home.cloud.preempt(home.machine(run).id, notice_s=5.0)
    home.clock.start_ms += HOUR_MS
    home.settle()
    (notice,) = home.events(job, "instance.notice")
    assert notice.message == f"{run.offer_id} is being preempted"
    assert notice.data["left_s"] == 0
