"""Jobs, the facts about them, and how people refer to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.errors import NotFoundError, StoreError, UsageError
from orchestrator.model import Job
from orchestrator.store import JobFacts, Store

Make = Callable[..., Job]


def test_a_job_comes_back_as_it_was(store: Store, job: Make) -> None:
    with store.write() as tx:
        tx.add_job(job())
    with store.read() as tx:
        assert tx.job("job_A") == job()


def test_jobs_come_in_the_order_of_submission_and_by_state_and_project(store: Store, job: Make) -> None:
    with store.write() as tx:
        tx.add_job(job("job_C", at_ms=1, project="research"))
        tx.add_job(job("job_B", at_ms=2))
        tx.add_job(job("job_A", at_ms=2))
        tx.set_job_state("job_B", "running")
        assert [each.id for each in tx.jobs()] == ["job_C", "job_A", "job_B"]
        assert [each.id for each in tx.jobs({"running", "paused"})] == ["job_B"]
        assert [each.id for each in tx.jobs(states=[])] == []
        assert [each.id for each in tx.jobs(project="research")] == ["job_C"]


def test_a_state_changes_only_from_an_expected_one(store: Store, job: Make) -> None:
    with store.write() as tx:
        tx.add_job(job())
        assert tx.set_job_state("job_A", "starting", expected={"queued"})
        assert not tx.set_job_state("job_A", "running", expected={"queued", "paused"})
        assert tx.job("job_A").state == "starting"
        assert tx.set_job_state("job_A", "cancelling")


def test_facts_begin_unknown_and_change_one_by_one(store: Store, job: Make) -> None:
    with store.write() as tx:
        tx.add_job(job())
        assert tx.job_facts("job_A") == JobFacts()
        tx.set_job_facts("job_A", total_steps=100, error="Traceback ...")
        tx.set_job_facts("job_A", failures=2, finished_at_ms=5, weights_hash="ab", checkpoint_bytes=1 << 40)
        tx.set_job_facts("job_A", error=None, baseline_offer_id="fake/r/z/t/on_demand", next_decision_ms=9)
        assert tx.job_facts("job_A") == JobFacts(100, 2, 1 << 40, "ab", None, 5, "fake/r/z/t/on_demand", 9)


def test_an_error_text_with_any_bytes_in_it_can_be_recorded(store: Store, job: Make) -> None:
    with store.write() as tx:
        tx.add_job(job())
        tx.set_job_facts("job_A", error="bad \0 byte and \udcff surrogate")
        assert tx.job_facts("job_A").error == "bad \ufffd byte and ? surrogate"


def test_a_job_that_is_not_there_is_not_found(store: Store) -> None:
    with store.write() as tx:
        for call in (
            lambda: tx.job("job_X"),
            lambda: tx.job_facts("job_X"),
            lambda: tx.set_job_facts("job_X", failures=1),
            lambda: tx.set_job_state("job_X", "running"),
            lambda: tx.set_job_state("job_X", "running", expected={"queued"}),
        ):
            with pytest.raises(NotFoundError, match="job_X"):
                call()


def test_a_job_is_found_by_id_name_and_beginning_of_its_id(store: Store, job: Make) -> None:
    with store.write() as tx:
        tx.add_job(job("job_01AA", name="gpt", at_ms=1))
        tx.add_job(job("job_01AB", name="gpt", at_ms=2))
        tx.add_job(job("job_02CC", name="job_01AA", at_ms=3))
        found: dict[str, Any] = {
            ref: tx.find_job(ref).id for ref in ("job_01AA", "gpt", "job_02", "JOB_02c", "job_01AB")
        }
    assert found == {
        "job_01AA": "job_01AA",  # an id goes before a name
        "gpt": "job_01AB",  # the newest of that name
        "job_02": "job_02CC",
        "JOB_02c": "job_02CC",
        "job_01AB": "job_01AB",
    }


@pytest.mark.parametrize("ref", ["", "j", "JOB_", "job_"])
def test_what_an_unset_variable_leaves_names_no_job(store: Store, job: Make, ref: str) -> None:
    with store.write() as tx:
        tx.add_job(job("job_01AA", name="gpt"))
        with pytest.raises((NotFoundError, UsageError)) as caught:
            tx.find_job(ref)
    assert caught.value.hint


@pytest.mark.parametrize("ref", ["\udcff", "a\0b", "x" * 1_000_000, None, 5, b"gpt"])
def test_what_cannot_be_a_name_is_refused(store: Store, ref: Any) -> None:
    with store.write() as tx, pytest.raises(UsageError, match="not the name or id of a job"):
        tx.find_job(ref)


def test_a_beginning_shared_by_several_ids_is_refused_with_the_ids(store: Store, job: Make) -> None:
    with store.write() as tx:
        for number in range(5):
            tx.add_job(job(f"job_0{number}"))
        with pytest.raises(UsageError, match=r"job_00, job_01, job_02, \.\.\.") as caught:
            tx.find_job("job_0")
    assert caught.value.hint


def test_signs_that_mean_something_in_sql_mean_nothing_in_a_reference(store: Store, job: Make) -> None:
    with store.write() as tx:
        tx.add_job(job())
        for ref in ("job%", "_ob", "%", "' OR 1=1 --"):
            with pytest.raises(NotFoundError):
                tx.find_job(ref)


def test_a_name_that_is_nearly_right_is_suggested(store: Store, job: Make) -> None:
    with store.write() as tx:
        tx.add_job(job(name="gpt-small"))
        with pytest.raises(NotFoundError) as caught:
            tx.find_job("gpt-smal")
        assert caught.value.hint == "did you mean gpt-small?"
        with pytest.raises(NotFoundError) as caught:
            tx.find_job("resnet")
        assert "queue" in caught.value.hint


def test_a_spec_of_a_newer_schema_or_a_broken_one_is_a_store_error(store: Store, job: Make) -> None:
    with store.write() as tx:
        tx.add_job(job("job_A"))
        tx.add_job(job("job_B"))
        tx._connection.exec_driver_sql("""UPDATE job SET spec = '{"schema":"job-spec/99"}' WHERE id = 'job_A'""")
        tx._connection.exec_driver_sql("UPDATE job SET spec = 'garbage' WHERE id = 'job_B'")
        with pytest.raises(StoreError, match="newer version"):
            tx.job("job_A")
        with pytest.raises(StoreError, match="cannot be read"):
            tx.job("job_B")
