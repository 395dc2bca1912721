"""What commands ask of the store costs what they return: more jobs, events and offers besides make no look-up slower.

The measure is the number of instructions that SQLite runs: it counts what is scanned as well as what is returned.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from orchestrator.errors import NotFoundError
from orchestrator.installation import Installation
from orchestrator.model import Event, Job
from orchestrator.services.control_plane.lifecycle import environment_to_keep
from orchestrator.services.doctor import state
from orchestrator.services.jobs import apply, current
from orchestrator.services.jobs.explain import explain
from orchestrator.services.jobs.plan import preview
from orchestrator.services.jobs.wait import wait
from orchestrator.services.prices import history
from providers.clock import VirtualClock
from providers.offer import CapacityType, Offer
from providers.price import PricePoint
from tests.unit.services.recorded_history import Past, program, spec, submit_job

STEP = 5
"""SQLite reports every so many instructions."""
DEEPER = 1.25
"""How much a look-up may grow: the trees that are searched become a level deeper."""


def work(installation: Installation, ask: Callable[[], object]) -> int:
    """Instructions that SQLite ran to answer, in units of STEP."""
    count = 0

    def ran() -> int:
        nonlocal count
        count += 1
        return 0

    def listen(_connection: object, cursor: Any, *_rest: object) -> None:
        cursor.connection.set_progress_handler(ran, STEP)

    backend = installation.store._backend
    for engine in (backend.reading, backend.writing):
        event.listen(engine, "before_cursor_execute", listen)
    ask()
    for engine in (backend.reading, backend.writing):
        event.remove(engine, "before_cursor_execute", listen)
    return count


def crowd(installation: Installation, first: int, last: int) -> None:
    """Jobs that have ended, some with the name of another, each with events; and offers with prices."""
    with installation.store.write() as tx:
        now_ms = installation.clock.now_ms()
        for number in range(first, last):
            job_id = f"job_7Z{number:05}"
            name = "crowd" if number % 2 else f"crowd-{number}"
            tx.add_job(Job(job_id, spec(name), "me", now_ms, "finished"))
            for kind in ("job.submitted", "run.progress", "migration.done"):
                tx.add_event(Event(f"ev_{number}_{kind}", now_ms, kind, "", "control-plane", job_id))
        offers = [
            Offer("aws", "r1", f"r1-{n}", f"kind{n}", None, 0, 2, 10**9, CapacityType.SPOT) for n in range(first, last)
        ]
        tx.put_offers("aws", offers, whole=False)
        tx.add_prices([PricePoint(each.id, 10**9, now_ms, now_ms, "aws") for each in offers])


def unknown(installation: Installation) -> None:
    with pytest.raises(NotFoundError):
        current.job(installation, "nothing-like-it")


def test_what_is_asked_of_few_jobs_costs_the_same_beside_many(
    installation: Installation, clock: VirtualClock, past: Past, tmp_path: Path
) -> None:
    waiting = submit_job(installation, "waiting")
    with installation.store.write() as tx:  # as the control plane does: else a listing would decide about them
        open_ones = (past.conv, past.lstm, waiting.id)
        tx.put_forecasts(dict.fromkeys(open_ones, "nothing fits"), installation.clock.now_ms())
    view = preview(installation, [spec("new", train=program(tmp_path))])
    apply.save(view, tmp_path / "plan.json")
    with installation.store.read() as tx:
        plan = tx.latest_plan(waiting.id)
    assert plan is not None
    offer_id = next(iter(installation.providers["fake"].offers())).id
    asked: dict[str, Callable[[], object]] = {
        "a job by its id": lambda: current.job(installation, past.gpt),
        "a job by its name": lambda: current.job(installation, "gpt"),
        "a job by the newest of many of its name": lambda: current.job(installation, "crowd"),
        "a job by the beginning of its id": lambda: current.job(installation, past.gpt[:-1].lower()),
        "status": lambda: current.status(installation, "gpt"),
        "a page of queue --all": lambda: current.jobs(installation, ended=True, limit=3),
        "explain JOB": lambda: explain(installation, "gpt"),
        "explain PLAN": lambda: explain(installation, plan.id),
        "explain RUN": lambda: explain(installation, past.runs[1]),
        "apply: the plan is read": lambda: apply.load(installation, tmp_path / "plan.json"),
        "apply: the plan is checked": lambda: apply._gone(installation, view),
        "up and submit: the environment to keep": lambda: environment_to_keep(installation, {}),
        "doctor: the control plane": lambda: state.control_plane(installation),
        "wait": lambda: wait(installation, "gpt"),
        "prices history OFFER": lambda: history.history(installation, history.PriceQuery(offer_id)),
    }
    crowd(installation, 0, 40)
    for ask in asked.values():
        ask()  # what is read once per process
    before = {name: work(installation, ask) for name, ask in asked.items()}
    crowd(installation, 40, 1500)
    after = {name: work(installation, ask) for name, ask in asked.items()}
    grown = {name: (before[name], after[name]) for name in asked if after[name] > before[name] * DEEPER + 2}
    assert not grown
    assert all(before.values())


def test_a_name_that_nothing_has_is_compared_with_a_bounded_number_of_names(
    installation: Installation, past: Past
) -> None:
    crowd(installation, 0, 1000)
    first = work(installation, lambda: unknown(installation))
    crowd(installation, 1000, 2500)
    assert work(installation, lambda: unknown(installation)) <= first * DEEPER
