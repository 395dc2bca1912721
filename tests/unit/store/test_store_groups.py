"""Groups, and the jobs that belong to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy import update

from orchestrator.errors import NotFoundError, StoreError, UnreadableRowError, UsageError
from orchestrator.model import Group, Job
from orchestrator.store import Store, schema

Make = Callable[..., Job]
SWEEP = Group("group_A", "sweep", "cheapest", "default", "ann", 5, 400_000_000_000, 9_000)


def test_a_group_comes_back_as_it_was(store: Store) -> None:
    plain = Group("group_B", "other", "makespan", "research", "bob", 6)
    with store.write() as tx:
        tx.add_group(SWEEP)
        tx.add_group(plain)
    with store.read() as tx:
        assert tx.group("group_A") == SWEEP
        assert tx.groups() == [SWEEP, plain]


def test_a_group_is_found_by_id_and_by_the_newest_of_its_name(store: Store) -> None:
    with store.write() as tx:
        tx.add_group(SWEEP)
        tx.add_group(replace(SWEEP, id="group_B", submitted_at_ms=6))
        assert tx.find_group("group_A").id == "group_A"
        assert tx.find_group("sweep").id == "group_B"
        with pytest.raises(NotFoundError) as error:
            tx.find_group("sweap")
        assert "sweep" in error.value.hint
        with pytest.raises(NotFoundError):
            tx.group("group_C")


def test_a_group_is_looked_up_within_a_project(store: Store) -> None:
    with store.write() as tx:
        tx.add_group(replace(SWEEP, id="group_B", project="beta"))
        tx.add_group(replace(SWEEP, project="alpha"))
        for ref, project, found in (("sweep", "beta", "group_B"), ("group_B", "beta", "group_B"),
                                    ("sweep", "alpha", "group_A"), ("group_B", None, "group_B")):  # fmt: skip
            assert tx.find_group(ref, project).id == tx.only_group(ref, project).id == found
        for ref, project, hint in (("group_B", "alpha", "projects that have one: beta"),
                                   ("sweep", "gamma", "projects that have one: alpha, beta"),
                                   ("swep", "alpha", "did you mean sweep?")):  # fmt: skip
            with pytest.raises(NotFoundError) as error:
                tx.only_group(ref, project)
            assert error.value.hint == hint


def test_a_name_in_several_projects_is_no_single_group(store: Store) -> None:
    with store.write() as tx:
        for number in range(8):
            tx.add_group(replace(SWEEP, id=f"group_{number}", project=f"p{number}"))
        assert tx.find_group("sweep").id == "group_7"
        with pytest.raises(UsageError, match=r"a group sweep: p0, p1, p2, p3, p4, 3 more$"):
            tx.only_group("sweep")


def test_jobs_keep_their_group_weight_and_predecessors(store: Store, job: Make) -> None:
    first = replace(job("job_A"), group_id="group_A", weight=2.5)
    second = replace(job("job_B"), group_id="group_A", after=("job_A",))
    with store.write() as tx:
        tx.add_group(SWEEP)
        for each in (first, second, job("job_C")):
            tx.add_job(each)
    with store.read() as tx:
        assert tx.job("job_A") == first
        assert tx.outline("job_B") == second
        assert (tx.job("job_C").group_id, tx.job("job_C").weight, tx.job("job_C").after) == (None, 1.0, ())
        assert tx.job_ids_of_group("group_A") == ["job_A", "job_B"]


def test_a_job_of_a_group_that_is_not_there_is_refused(store: Store, job: Make) -> None:
    with pytest.raises(StoreError), store.write() as tx:
        tx.add_job(replace(job("job_A"), group_id="group_X"))


def test_a_token_names_one_group_of_a_project(store: Store) -> None:
    with store.write() as tx:
        tx.add_group(SWEEP, token="once", digest="ab")
        assert tx.group_with_token("default", "once") == (SWEEP, "ab")
        assert tx.group_with_token("research", "once") is None
    with pytest.raises(StoreError), store.write() as tx:
        tx.add_group(replace(SWEEP, id="group_B"), token="once", digest="cd")


@pytest.mark.parametrize(
    ("column", "value"), [("weight", 0.0), ("weight", -1.0), ("after", "?"), ("after", '["job_A"]')]
)
def test_damaged_values_are_reported_and_an_outline_does_without_them(
    store: Store, job: Make, column: str, value: object
) -> None:
    with store.write() as tx:
        tx.add_job(job("job_A"))
        tx._connection.execute(update(schema.job).values({column: value}))
    with store.read() as tx:
        with pytest.raises(UnreadableRowError, match=column):
            tx.job("job_A")
        assert (tx.outline("job_A").weight, tx.outline("job_A").after) == (1.0, ())


@pytest.mark.parametrize("weight", [0.0, -1.0, float("inf"), float("nan")])
def test_a_weight_is_a_positive_number(job: Make, weight: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        replace(job("job_A"), weight=weight)
