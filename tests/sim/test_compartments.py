"""An exception that nobody expected stays in the compartment of the job, run or provider that it was thrown for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

import pytest

from orchestrator.cli.render.screens import jobs as render
from orchestrator.cli.render.text import Screen
from orchestrator.engine.commands import refusal
from orchestrator.engine.compartment import Compartment
from orchestrator.engine.inputs import snapshot
from orchestrator.engine.jobs.quarantine import STOP_WITHIN_S
from orchestrator.engine.migration.move import waits
from orchestrator.engine.runtime import RunReport, Runtime
from orchestrator.errors import StoreError, TradewindError, UnreadableRowError
from orchestrator.model import Job, Step
from orchestrator.services.doctor import state as doctor
from orchestrator.services.jobs import current as job_views
from orchestrator.store import Store
from tests.sim.harness import FINE_STRIDE_S, RESERVE, SimulatedInstallation, check_truth

OF_A_JOB = [
    Compartment.JUDGE,
    Compartment.RECORD,
    Compartment.OBSERVE,
    Compartment.TELL_RISK,
    Compartment.STOPPING,
    Compartment.PROMOTE_STANDBY,
    Compartment.ENSURE_STANDBY,
    Compartment.DECIDE,
    Compartment.PLACE,
    Compartment.ADVANCE,
    Compartment.KILL,
    Compartment.TERMINATE,
    Compartment.SETTLE,
    Compartment.COMMAND,
]
WITH_AN_EFFECT = [  # whose step may be done when it breaks
    Compartment.PROMOTE_STANDBY,
    Compartment.PLACE,
    Compartment.ADVANCE,
    Compartment.TERMINATE,
    Compartment.SETTLE,
    Compartment.COMMAND,
]
OF_A_PROVIDER = [
    Compartment.CLAIM,
    Compartment.COLLECT,
    Compartment.DESCRIBE,
    Compartment.RENEW,
    Compartment.SWEEP,
]
AFTER_A_FAULT = [Compartment.CONFINE, Compartment.VOID, Compartment.END_RUNS]
OF_A_ROW = [Compartment.LOOK, Compartment.MEND]  # MEND: tests/sim/test_damaged_runs.py
OF_MONEY = [Compartment.ACCRUE]
OF_ORDERS = [Compartment.ANSWER]
OF_THE_ENDED = [Compartment.COMPARE]  # tests/sim/test_comparisons.py


def test_every_compartment_is_thrown_into_here() -> None:
    assert sorted(
        [*OF_A_JOB, *OF_A_PROVIDER, *AFTER_A_FAULT, *OF_A_ROW, *OF_MONEY, *OF_ORDERS, *OF_THE_ENDED]
    ) == sorted(Compartment)


def _until_struck(home: SimulatedInstallation, where: Compartment, job: Job) -> None:
    """The job trains with a standby, loses its machine, is asked to pause: that leads it through every compartment."""

    def struck_or(then: Callable[[], bool]) -> None:
        home.until(lambda: home.saboteur.struck[where.value] > 0 or then())

    def at_step(step: int) -> bool:
        return (run := home.current(job)) is not None and run.last_step >= step

    struck_or(lambda: at_step(4) and any(map(waits, home.migrations(job))))
    if (run := home.current(job)) is not None and run.instance_id is not None:
        home.cloud.crash(run.instance_id)
    struck_or(lambda: at_step(8))
    home.ask("pause", job)
    home.until(lambda: home.saboteur.struck[where.value] > 0)


@pytest.mark.parametrize(
    ("where", "late"), [*((where, False) for where in OF_A_JOB), *((where, True) for where in WITH_AN_EFFECT)]
)
def test_a_fault_in_one_jobs_step_harms_no_other_job(
    home: SimulatedInstallation, where: Compartment, late: bool
) -> None:
    first, struck, last = (home.submit(name, steps=16, standby="warm") for name in ("first", "struck", "last"))
    home.saboteur.arm(where.value, struck.id, late=late, times=2)  # a batch breaks, and then the job alone
    _until_struck(home, where, struck)
    home.until(lambda: home.job(struck).state in ("paused", "finished"))
    home.until(lambda: all(home.job(each).state == "finished" for each in (first, last)))
    for innocent in (first, last):
        assert not home.events(innocent, "job.quarantined")
        assert [run.last_step for run in home.runs(innocent) if run.end == "finished"] == [16]
    reported = home.events(struck, "job.quarantined")[0].data
    assert reported["compartment"] == where.value
    assert f"Sabotage: thrown into {where.value}" in str(reported["traceback"])
    assert where.value in str(home.read(lambda tx: tx.job_facts(struck.id)).quarantine)
    home.saboteur.times = 0
    home.settle()
    home.ask("resume", struck)
    home.until_state(struck, "finished")
    home.settle()
    assert home.read(lambda tx: tx.job_facts(struck.id)).quarantine is None
    check_truth(home)


def test_a_job_whose_cost_cannot_be_booked_is_stopped_and_the_others_are_booked(home: SimulatedInstallation) -> None:
    innocent, struck = home.submit("innocent", steps=450), home.submit("struck", steps=450)
    home.saboteur.arm("accrue", struck.id, times=1000)
    home.until(lambda: home.job(struck).state == "paused", stride_s=5.0)
    assert home.events(struck, "job.quarantined")[0].data["compartment"] == "accrue"
    (run,) = home.runs(innocent)
    home.until(lambda: bool(home.read(lambda tx: tx.entries(run_id=run.id))), stride_s=5.0)
    assert home.job(innocent).state == "running"
    home.saboteur.times = 0
    home.until(lambda: home.job(innocent).state == "finished", stride_s=5.0)
    home.settle()
    booked, billed = home.books()
    assert booked == billed


@pytest.mark.parametrize("where", OF_A_PROVIDER, ids=lambda where: where.value)
def test_a_fault_in_a_providers_step_is_reported_without_a_job(home: SimulatedInstallation, where: Compartment) -> None:
    jobs = [home.submit("one", steps=16), home.submit("two", steps=16)]
    home.saboteur.arm(where.value, times=2)
    for job in jobs:
        home.until_state(job, "finished")
    home.settle()
    assert home.saboteur.struck[where.value] > 0
    (fault,) = home.read(lambda tx: tx.events(kinds=("engine.fault",)))  # once, not at every tick
    assert fault.data["compartment"] == where.value
    assert "Sabotage" in str(fault.data["traceback"])
    assert doctor.engine(home.installation).state == "warn"
    assert doctor.quarantine(home.installation).state == "ok"
    check_truth(home)


def _quarantined(home: SimulatedInstallation, **fields: Any) -> Job:
    """A job that trained and whose next step broke."""
    job = home.submit("struck", **{"steps": 200, **fields})
    home.until_step(job, 7)
    home.saboteur.arm("stopping", job.id)
    home.until(lambda: bool(home.events(job, "job.quarantined")))
    return job


def test_a_quarantined_job_is_asked_for_a_checkpoint_and_loses_nothing(home: SimulatedInstallation) -> None:
    job = _quarantined(home)
    home.until_state(job, "paused")
    home.settle()
    ended, at_step = home.runs(job)[0].end, home.site.book()[0].step
    home.ask("resume", job)
    home.until_step(job, at_step + 1)
    assert ended == "paused"
    assert home.site.book()[1].start_step == at_step
    assert "quarantine: stopping" in home.events(job, "job.resumed")[0].message


def test_a_quarantined_job_that_does_not_stop_ends_after_the_stated_time(home: SimulatedInstallation) -> None:
    job = home.submit("struck", steps=2000)
    home.until_step(job, 7)
    home.site.ignore_control(job.id)
    home.saboteur.arm("stopping", job.id)
    home.until(lambda: bool(home.events(job, "job.quarantined")))
    home.run_for(STOP_WITHIN_S - 2)
    assert home.job(job).state == "pausing"
    home.run_for(4)
    assert home.job(job).state == "paused"
    home.settle()
    booked, billed = home.books()
    assert booked == billed


@pytest.mark.parametrize("where", AFTER_A_FAULT, ids=lambda where: where.value)
def test_even_where_its_confinement_breaks_a_job_comes_to_rest(home: SimulatedInstallation, where: Compartment) -> None:
    job = _quarantined(home)
    home.saboteur.arm(where.value, job.id, times=3)
    home.until_state(job, "paused")
    home.settle()
    assert home.saboteur.struck[where.value] > 0
    assert len(home.events(job, "job.quarantined")) == 2  # the fault and the fault of the confinement: each once
    booked, billed = home.books()
    assert booked == billed


def test_a_quarantine_outlives_the_control_plane_and_is_lifted_only_by_resume(home: SimulatedInstallation) -> None:
    job = _quarantined(home)
    home.start()
    home.until_state(job, "paused")
    home.start()
    home.run_for(30)
    assert home.job(job).state == "paused"
    listed = {view.name: view for view in job_views.jobs(home.installation).jobs}["struck"]
    assert "stopping" in str(listed.quarantine)
    assert listed.note.startswith("quarantined: stopping")
    assert listed.note.endswith("; to continue: tradewind resume struck, or to end it: tradewind cancel struck")
    assert listed.note in render.queue(job_views.jobs(home.installation), Screen())
    assert "in quarantine" in render.status(job_views.status(home.installation, "struck"), Screen())
    (check,) = [check for check in [doctor.quarantine(home.installation)] if check.state == "fail"]
    assert "struck" in check.found
    assert "tradewind resume struck" in check.fix
    home.saboteur.arm("stopping", job.id)
    home.ask("resume", job)
    home.until(lambda: len(home.events(job, "job.quarantined")) == 2)  # it breaks again
    home.until_state(job, "paused")
    assert doctor.quarantine(home.installation).state == "fail"


def test_a_job_that_had_finished_when_its_step_broke_keeps_no_open_move(home: SimulatedInstallation) -> None:
    job = home.submit("struck", steps=40)
    home.until(lambda: any(move.step is Step.RELEASE for move in home.migrations(job)))
    home.clock.advance(60)  # no control plane is up while the job finishes
    home.saboteur.arm("advance", job.id)
    home.until(lambda: bool(home.events(job, "job.quarantined")))
    assert home.job(job).state == "finished"
    home.run_for(10)
    assert not home.read(lambda tx: tx.migrations(open=True))
    home.settle()
    check_truth(home)


def test_a_quarantined_job_can_be_cancelled(home: SimulatedInstallation) -> None:
    job = _quarantined(home)
    order = home.ask("cancel", job)
    home.until_state(job, "cancelled")
    home.settle()
    assert home.answer(order) == "cancelling"
    assert home.read(lambda tx: tx.job_facts(job.id)).quarantine is None
    booked, billed = home.books()
    assert booked == billed


def test_an_order_that_breaks_is_answered_and_a_cancellation_is_carried_out_all_the_same(
    home: SimulatedInstallation,
) -> None:
    job = home.submit("struck", steps=200)
    home.until_step(job, 3)
    order = home.ask("cancel", job)
    home.saboteur.arm("command", job.id)
    home.until(lambda: home.saboteur.times == 0)
    home.saboteur.arm("answer", job.id)
    home.until_state(job, "cancelled")
    assert "failed: " in str(home.answer(order))
    assert isinstance(refusal(str(home.answer(order)), hint=""), TradewindError)
    home.settle()
    booked, billed = home.books()
    assert booked == billed


@pytest.mark.parametrize("column", ["spec", "step", "last_step"])
def test_a_row_that_cannot_be_read_harms_its_own_job_alone(home: SimulatedInstallation, column: str) -> None:
    innocent, struck = home.submit("innocent", steps=30), home.submit("struck", steps=300)
    if column == "spec":
        home.until_step(struck, 3)
        _write(home, f"UPDATE job SET spec = '{{' WHERE id = '{struck.id}'")
    elif column == "last_step":
        home.until_step(struck, 3)
        _write(home, f"UPDATE run SET last_step = 'many' WHERE job_id = '{struck.id}'")
    else:
        home.until(lambda: bool(home.migrations(struck)))
        _write(home, f"UPDATE migration SET step = 'sideways' WHERE job_id = '{struck.id}'")
    home.until_state(innocent, "finished")
    (reported,) = home.events(struck, "job.quarantined")
    assert reported.data["compartment"] == "read"
    assert {view.name for view in job_views.jobs(home.installation).jobs} == {"struck"}
    assert "cannot be read" in str(job_views.status(home.installation, "struck").job.quarantine)
    home.ask("cancel", struck)
    home.until(lambda: home.read(lambda tx: tx.outline(struck.id)).state == "cancelled")
    home.until(lambda: not any(machine.alive for machine in home.cloud.instances()))
    home.until(lambda: not home.read(lambda tx: tx.unsettled_runs(unreadable=snapshot.left_out)))


_DAMAGE = [
    *(("job", column, value) for column in ("name", "owner", "project", "spec") for value in (b"\xff",)),
    ("job", "spec", '{"schema":"job-spec/9"}'),
    *(("job", "state", value) for value in ("sideways", "")),
    ("job", "submitted_at_ms", "text"),
    ("run", "offer_id", "text"),
    ("migration", "generation", 2**62),
]


@pytest.mark.parametrize(("table", "column", "value"), _DAMAGE)
def test_whatever_one_jobs_row_holds_the_others_finish_and_its_machines_end(
    home: SimulatedInstallation, table: str, column: str, value: object
) -> None:
    innocent, struck = home.submit("innocent", steps=30), home.submit("struck", steps=300)
    run = home.until_step(struck, 3)
    if table == "migration":
        assert run.instance_id is not None
        home.cloud.crash(run.instance_id)
        home.until(lambda: bool(home.read(lambda tx: tx.migrations(open=True))))
    key = "id" if table == "job" else "job_id"
    with Store.write(home.store) as tx:
        statement = f"UPDATE {table} SET {column} = ? WHERE {key} = ?"
        tx._connection.exec_driver_sql(statement, (value, struck.id))
    home.until_state(innocent, "finished")
    assert home.events(struck, "job.quarantined")
    assert {view.id for view in job_views.jobs(home.installation).jobs} == {struck.id}
    home.ask("cancel", struck)
    home.until(lambda: home.read(lambda tx: tx.outline(struck.id)).state == "cancelled")
    home.until(lambda: not any(machine.alive for machine in home.cloud.instances()))
    (trained,) = home.runs(innocent)
    billed = [bill.amount_nano_usd for bill in home.cloud.bills() if bill.tags["tradewind-run"] == trained.id]
    assert [sum(entry.amount_nano_usd for entry in home.read(lambda tx: tx.entries(run_id=trained.id)))] == billed


def _write(home: SimulatedInstallation, statement: str) -> None:
    with Store.write(home.store) as tx:
        tx._connection.exec_driver_sql(statement)


def test_a_damaged_fence_stops_its_own_job_with_the_remedy_and_rents_nothing(home: SimulatedInstallation) -> None:
    home.stride_s = FINE_STRIDE_S
    innocent, struck = home.submit("innocent", steps=40), home.submit("struck", steps=60)
    run = home.until_step(struck, 7)
    mend = home.checkpoints.spoil_fence(struck.id)
    assert run.instance_id is not None
    home.cloud.crash(run.instance_id)
    home.until_state(struck, "paused")
    home.until_state(innocent, "finished")
    facts = home.read(lambda tx: tx.job_facts(struck.id))
    assert facts.failures == 0
    assert "is altered" in str(facts.quarantine)
    assert "repair it" in str(facts.quarantine)
    assert len(home.runs(struck)) == 1
    mend()
    home.ask("resume", struck)
    home.until_state(struck, "finished")
    home.settle()
    check_truth(home)


class BrokenSite:
    """A site that answers nobody, with no error that it may raise."""

    def __init__(self, site: Runtime) -> None:
        self._site = site

    def __getattr__(self, name: str) -> Any:
        return getattr(self._site, name)

    def reports(self, run_ids: Sequence[str]) -> Mapping[str, RunReport]:
        raise ZeroDivisionError(f"{len(run_ids)} runs")


def test_a_part_of_the_tick_that_breaks_as_a_whole_stops_no_other_part(home: SimulatedInstallation) -> None:
    job = home.submit("job", steps=12)
    home.until_step(job, 2)
    home.plane._ctx.runtime = cast("Runtime", BrokenSite(home.plane._ctx.runtime))
    home.ask("cancel", job)
    for _ in range(8):
        with suppress(ZeroDivisionError):
            home.tick()
        home.clock.advance(1.0)
    assert home.job(job).state == "cancelled"
    assert not any(machine.alive for machine in home.cloud.instances())
    assert (
        "all of observation: ZeroDivisionError" in home.read(lambda tx: tx.events(kinds=("engine.fault",)))[0].message
    )


def test_a_quarantined_jobs_traceback_names_no_secret(home: SimulatedInstallation) -> None:
    job = home.submit("struck", steps=200)
    home.secrets.give({job.id: {"TOKEN": "hunter2-hunter2"}})
    home.until_step(job, 3)
    home.plane._ctx.crossing = lambda where, about: _spill(where)
    home.until(lambda: bool(home.events(job, "job.quarantined")))
    assert "hunt" not in str(home.events(job, "job.quarantined")) + str(home.read(lambda tx: tx.job_facts(job.id)))


def _spill(where: str) -> None:
    if where == "stopping":
        raise ValueError(f"{'x' * 470}the token is hunter2-hunter2")  # where what is shown was cut before it was masked


def test_a_damaged_shared_row_is_blamed_on_no_job(home: SimulatedInstallation) -> None:
    job = home.submit("job", steps=200)
    home.until_step(job, 12)
    _write(home, "UPDATE offer SET capacity_type = 'free'")
    other = home.submit("other")
    for _ in range(10):
        with suppress(UnreadableRowError):
            home.tick()
        home.clock.advance(1.0)
    assert not home.events(job, "job.quarantined") + home.events(other, "job.quarantined")
    _write(home, "UPDATE offer SET capacity_type = 'spot'")
    home.until_state(other, "finished")


@pytest.mark.parametrize(("table", "column"), [("event", "data"), ("perf_point", "steps"), ("plan", "document")])
def test_what_is_learned_from_a_job_and_cannot_be_read_stops_no_decision_about_another(
    home: SimulatedInstallation, table: str, column: str
) -> None:
    first = home.submit("first", steps=60)
    home.until_step(first, 30)
    home.ask("migrate", first, offer_id=RESERVE.id)
    home.until(lambda: len(home.events(first, "migration.cutover")) == 2)
    home.until_step(first, 50)
    if table == "event":
        _write(home, "DROP TRIGGER event_refuses_update")  # as a bad sector, which asks no trigger
    _write(home, f"UPDATE {table} SET {column} = x'ff'")
    second = home.submit("second", steps=10)
    home.until_state(second, "finished")
    assert not home.events(second, "job.quarantined")


def test_what_a_transaction_that_failed_was_to_record_is_recorded_by_the_next(home: SimulatedInstallation) -> None:
    jobs = [home.submit(name, steps=60) for name in ("one", "other")]

    def totals() -> list[int | None]:
        facts = home.read(lambda tx: tx.job_facts_of([job.id for job in jobs]))
        return [facts[job.id].total_steps for job in jobs]

    second = "NEW.last_step > 0 AND (SELECT count(*) FROM run WHERE last_step > 0) > 0"
    _write(home, f"CREATE TRIGGER fails BEFORE UPDATE ON run WHEN {second} BEGIN SELECT json('{{'); END")
    with pytest.raises(StoreError, match="malformed JSON"):
        home.run_for(60)
    assert totals() == [None, None]
    _write(home, "DROP TRIGGER fails")
    for job in jobs:
        home.until_step(job, 30)
    assert totals() == [60, 60]
    home.settle()
    check_truth(home)
