"""What jobs do and cost at present: figures, progress, losses, machines, the control plane."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.engine.billing.machine_cost import machine_cost_nano_usd
from orchestrator.installation import Installation
from orchestrator.services.control_plane import presence
from orchestrator.services.jobs import current
from providers.clock import VirtualClock
from tests.unit.services.recorded_history import SPOT, Past


def test_the_queue_holds_what_has_not_ended_and_sums_what_it_cost(installation: Installation, past: Past) -> None:
    living = current.jobs(installation)
    assert {job.name for job in living.jobs} == {"conv", "lstm"}
    assert living.paid_nano_usd == sum(job.paid_nano_usd for job in living.jobs)
    assert {job.name for job in current.jobs(installation, ended=True).jobs} == {"gpt", "conv", "lstm"}
    assert [job.name for job in current.jobs(installation, project="vision").jobs] == ["conv"]


def test_a_job_shows_its_progress_its_price_and_its_moves(installation: Installation, past: Past) -> None:
    gpt, conv = current.job(installation, "gpt"), current.job(installation, past.conv)
    assert (gpt.step, gpt.total_steps, gpt.runs, gpt.migrations, gpt.steps_repeated) == (1000, 1000, 3, 2, 10)
    assert gpt.offer_id is None
    assert gpt.nano_usd_per_hour is None
    assert (conv.offer_id, conv.zone) == (SPOT, "fake/alpha-1")
    assert conv.nano_usd_per_hour == 1_020_000_000
    assert conv.simulated


def test_the_loss_of_a_job_is_that_of_the_step_shown(installation: Installation, past: Past) -> None:
    def shown(number: int, first_step: int, last_step: int, loss: float | None) -> tuple[int, float | None]:
        with installation.store.write() as tx:
            run = replace(tx.run(past.runs[3]), id=f"run_later_{number}", generation=number, start_step=first_step)
            tx.add_run(replace(run, last_step=last_step, last_loss=loss))
        view = current.job(installation, past.conv)
        return view.step, view.loss

    assert shown(2, 40, 45, 0.3) == (45, 0.3)  # it repeats steps
    assert shown(3, 70, 70, None) == (70, None)  # restored from a step that no run reported
    assert shown(4, 70, 80, 0.2) == (80, 0.2)
    assert shown(5, 80, 80, None) == (80, 0.2)


def test_the_status_tells_what_running_machines_cost_before_it_is_booked(
    installation: Installation, past: Past
) -> None:
    assert isinstance(installation.clock, VirtualClock)
    booked = current.status(installation, "conv")
    installation.clock.advance(3600.0)
    later = current.status(installation, "conv")
    assert later.job.paid_nano_usd == booked.job.paid_nano_usd
    assert later.unbooked_nano_usd >= booked.unbooked_nano_usd + 1_020_000_000
    with installation.store.read() as tx:
        (run,) = tx.runs(job_id=past.conv, unsettled=True)
        cost = machine_cost_nano_usd(tx, run, installation.clock.now_ms())
    assert later.job.paid_nano_usd + later.unbooked_nano_usd == cost
    assert current.status(installation, "gpt").unbooked_nano_usd == 0


def test_the_status_holds_runs_and_the_last_events_in_order(installation: Installation, past: Past) -> None:
    status = current.status(installation, "gpt", events=2)
    assert [run.id for run in status.runs] == list(past.runs[:3])
    assert [event.kind for event in status.events] == ["migration.cutover", "migration.done"]
    assert status.migration is None
    assert not status.control_plane.running


def test_a_leader_is_a_control_plane(installation: Installation) -> None:
    leadership = installation.store.campaign("here")
    assert leadership is not None
    assert presence.control_plane(installation).running
    installation.store.resign(leadership)
    assert not presence.control_plane(installation).running
