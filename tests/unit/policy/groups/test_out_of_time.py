"""When the time is up: the best certified answer by then, said to be cut off; none without a certificate that holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import highspy
import numpy as np
import pytest

from orchestrator.errors import LimitError
from orchestrator.policy.groups import (
    Allocation,
    Collection,
    Program,
    Supply,
    collection,
    engine,
    linear,
    solve,
    verify,
)
from orchestrator.policy.groups.decomposed import solve_decomposed
from orchestrator.policy.groups.exact import solve_exactly
from orchestrator.policy.groups.linear import OutOfTime
from orchestrator.policy.groups.policies.cost import least_cost, on_time
from orchestrator.policy.groups.policies.fairness import max_min_fairness
from orchestrator.policy.groups.policies.finishing import finish_time_fairness, makespan
from orchestrator.policy.groups.time_limit import TimeLimit
from tests.unit.policy.groups.test_decomposed import different

Policy = Callable[[Collection], Program]
RUN_S = 1000.0
"""How long each run of the solver seems to take where it is `slow`."""


class Solver:
    """The real one, which stops after so many iterations, and then says that its time is up. Each run of it seems to
    take RUN_S."""

    def __init__(self, engine: Any, iterations: int) -> None:
        self._engine, self._runs = engine, 0
        for option in ("ipm_iteration_limit", "simplex_iteration_limit"):
            engine.setOptionValue(option, iterations)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def run(self) -> None:
        self._runs += 1
        self._engine.run()

    def getRunTime(self) -> float:
        return self._runs * RUN_S

    def getModelStatus(self) -> Any:
        status = self._engine.getModelStatus()
        stopped = status == highspy.HighsModelStatus.kIterationLimit
        return highspy.HighsModelStatus.kTimeLimit if stopped else status


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_off(monkeypatch, 10**6)


def cut_off(monkeypatch: pytest.MonkeyPatch, iterations: int) -> None:
    made = linear._engine
    monkeypatch.setattr(linear, "_engine", lambda *given: Solver(made(*given), iterations))


def runs(number: int) -> TimeLimit:
    """A limit that is over after so many runs of a slow solver."""
    return TimeLimit((number - 0.5) * RUN_S)


def test_what_a_part_of_the_time_spends_is_spent_of_the_whole() -> None:
    limit = TimeLimit(20.0)
    part = limit.part(0.75)
    part.spend(16.0)
    assert (limit.left_s, part.left_s, limit.part(0.5).left_s) == (4.0, 0.0, 2.0)
    limit.part(0.5).spend(9.0)
    assert limit.left_s == 0.0


def in_classes() -> Program:
    """Jobs of two kinds, with different work: an earliest end that takes the exact engine several programs."""
    chance = np.random.default_rng(2)
    rate = np.array([[1.0, 3.0], [2.0, 2.5]])[chance.integers(0, 2, 40)]
    return makespan(collection(rate, Supply(np.array([9.0, 4.0]), np.ones(2)), steps=chance.uniform(30, 90, 40)))


def outcomes(answer: Callable[[TimeLimit], Allocation], program: Program, numbers: Iterable[int]) -> list[Allocation]:
    """The answers after so many runs of the solver each, all verified, with bounds that hold."""
    best = solve_exactly(program, until=runs(99)).certificates[0].value
    sign, found = 1 if program.terms[0].most else -1, list[Allocation]()
    for number in numbers:
        with suppress(OutOfTime):
            found.append(answer(runs(number)))
    for each in found:
        verify(program, each)
        (certificate,) = each.certificates
        assert sign * certificate.value <= sign * best + 1e-6 * best
        assert sign * certificate.bound >= sign * best - 1e-6 * best
    return found


@pytest.mark.usefixtures("slow")
def test_the_exact_engine_ends_with_its_last_program() -> None:
    program = in_classes()
    found = outcomes(lambda until: solve_exactly(program, until=until), program, range(3, 8))
    assert [each.in_time for each in found] == [False, False, False, False, True]
    gaps = [each.certificates[0].gap for each in found]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[0] > 1 > gaps[1] > 1e-3


@pytest.mark.parametrize("policy", [max_min_fairness, finish_time_fairness])
@pytest.mark.usefixtures("slow")
def test_a_large_ratio_ends_with_what_its_groups_have_and_more_time_is_better(policy: Policy) -> None:
    program = policy(different(500))
    found = outcomes(lambda until: solve_decomposed(program, until=until), program, (1, 8, 9, 99))
    gaps = [each.certificates[0].gap for each in found]
    assert gaps == sorted(gaps, reverse=True)
    assert (found[0].in_time, found[-1].in_time) == (False, True)
    assert gaps[0] > 0.05


@pytest.mark.usefixtures("slow")
def test_a_large_total_ends_with_its_last_round() -> None:
    program = least_cost(different(2000))
    never = -1.0  # no gap is good enough
    found = outcomes(lambda until: solve_decomposed(program, gap=never, until=until), program, (7, 8, 99))
    assert [each.in_time for each in found] == [False, True]  # and nothing after 7, of which no round was for all
    assert 1e-6 < found[0].certificates[0].gap < 1e-3
    assert found[1].certificates[0].gap < 1e-12


def test_a_large_ratio_with_deadlines_is_solved_exactly_if_its_scale_would_break_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = different(500)
    program = replace(max_min_fairness(jobs), at_least=on_time(jobs) * 0.8)
    assert not solve_decomposed(program).in_time
    monkeypatch.setattr(engine, "LARGE", 0)
    found = solve(program)
    assert (found.in_time, found.certificates[0].gap < 1e-6) == (True, True)


def test_each_engine_has_its_part_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is large is decomposed first; and the best of both answers is kept."""
    program, asked = max_min_fairness(different(300)), list[str]()
    for name in ("solve_exactly", "solve_decomposed"):
        real = getattr(engine, name)

        def noted(*given: Any, name: str = name, real: Any = real, **named: Any) -> Allocation:
            asked.append(name)
            return replace(real(*given, **{**named, "until": TimeLimit()}), in_time=False)

        monkeypatch.setattr(engine, name, noted)
    for large in (0, 10**9):
        monkeypatch.setattr(engine, "LARGE", large)
        found = solve(program)
        assert (found.in_time, found.certificates[0].gap < 1e-6) == (False, True)
    assert asked == ["solve_decomposed", "solve_exactly", "solve_exactly", "solve_decomposed"]


