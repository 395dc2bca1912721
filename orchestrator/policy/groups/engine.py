"""solve: finds an answer to a program and verifies it: the answer keeps every limit, and its certificate holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from orchestrator.errors import LimitError
from orchestrator.policy.groups.decomposed import solve_decomposed
from orchestrator.policy.groups.exact import rates, solve_exactly
from orchestrator.policy.groups.linear import Contradiction, Flags, OutOfTime
from orchestrator.policy.groups.problem import Floats
from orchestrator.policy.groups.program import Allocation, Program, Ratio
from orchestrator.policy.groups.time_limit import TimeLimit

LARGE = 30_000
"""A program with more (class, way) combinations than this is decomposed."""
TOLERANCE = 1e-6
"""By how much, relatively, an answer may miss a limit, a job's time or a need: ten times the solver's own tolerance."""

FIRST = 0.75
"""The part of the time for the engine that fits the program. The rest is for the other engine, if the first answer is
not good enough."""
TELLING = 1.0
"""An answer that was cut off and whose relative gap is larger than this is discarded: most answers have such a gap from
the start."""


class Uncertified(LimitError):
    """An answer breaks a limit, or its certificate does not hold: a defect of the engine. The answer must not be used.
    Exit code 9."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"the solver's plan could not be verified: {why}",
            hint="plan jobs of very different sizes in separate groups",
        )


def solve(program: Program, *, gap: float = 5e-3, central: bool = False, until: TimeLimit | None = None) -> Allocation:
    """The best answer, exactly; for a large program of jobs that all differ, a certified answer within `gap` of the
    best.

    `central`: if several answers are the best, return one in their middle, which does not cut any job's time
    unnecessarily. When the time of `until` is up, the better answer of the two engines is returned; it is not
    `in_time`, but its certificate holds. Raises InfeasibleError if the limits contradict each other, and LimitError if
    the time is up and no answer has a meaningful certificate.
    """
    until, problem = TimeLimit() if until is None else until, program.problem
    exactly = partial(solve_exactly, program, central=central)
    if problem.pairs is not None or len(program.terms) > 1:
        whole = _answer(program, exactly, until)
        if whole is None:
            raise OutOfTime(until)
        return whole
    decomposed = partial(solve_decomposed, program, gap=gap)
    large = np.count_nonzero(problem.rate) > LARGE
    answers, refused, stopped = list[Allocation](), None, False
    # The second engine is used if the first answer is not good enough: a large ratio may be too far from its bound if
    # limits of only some jobs decide it, and an exact answer if rates or weights differ by many orders of magnitude.
    first, second = (decomposed, exactly) if large else (exactly, decomposed)
    for engine, time in ((first, until.part(FIRST)), (second, until)):
        try:
            found = _answer(program, engine, time)
        except Contradiction:
            if not answers:
                raise
            break
        except Uncertified as error:
            refused = error
            continue
        stopped |= engine is exactly and (found is None or not found.in_time)
        if found is not None:
            answers.append(found)
            if _good(found, gap) and not stopped:
                return found
    if answers:
        return replace(min(answers, key=lambda each: each.certificates[0].gap), in_time=False)
    raise OutOfTime(until) if refused is None else refused


def _good(found: Allocation, gap: float) -> bool:
    """Whether an answer was not cut off and is within `gap` of its bound."""
    return found.in_time and found.certificates[0].gap <= max(gap, TOLERANCE)


def _answer(program: Program, engine: Callable[..., Allocation], until: TimeLimit) -> Allocation | None:
    """The verified answer of an engine; None if its time is up and it has no answer that can be verified."""
    try:
        found = engine(until=until)
    except OutOfTime:
        return None
    try:
        verify(program, found)
    except Uncertified:
        if found.in_time:
            raise
        return None
    tells = found.in_time or all(each.gap <= TELLING for each in found.certificates)
    return found if tells else None


def verify(program: Program, found: Allocation) -> None:
    """Raises Uncertified unless the answer keeps every limit and every term has a certificate that the answer
    fulfils."""
    problem = program.problem
    used, most = problem.used(found.times, found.together), problem.most
    over = used > most + TOLERANCE * np.maximum(np.abs(most), 1.0)
    if over.any():
        raise Uncertified(f"{problem.names[int(np.argmax(over))]} is exceeded")
    per_class = np.zeros(found.times.shape)
    copies = 1.0 if problem.copies is None else problem.copies[:, None]
    np.add.at(per_class, problem.class_of, copies * found.shares)
    count = problem.count
    if (np.abs(per_class - found.times) > TOLERANCE * np.maximum(count, 1)[:, None]).any():
        raise Uncertified("the jobs' shares do not add up to those of their classes")
    time = per_class.sum(axis=1)
    if problem.pairs is not None:
        np.add.at(time, problem.pairs.first, found.together)
        np.add.at(time, problem.pairs.second, found.together)
    if (time > count * (1 + TOLERANCE)).any() or (found.shares.sum(axis=1) > 1 + TOLERANCE).any():
        raise Uncertified("a job has more time than there is")
    if (found.shares < -TOLERANCE).any() or (found.together < -TOLERANCE).any():
        raise Uncertified("a share is negative")
    reached = rates(problem, found.shares, found.together)
    if program.at_least is not None and _slower(reached, program.at_least).any():
        raise Uncertified("a job is slower than required")
    if len(found.certificates) != len(program.terms):
        raise Uncertified("a term has no certificate")
    for term, certificate in zip(program.terms, found.certificates, strict=True):
        size = max(abs(certificate.bound), abs(certificate.value), 1e-9)
        better = (certificate.value - certificate.bound) * (1.0 if term.most else -1.0)
        if not np.isfinite(certificate.bound) or better > TOLERANCE * size:
            raise Uncertified("an answer is better than its bound")
        promised = certificate.value * (1 - TOLERANCE if term.most else 1 + TOLERANCE)
        if isinstance(term, Ratio) and _slower(reached, term.needs.at(promised)).any():
            raise Uncertified("a job gets less than the certificate says")


def _slower(reached: Floats, needs: Floats) -> Flags:
    """(jobs,): whether a job lacks part of what it needs. A job that needs nothing lacks nothing, even if the solver's
    rounding errors put its time slightly below zero."""
    found: Flags = (needs > 0) & (reached < needs * (1 - TOLERANCE) - 1e-12)
    return found
