"""Quarantined jobs in the store: found, stopped without being read, and reported if they cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from orchestrator.errors import RowError
from orchestrator.model import Step
from orchestrator.store import Store, Tx
from tests.unit.store.conftest import T0

Make = Callable[..., Any]


@pytest.fixture
def tx(store: Store, job: Make) -> Iterator[Tx]:
    with store.write() as opened:
        opened.add_job(job("job_A"))
        opened.add_job(job("job_B", name="bert"))
        yield opened


def spoil(tx: Tx, statement: str) -> None:
    tx._connection.exec_driver_sql(statement)


def test_a_quarantine_is_kept_with_its_job_until_it_is_lifted(tx: Tx) -> None:
    assert tx.quarantined() == []
    tx.set_job_facts("job_B", quarantine="decide: \0 broke", quarantined_at_ms=T0)
    (found,) = tx.quarantined()
    assert (found.job_id, found.name, found.state, found.at_ms) == ("job_B", "bert", "queued", T0)
    assert "broke" in found.why
    tx.set_job_facts("job_B", quarantine=None, quarantined_at_ms=None)
    assert tx.quarantined() == []


def test_all_runs_of_one_job_end_at_once_and_every_migration_is_given_up(tx: Tx, run: Make, migration: Make) -> None:
    trained = {"instance_id": "i-1", "state": "training", "training_from_ms": T0}
    tx.add_run(run("run_1", generation=1, **trained))
    tx.add_run(run("run_2", generation=2, instance_id="i-2", state="starting"))
    tx.add_run(run("run_3", generation=3))
    tx.add_run(run("run_4", generation=4))
    tx.add_run(run("run_5", generation=5, **{**trained, "state": "ended", "end": "moved", "training_to_ms": T0 + 1}))
    tx.add_run(run("run_B", job_id="job_B", **{**trained, "instance_id": "i-9"}))
    of_b = migration("mig_B", job_id="job_B", target_run_id="run_B", step=Step.VERIFY, token="t-B")
    tx.add_migration(of_b)
    steps = {"run_1": (Step.RELEASE, 1), "run_2": (Step.CUTOVER, 1), "run_3": (Step.PROVISION, 1)}
    for target, (step, attempt) in {**steps, "run_4": (Step.PROVISION, 0)}.items():
        tx.add_migration(
            migration(f"mig_{target}", target_run_id=target, step=step, attempt=attempt, token=f"t-{target}")
        )
    tx.end_runs("job_A", "paused", T0 + 9, "quarantined: it broke")
    ended = {each.id: (each.state, each.end, each.training_to_ms) for each in tx.runs(job_id="job_A")}
    assert ended == {
        "run_1": ("ended", "paused", T0 + 9),
        "run_2": ("ended", "aborted", T0 + 9),
        "run_3": ("provisioning", "aborted", T0 + 9),  # its launch may have made a machine
        "run_4": ("ended", "aborted", T0 + 9),
        "run_5": ("ended", "moved", T0 + 1),
    }
    given_up = {each.target_run_id: each.step for each in tx.migrations(job_id="job_A")}
    assert given_up.pop("run_1") is Step.DONE
    assert set(given_up.values()) == {Step.ABORTED}
    assert tx.run("run_B").end is None
    assert tx.migration("mig_B") == of_b


def test_what_cannot_be_read_is_reported_by_its_job_and_the_rest_is_read(tx: Tx, run: Make, migration: Make) -> None:
    for job_id in ("job_A", "job_B"):
        tx.add_run(run(f"run_{job_id}", job_id=job_id))
        tx.add_migration(migration(f"mig_{job_id}", job_id=job_id, target_run_id=f"run_{job_id}", token=job_id))
    spoil(tx, "UPDATE job SET spec = '{' WHERE id = 'job_A'")
    spoil(tx, "UPDATE migration SET step = 'sideways' WHERE job_id = 'job_A'")
    reported: dict[str, RowError] = {}
    assert [each.id for each in tx.jobs(unreadable=reported.setdefault)] == ["job_B"]
    assert reported.keys() == {"job_A"}
    reported.clear()
    assert [each.job_id for each in tx.migrations(open=True, unreadable=reported.setdefault)] == ["job_B"]
    assert reported.keys() == {"job_A"}
    with pytest.raises(RowError, match="job job_A cannot be read"):
        tx.job("job_A")
    with pytest.raises(RowError, match="migration mig_job_A cannot be read"):
        tx.migrations(open=True)
    assert [each.name for each in tx.outlines()] == ["gpt", "bert"]
    assert tx.find_job("gpt").id == "job_A"
    assert tx.set_job_state("job_A", "cancelled")
    assert tx.outline("job_A").state == "cancelled"


def test_a_job_file_that_claims_to_be_of_a_newer_version_is_damage_of_its_job_alone(tx: Tx) -> None:
    spoil(tx, "UPDATE job SET spec = replace(spec, 'job-spec/1', 'job-spec/9') WHERE id = 'job_A'")
    reported: dict[str, RowError] = {}
    assert [each.id for each in tx.jobs(unreadable=reported.setdefault)] == ["job_B"]
    assert "job job_A cannot be read: spec" in str(reported["job_A"])
    assert "newer version (job-spec/9)" in str(reported["job_A"])
    assert [each.name for each in tx.outlines()] == ["gpt", "bert"]


def test_an_order_that_cannot_be_read_says_so(tx: Tx) -> None:
    tx.add_command("pause", "job_A", {}, "user:me")
    spoil(tx, "UPDATE command SET args = '['")
    (order,) = tx.open_commands()
    assert (order.kind, order.args) == ("pause", {})
    assert order.damage
