"""What jobs that share machines had: only time in which they wanted one counts."""

from __future__ import annotations

import pytest

from orchestrator.engine.jobs.machine_time import Span, history, spans
from orchestrator.model import Event, Run

S = 1000
OFFER = "local/eu-1/eu-1a/only/on_demand"


def event(kind: str, at_s: int) -> Event:
    return Event(f"e{at_s}", at_s * S, kind, "", "job", None)


def ran(from_s: int, to_s: int | None, *, created_s: int | None = None, generation: int = 1) -> Run:
    return Run(
        f"run_{from_s}",
        "job",
        generation,
        OFFER,
        "m",
        "training" if to_s is None else "ended",
        (from_s if created_s is None else created_s) * S,
        training_from_ms=from_s * S,
        training_to_ms=None if to_s is None else to_s * S,
        end=None if to_s is None else "paused",
    )


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], [(10, 100)]),
        ([("job.paused", 30)], [(10, 30)]),
        ([("job.paused", 30), ("job.resumed", 70)], [(10, 30), (70, 100)]),
        ([("job.paused", 10), ("job.resumed", 70)], [(70, 100)]),
        ([("job.paused", 5), ("job.resumed", 7)], [(10, 100)]),  # before its predecessors had finished
        ([("job.paused", 20), ("job.paused", 30), ("job.resumed", 40), ("job.paused", 50)], [(10, 20), (40, 50)]),
    ],
)
def test_a_job_wants_a_machine_but_in_its_pauses(events: list[tuple[str, int]], expected: list[Span]) -> None:
    found = spans(10 * S, [event(*each) for each in reversed(events)], 100 * S)
    assert found == [(from_s * S, to_s * S) for from_s, to_s in expected]


def test_a_resumed_job_has_waited_since_then() -> None:
    found = history([ran(0, 20)], [(0, 20 * S), (900 * S, 960 * S)], 960 * S, 100.0)
    assert (found.age_s, found.waited_s, found.there_s, found.had_s) == (80.0, 60.0, 60.0, {OFFER: 0.0})


def test_a_job_that_runs_has_its_turn_and_had_all_of_the_window() -> None:
    found = history([ran(200, None, created_s=180)], [(100 * S, 500 * S)], 500 * S, 100.0)
    assert (found.waited_s, found.there_s, found.had_s) == (0.0, 100.0, {OFFER: 100.0})
    assert (found.on, found.turn_s, found.start_s) == (OFFER, 300.0, 20.0)


def test_a_job_that_gives_way_has_no_machine_any_more() -> None:
    found = history([ran(200, None)], [(100 * S, 500 * S)], 500 * S, 100.0, leaves=True)
    assert (found.on, found.turn_s) == (None, 0.0)
