"""Turns on owned machines: over many rounds everybody has its share, and nobody waits for ever."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.policy.groups.rounds import Room
from orchestrator.policy.groups.time_slices import WINDOW, Contender, Fairness, fair_shares, in_whole_machines, turns

ROUND_S = 600.0


def job(name: str, *rates: float, takes: int = 1, steps: float = 1e6, **more: object) -> Contender:
    new = Contender(name, np.array(rates), takes, steps, 0.0, 0.0, 0.0, np.zeros(len(rates)), 0.0)
    return replace(new, **more)  # type: ignore[arg-type]


def room(*machines: int) -> Room:
    return Room(np.eye(len(machines)), np.array(machines, dtype=float))


def next_turns(jobs: list[Contender], machines: Room) -> Mapping[str, int]:
    return turns(jobs, fair_shares(jobs, machines, "max-min-fairness"), machines, ROUND_S)


def played(
    jobs: list[Contender],
    machines: Room,
    rounds: int,
    fairness: Fairness = "max-min-fairness",
    *,
    lasts: int = 1,
    arrives: Mapping[str, int] = MappingProxyType({}),
) -> tuple[np.ndarray, np.ndarray, list[dict[str, int]]]:
    """(shares of the first plan, the part of the time that each job had of each way, who ran in each round). A turn
    `lasts` so many rounds at least; a job `arrives` in a round, by default in the first."""
    had: list[list[tuple[int, int]]] = []
    planned = np.zeros(0)
    assigned: list[dict[str, int]] = []
    for number in range(rounds):
        window = had[-WINDOW:]
        now = []
        for index, each in enumerate(jobs):
            age = number - arrives.get(each.job_id, 0)
            if age < 0:
                continue
            had_s = np.array([ROUND_S * sum((index, way) in run for run in window) for way in range(len(each.rate))])
            ran = [at for at, run in enumerate(had) if any(index == who for who, _ in run)]
            turn = next((count for count in range(number) if number - 1 - count not in ran), number)
            waited_s = ROUND_S * (number - 1 - ran[-1] if ran else age)
            known = replace(
                each,
                had_s=had_s,
                there_s=ROUND_S * min(age, WINDOW),
                waited_s=waited_s,
                age_s=ROUND_S * age,
                holds=assigned[-1][each.job_id] if turn else None,
                keeps=0 < turn < lasts,
            )
            now.append(known)
        shares = fair_shares(now, machines, fairness)
        planned = shares if len(now) == len(jobs) and not planned.size else planned
        assigned.append(dict(turns(now, shares, machines, ROUND_S)))
        had.append(
            [(index, assigned[-1][each.job_id]) for index, each in enumerate(jobs) if each.job_id in assigned[-1]]
        )
    time = np.array([[sum((i, w) in run for run in had) for w in range(len(jobs[0].rate))] for i in range(len(jobs))])
    return planned, time / rounds, assigned


def test_thirty_jobs_share_four_machines_evenly() -> None:
    shares, had, _ = played([job(f"j{n:02}", 1.0) for n in range(30)], room(4), 60)
    assert np.allclose(shares.sum(axis=1), 4 / 30)
    assert np.abs(had - shares).max() < 0.02


@pytest.mark.parametrize("fairness", ["max-min-fairness", "finish-time-fairness"])
def test_jobs_have_their_shares_of_each_kind_of_machine(fairness: Fairness) -> None:
    """Who gains most from the fast machines has more of them."""
    jobs = [job(f"j{n}", 1.0, 4.0 if n < 4 else 1.2) for n in range(10)]
    shares, had, _ = played(jobs, room(2, 2), 200, fairness)
    assert np.abs(had.sum(axis=1) - shares.sum(axis=1)).max() < 0.05
    assert had[:4, 1].mean() > had[4:, 1].mean()


def test_a_job_of_twice_the_weight_has_twice_the_time() -> None:
    jobs = [replace(job("a", 1.0), weight=2.0), job("b", 1.0), job("c", 1.0)]
    shares, had, _ = played(jobs, room(1), 80)
    assert np.allclose(shares.sum(axis=1), [0.5, 0.25, 0.25])
    assert np.abs(had - shares).max() < 0.03


def test_where_there_are_machines_for_all_everybody_keeps_its_own() -> None:
    jobs = [job("a", 1.0, 1.0, holds=0), job("b", 1.0, 1.0, holds=1), job("c", 1.0, 1.0, holds=1)]
    assert next_turns(jobs, room(1, 2)) == {"a": 0, "b": 1, "c": 1}


def test_who_has_just_begun_keeps_its_turn() -> None:
    jobs = [job("a", 1.0, holds=0, keeps=True), job("b", 1.0)]
    tired = replace(jobs[0], had_s=np.array([3000.0]), there_s=3000.0)
    assert next_turns([tired, jobs[1]], room(1)) == {"a": 0}
    assert next_turns([replace(tired, keeps=False), jobs[1]], room(1)) == {"b": 0}


def test_a_gang_has_its_turn_whole() -> None:
    jobs = [job("gang", 1.0, takes=3), *(job(f"j{n}", 1.0) for n in range(4))]
    shares, had, assigned = played(jobs, room(4), 80)
    assert all(("gang" not in each) or len(each) <= 2 for each in assigned)
    assert abs(had[0].sum() - shares[0].sum()) < 0.05


def test_jobs_of_one_machine_whose_turns_end_at_different_times_do_not_starve_a_gang() -> None:
    jobs = [job(name, 1.0) for name in "abcd"] + [job("gang", 1.0, takes=2)]
    _, had, assigned = played(jobs, room(2), 40, lasts=2, arrives={"b": 1, "c": 1, "d": 1, "gang": 2})
    assert had[4].sum() > 0.1
    assert sum(len(each) < 2 and "gang" not in each for each in assigned[2:]) == 0, "a machine was idle"
    assert had[:4].sum(axis=1).min() > 0.1


@pytest.mark.parametrize(("takes", "machines"), [((2, 1), 2), ((2, 2), 3), ((3, 2), 4), ((2, 2, 1), 3), ((2, 1, 1), 2)])
def test_the_part_that_is_reported_is_the_one_that_whole_machines_allow(takes: tuple[int, ...], machines: int) -> None:
    jobs = [job(f"j{number}", 1.0, takes=count) for number, count in enumerate(takes)]
    shares, had, _ = played(jobs, room(machines), 30)
    assigned = in_whole_machines(shares, np.array(takes, dtype=float), room(machines))
    assert np.abs(assigned - had.sum(axis=1)).max() < 0.05


def test_who_is_next_and_needs_two_machines_waits_only_for_turns_that_are_not_over() -> None:
    kept, over = (
        job("kept", 1.0, holds=0, keeps=True, there_s=600.0),
        job("over", 1.0, holds=0, had_s=np.array([600.0])),
    )
    gang, single = job("gang", 1.0, takes=2, waited_s=9000.0), job("single", 1.0, waited_s=60.0)
    assert next_turns([kept, single, gang], room(2)) == {"kept": 0}, "one is left for the gang"
    assert next_turns([kept, over, single, gang], room(2)) == {"kept": 0, "over": 0}, "it need not be idle until then"
    assert next_turns([kept, single, gang], room(3)) == {"kept": 0, "gang": 0}
    assert next_turns([replace(kept, keeps=False), over, single, gang], room(2)) == {"gang": 0}
    assert next_turns([kept, single, replace(gang, waited_s=0.0, had_s=np.array([9000.0]))], room(2)) == {
        "kept": 0,
        "single": 0,
    }


@settings(max_examples=10)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.floats(0.1, 10), st.floats(0.1, 10)), min_size=2, max_size=6),
    st.integers(3, 5),
    st.integers(0, 3),
    st.sampled_from(["max-min-fairness", "finish-time-fairness"]),
    st.integers(1, 3),
)
def test_whatever_there_is_nobody_starves_and_no_limit_is_passed(
    drawn: list[tuple[int, float, float]], some: int, more: int, fairness: Fairness, lasts: int
) -> None:
    limits = Room(np.array([[1.0, 0], [0, 1], [1, 1]]), np.array([some, more, some], dtype=float))
    jobs = [
        job(f"j{n}", slow, fast if takes <= more else 0.0, takes=takes) for n, (takes, slow, fast) in enumerate(drawn)
    ]
    arrives = {each.job_id: number % lasts for number, each in enumerate(jobs)}
    shares, had, assigned = played(jobs, limits, 4 * WINDOW, fairness, lasts=lasts, arrives=arrives)
    assert (shares.sum(axis=1) > 0).all()
    for each in assigned:
        used = np.zeros(2)
        for name, way in each.items():
            used[way] += jobs[int(name[1:])].takes
        assert (limits.each @ used <= limits.most).all()
    assert (had.sum(axis=1) > 0).all(), "somebody never had a turn"
