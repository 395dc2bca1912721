"""Whose turn it is to be decided about: few at a time, those in need first, nobody forgotten."""

from __future__ import annotations

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.migration.turns import AT_ONCE, FOR_OTHERS, Turns

JOBS = [f"job_{number:03}" for number in range(100)]


def test_a_few_jobs_are_decided_about_at_once() -> None:
    turns = Turns()
    turns.ask(JOBS[:AT_ONCE])
    assert turns.take(JOBS, JOBS, JOBS) == JOBS[:AT_ONCE]
    assert not turns.waiting


def test_jobs_that_need_no_machine_are_fewer_since_they_can_wait() -> None:
    turns = Turns()
    turns.ask(JOBS)
    assert turns.take(JOBS, (), JOBS) == JOBS[:FOR_OTHERS]
    assert len(turns.take(JOBS, JOBS[50:], JOBS)) == AT_ONCE
    assert turns.waiting


def test_many_jobs_are_decided_about_in_turn_and_each_once() -> None:
    turns = Turns()
    turns.ask(JOBS)
    taken = []
    while turns.waiting:
        taken.append(turns.take(JOBS, (), JOBS))
    assert all(len(each) <= AT_ONCE for each in taken)
    assert sorted(chain(*taken)) == JOBS


def test_jobs_that_need_a_machine_come_first() -> None:
    turns = Turns()
    turns.ask(JOBS)
    assert {JOBS[70], JOBS[90]} <= {*turns.take(JOBS, {JOBS[70], JOBS[90]}, JOBS)}


def test_a_job_that_newly_needs_a_machine_comes_before_those_that_were_decided_about_in_vain() -> None:
    turns, in_vain = Turns(), JOBS[: 3 * AT_ONCE]
    for _ in range(3):
        turns.ask(in_vain)
        turns.take(JOBS, in_vain, JOBS)
    turns.ask([*in_vain, JOBS[99]])
    assert JOBS[99] in turns.take(JOBS, [*in_vain, JOBS[99]], JOBS)


def test_a_job_that_loses_its_machine_does_not_wait_behind_those_that_wait_in_vain() -> None:
    turns, in_vain, lost = Turns(), JOBS[:90], JOBS[99]
    turns.ask(JOBS)
    while turns.waiting:
        turns.take(JOBS, in_vain, JOBS)
    turns.ask([lost])
    assert turns.take(JOBS, in_vain, JOBS) == [lost]  # it had the last turn of all
    turns.ask([*in_vain, lost])
    assert lost in turns.take(JOBS, [*in_vain, lost], JOBS)
    turns.ask([*in_vain, lost])
    assert lost not in turns.take(JOBS, [*in_vain, lost], JOBS)


def test_jobs_with_notice_are_decided_about_one_in_each_tick_until_they_have_a_place() -> None:
    turns, in_vain, leaving = Turns(), JOBS[:90], JOBS[90:]
    for number in range(20):
        turns.ask(JOBS)
        taken = turns.take(JOBS, JOBS, JOBS, leaving)
        assert leaving[number % len(leaving)] in taken
        assert not {*in_vain}.isdisjoint(taken)


def test_of_many_jobs_that_wait_a_few_are_asked_for_again_in_turn_and_new_ones_first() -> None:
    turns, waiting, new = Turns(), JOBS[:99], JOBS[99]
    for number in range(33):
        turns.ask_again(waiting, 3)
        assert turns.take(JOBS, JOBS, JOBS) == waiting[3 * number : 3 * number + 3]
    turns.ask_again(JOBS, 3)
    assert turns.take(JOBS, JOBS, JOBS) == [*waiting[:2], new]
    turns.ask_again([], 3)
    assert not turns.waiting


def test_jobs_that_cannot_be_decided_about_do_not_keep_others_from_being_asked_for_again() -> None:
    turns, able = Turns(), JOBS[50:]
    taken = []
    for _ in range(40):
        turns.ask_again(JOBS, 3)
        taken += turns.take(able, able, JOBS)
    assert {*taken} == {*able}


def test_a_job_about_which_no_decision_was_possible_does_not_wait_for_a_whole_round() -> None:
    turns, lost = Turns(), JOBS[99]
    for _ in range(40):
        turns.ask_again(JOBS, 3)
        turns.take(JOBS, JOBS, JOBS)
    turns.ask([lost])
    assert turns.take(JOBS[:99], JOBS, JOBS) == []
    turns.ask_again(JOBS, 3)
    turns.take(JOBS[:99], JOBS, JOBS)
    turns.ask_again(JOBS, 1)
    assert lost in turns.take(JOBS, JOBS, JOBS)
    turns.ask_again(JOBS, 1)
    assert lost not in turns.take(JOBS, JOBS, JOBS)


def test_jobs_that_ended_lose_their_turn() -> None:
    turns = Turns()
    turns.ask(JOBS)
    assert turns.take(JOBS[:3], JOBS[:3], JOBS[:3]) == JOBS[:3]
    assert not turns.waiting


def test_jobs_whose_machines_are_refused_at_once_let_the_others_have_their_turn() -> None:
    turns, refused, patient = Turns(), JOBS[:30], JOBS[99]
    turns.ask([patient])
    assert turns.take([patient], [patient], JOBS) == [patient]
    starting: list[str] = []  # those that were decided about last: a launch is under way
    decided: list[str] = []
    while patient not in decided:
        able = [each for each in (*refused, patient) if each not in starting]
        turns.ask(able)
        starting = turns.take(able, able, (*refused, patient))
        decided += starting
        assert len(decided) <= 2 * len(refused)


@given(
    st.lists(st.sets(st.sampled_from(JOBS)), min_size=1, max_size=30),
    st.sets(st.sampled_from(JOBS)),
    st.sets(st.sampled_from(JOBS)),
)
def test_no_job_starves_however_often_all_ask_and_others_need_a_machine(
    asking: list[set[str]], in_need: set[str], leaving: set[str]
) -> None:
    turns = Turns()
    waited = dict.fromkeys(JOBS, 0)
    for number in range(200):
        turns.ask(JOBS if number % 2 else asking[number % len(asking)] | {*JOBS})
        taken = turns.take(JOBS, in_need, JOBS, leaving & in_need)
        waited = {job_id: 0 if job_id in taken else ticks + 1 for job_id, ticks in waited.items()}
        assert max(waited.values()) <= len(JOBS) / FOR_OTHERS
