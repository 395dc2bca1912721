"""An exception that nobody expected stays in the compartment of the job, run or provider that it was thrown for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orchestrator.engine.compartment import Compartment
from orchestrator.engine.move import waits
from orchestrator.model import Job
from tests.sim.harness import Installation, check_truth

OF_A_JOB = [
    Compartment.JUDGE,
    Compartment.RECORD,
    Compartment.OBSERVE,
    Compartment.GUARD,
    Compartment.TAKE_SPARE,
    Compartment.KEEP_SPARE,
    Compartment.DECIDE,
    Compartment.PLACE,
    Compartment.ADVANCE,
    Compartment.KILL,
    Compartment.TERMINATE,
    Compartment.SETTLE,
    Compartment.COMMAND,
]
OF_A_PROVIDER = [Compartment.COLLECT, Compartment.DESCRIBE, Compartment.RENEW, Compartment.SWEEP]
AFTER_A_FAULT = [Compartment.CONFINE, Compartment.END_RUNS]
OF_A_ROW = [Compartment.LOOK]
OF_MONEY = [Compartment.ACCRUE]


def test_every_compartment_is_thrown_into_here() -> None:
    assert sorted([*OF_A_JOB, *OF_A_PROVIDER, *AFTER_A_FAULT, *OF_A_ROW, *OF_MONEY]) == sorted(Compartment)


def _until_struck(home: Installation, where: Compartment, job: Job) -> None:
    """The job trains with a spare, loses its machine, is asked to pause: that leads it through every compartment."""

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


@pytest.mark.parametrize("late", [False, True], ids=["before it", "after it"])
@pytest.mark.parametrize("where", OF_A_JOB, ids=lambda where: where.value)
def test_a_fault_in_one_jobs_step_harms_no_other_job(home: Installation, where: Compartment, late: bool) -> None:
    first, struck, last = (home.submit(name, steps=16, standby="warm") for name in ("first", "struck", "last"))
    home.saboteur.arm(where.value, struck.id, late=late, times=2)  # a batch breaks, and then the job alone
    _until_struck(home, where, struck)
    home.until(lambda: home.job(struck).state in ("paused", "finished"))
    home.until(lambda: all(home.job(each).state == "finished" for each in (first, last)))
    for innocent in (first, last):
        assert not home.events(innocent, "job.quarantined")
        assert [run.last_step for run in home.runs(innocent) if run.end == "finished"] == [16]
    told = home.events(struck, "job.quarantined")[0].data
    assert told["compartment"] == where.value
    assert f"Sabotage: thrown into {where.value}" in str(told["traceback"])
    assert where.value in str(home.read(lambda tx: tx.job_facts(struck.id)).quarantine)
    home.saboteur.times = 0
    home.settle()
    home.ask("resume", struck)
    home.until_state(struck, "finished")
    home.settle()
    assert home.read(lambda tx: tx.job_facts(struck.id)).quarantine is None
    check_truth(home)


def test_a_job_whose_cost_cannot_be_booked_is_stopped_and_the_others_are_booked(home: Installation) -> None:
    innocent, struck = home.submit("innocent", steps=450), home.submit("struck", steps=450)
    home.saboteur.arm("accrue", struck.id, times=1000)
    home.until(lambda: home.job(struck).state == "paused", stride_s=5.0)
    assert home.events(struck, "job.quarantined")[0].data["compartment"] == "accrue"
    (run,) = home.runs(innocent)
    assert home.read(lambda tx: tx.entries(run_id=run.id))
    home.saboteur.times = 0
    home.until(lambda: home.job(innocent).state == "finished", stride_s=5.0)
    home.settle()
    booked, billed = home.books()
    assert booked == billed
