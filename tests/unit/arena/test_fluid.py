"""A group on a market whose prices change: what each way of deciding pays, by hand-made cases."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.arena.fluid import Group, agnostic, on_the_fastest, one_by_one, played, together
from orchestrator.policy.groups import Collection, Quota

HOUR_S = 3600.0


def group(rate: list[list[float]], hours: list[float], deadline_h: list[float]) -> Group:
    """`hours`: the work of each job, in hours at 1 step/s."""
    return Group(np.array(rate), HOUR_S * np.array(hours), HOUR_S * np.array(deadline_h))


def quotas(*most: float) -> tuple[Quota, ...]:
    return tuple(Quota(f"quota {way}", np.array([way]), room) for way, room in enumerate(most))


def test_a_job_pays_the_prices_of_the_hours_in_which_it_runs() -> None:
    prices = np.array([[1.0], [2.0], [4.0], [8.0]])
    found = played(group([[1.0]], [2.5], [2.5]), prices, (), together)
    assert found.usd == pytest.approx(1.0 + 2.0 + 0.5 * 4.0)
    assert found.ended_s == pytest.approx([2.5 * HOUR_S])
    assert (found.late, found.decisions) == (0, 1)


def test_a_decision_sees_no_price_of_later() -> None:
    """Way 1 is cheaper from the second day on: the job goes there then, and not before."""
    prices = np.array([[1.0, 2.0]] * 24 + [[1.0, 0.5]] * 24)
    found = played(group([[1.0, 1.0]], [48.0], [48.0]), prices, (), together)
    assert found.usd == pytest.approx(24 * 1.0 + 24 * 0.5)


def test_alone_the_first_takes_what_another_needs_more() -> None:
    """Only the fast way is on time for the second job; the first would be as well served by the slow one."""
    jobs = group([[1.0, 1.0], [0.25, 1.0]], [4.0, 4.0], [4.0, 4.0])
    prices, room = np.array([[3.0, 2.0]]), quotas(2, 1)
    alone, joint = (played(jobs, prices, room, decide) for decide in (one_by_one, together))
    assert (alone.late, joint.late) == (1, 0)
    assert joint.usd == pytest.approx(4 * 3.0 + 4 * 2.0)


def test_without_quotas_together_is_each_alone() -> None:
    chance = np.random.default_rng(0)
    hours = chance.uniform(1, 30, 6)
    jobs = Group(chance.uniform(0.5, 3, (6, 4)), HOUR_S * hours, HOUR_S * 2 * hours)
    prices = chance.uniform(0.2, 2, (100, 4))
    alone, joint = (played(jobs, prices, (), decide) for decide in (one_by_one, together))
    assert joint.usd == pytest.approx(alone.usd, rel=1e-5)
    assert joint.late == alone.late == 0


def test_who_does_not_know_the_speeds_pays_more_for_what_is_slow() -> None:
    jobs, prices = group([[0.25, 1.0]], [4.0], [40.0]), np.array([[1.0, 2.0]])
    knowing, guessing = (played(jobs, prices, (), decide) for decide in (together, agnostic))
    assert knowing.usd == pytest.approx(8.0)
    assert guessing.usd > knowing.usd * 1.5


def test_on_the_fastest_is_never_on_a_slower_one() -> None:
    found = played(group([[0.9, 1.0]], [4.0], [40.0]), np.array([[1.0, 2.0]]), (), on_the_fastest)
    assert found.usd == pytest.approx(8.0)


def test_where_not_all_can_be_on_time_all_end() -> None:
    found = played(group([[1.0]] * 3, [2.0] * 3, [2.0] * 3), np.array([[1.0]]), quotas(1), together)
    assert 1 <= found.late <= 3
    assert found.usd == pytest.approx(6.0, rel=1e-4)
    assert found.ended_s.max() == pytest.approx(6 * HOUR_S, rel=0.35)


def test_a_decision_that_gives_nobody_time_is_refused() -> None:
    def idle(jobs: Collection) -> np.ndarray:
        return np.zeros(jobs.rate.shape)

    with pytest.raises(RuntimeError, match="share of time"):
        played(group([[1.0]], [1.0], [1.0]), np.array([[1.0]]), (), idle)