def test_what_the_interior_point_method_has_at_the_end_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    program = least_cost(different(1400))
    best = solve_exactly(program).certificates[0].value
    cut_off(monkeypatch, 9)
    found = solve_exactly(program)
    verify(program, found)
    assert not found.in_time
    (certificate,) = found.certificates
    assert certificate.bound <= best * (1 + 1e-6) <= certificate.value * (1 + 2e-6)
    assert 1e-6 < certificate.gap < 1.0


def test_where_the_exact_engine_has_nothing_the_other_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    program = least_cost(different(600))

    def nothing(*_: object, until: TimeLimit, **__: object) -> Allocation:
        raise OutOfTime(until)

    monkeypatch.setattr(engine, "solve_exactly", nothing)
    found = solve(program)
    verify(program, found)
    assert (found.in_time, found.certificates[0].gap < 0.01) == (False, True)


@pytest.mark.parametrize("change", ["no certificate", "too fast", "says nothing"])
def test_an_answer_of_which_nothing_is_certain_is_none(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = least_cost(different(300))
    right = replace(solve(program), in_time=False)
    wrong = {
        "no certificate": replace(right, certificates=()),
        "too fast": replace(right, shares=right.shares * 2, times=right.times * 2),
        "says nothing": replace(right, certificates=(replace(right.certificates[0], bound=0.0),)),
    }[change]
    for name in ("solve_exactly", "solve_decomposed"):
        monkeypatch.setattr(engine, name, lambda *_, **__: wrong)
    with pytest.raises(LimitError, match="within 60 s"):
        solve(program)


def test_without_any_time_a_program_whose_limits_bind_has_no_answer() -> None:
    with pytest.raises(LimitError, match="within 0 s"):
        solve(least_cost(different(300)), until=TimeLimit(0.0))


def test_without_any_time_jobs_that_share_no_limit_that_binds_are_planned_all_the_same() -> None:
    chance = np.random.default_rng(0)
    jobs = collection(chance.uniform(1, 2, (30, 8)), Supply(np.full(8, np.inf), chance.uniform(1, 2, 8)))
    program = least_cost(jobs, horizon_s=1.0)
    found, best = solve(program, until=TimeLimit(0.0)), solve(program)
    assert not found.in_time
    assert found.certificates[0].gap < 1e-9
    assert found.certificates[0].value == pytest.approx(best.certificates[0].value)
