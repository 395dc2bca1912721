"""A run's row that cannot be read, or cannot be true, ends its job's run by the same rule as any other fault: after a
checkpoint, within the stated time, and booked as it was billed. Nobody else feels it."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from orchestrator.services.doctor import state as doctor
from orchestrator.services.jobs import current as job_views
from tests.sim.harness import SimulatedInstallation, check_truth

DAMAGE: list[tuple[str, object]] = [
    ("billed_to_ms", 0),
    ("billed_to_ms", "text"),
    ("state", "ended"),
    ("end", "sideways"),
    ("job_id", "job_nobody"),
    ("generation", 2**62),
    ("offer_id", "nowhere/alpha/alpha-1/v100.1/spot"),
    ("instance_id", b"\xff"),
    ("billed_from_ms", "text"),
    ("training_from_ms", b""),
    ("last_step", "many"),
]


def damage(home: SimulatedInstallation, run_id: str, column: str, value: object) -> None:
    """Past the store, which would refuse some of it."""
    with closing(sqlite3.connect(home.database.url.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute(f'UPDATE run SET "{column}" = ? WHERE id = ?', (value, run_id))


@pytest.mark.parametrize(("column", "value"), DAMAGE)
def test_a_living_run_whose_row_cannot_be_is_paused_at_a_checkpoint_and_booked(
    home: SimulatedInstallation, column: str, value: object
) -> None:
    innocent, struck = home.submit("innocent", steps=30), home.submit("struck", steps=60)
    run = home.until_step(struck, 7)
    damage(home, run.id, column, value)
    home.until(lambda: home.read(lambda tx: tx.outline(struck.id)).state == "paused", limit_s=60.0)
    step = home.site.book()[1].step
    (reported,) = home.events(struck, "run.mended")
    assert f"{column}: " in reported.message
    assert doctor.quarantine(home.installation).state == "fail"
    home.settle()
    home.ask("resume", struck)
    home.until_state(struck, "finished")
    assert home.runs(struck)[1].start_step == step
    home.settle()
    check_truth(home)
    assert home.job(innocent).state == "finished"
    assert not home.events(innocent, "job.quarantined")


def test_a_damaged_row_whose_mending_breaks_ends_its_machine_and_is_booked_once_it_is_mended(
    home: SimulatedInstallation,
) -> None:
    struck = home.submit("struck", steps=200)
    run = home.until_step(struck, 7)
    home.saboteur.arm("mend", struck.id, times=1000)
    damage(home, run.id, "last_step", "many")
    home.until(lambda: home.read(lambda tx: tx.outline(struck.id)).state == "paused")
    home.until(lambda: not any(machine.alive for machine in home.cloud.instances()))
    home.saboteur.times = 0
    home.until(lambda: bool(home.events(struck, "run.mended")))
    home.settle()
    booked, billed = home.books()
    assert booked == billed


def test_down_ends_what_it_can_despite_an_unreadable_row_and_the_next_control_plane_books_it(
    home: SimulatedInstallation,
) -> None:
    jobs = [home.submit(name, steps=200) for name in ("one", "two")]
    runs = [home.until_step(job, 7) for job in jobs]
    damage(home, runs[0].id, "state", "sideways")
    home.go_down()
    home.clock.advance(5)
    assert not any(machine.alive for machine in home.cloud.instances())
    home.start()
    home.until(lambda: bool(home.events(jobs[0], "run.mended")))
    home.settle()
    assert [home.job(job).state for job in jobs] == ["paused", "paused"]
    booked, billed = home.books()
    assert booked == billed


def test_a_machine_at_a_disabled_provider_is_reported_for_its_job_and_affects_no_other(
    home: SimulatedInstallation,
) -> None:
    innocent, struck = home.submit("innocent", steps=30), home.submit("struck", steps=200)
    run = home.until_step(struck, 7)
    damage(home, run.id, "offer_id", where := "elsewhere/alpha/alpha-1/v100.1/spot")
    with closing(sqlite3.connect(home.database.url.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute("UPDATE migration SET offer_id = ? WHERE job_id = ?", (where, struck.id))
    home.until_state(struck, "paused")
    assert home.runs(struck)[0].end == "paused"
    home.until_state(innocent, "finished")
    home.until(lambda: not any(machine.alive for machine in home.cloud.instances()))  # found by its token
    check = doctor.quarantine(home.installation)
    assert check.state == "fail"
    assert f"is on {where}" in check.found
    assert "providers.enabled" in job_views.status(home.installation, "struck").job.note
