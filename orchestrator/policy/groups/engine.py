"""solve: a program to an answer that was verified: it keeps every limit, and its certificate holds."""

from __future__ import annotations

import numpy as np

from orchestrator.policy.groups.decomposed import solve_decomposed
from orchestrator.policy.groups.exact import rates, solve_exactly
from orchestrator.policy.groups.program import Allocation, Program, Ratio

LARGE = 30_000
"""From so many ways of all classes on, a program is decomposed."""
TOLERANCE = 1e-6
"""How much of a limit, a job's time or a need an answer may miss, relatively: ten times the solver's own."""


class Uncertified(AssertionError):
    """An answer breaks a limit, or its certificate does not hold: a defect of the engine. The answer must not be
    used."""


def solve(program: Program, *, gap: float = 5e-3, central: bool = False, limit_s: float = 60.0) -> Allocation:
    """The best answer, exactly; of a large program of jobs that all differ, one within `gap` of the best, certified.

    `central`: where many answers are the best, one in their middle, which spares nobody's time without need.
    Raises InfeasibleError if the limits contradict each other, and LimitError after `limit_s`.
    """
    problem = program.problem
    if problem.pairs is None and len(program.terms) == 1 and np.count_nonzero(problem.rate) > LARGE:
        found = solve_decomposed(program, gap=gap, limit_s=limit_s)
        if found.certificates[0].gap > gap:  # a ratio that limits of some jobs only decide
            found = solve_exactly(program, limit_s=limit_s)
    else:
        found = solve_exactly(program, central=central, limit_s=limit_s)
    verify(program, found)
    return found


def verify(program: Program, found: Allocation) -> None:
    """Raises Uncertified unless every limit is kept and every term has a certificate that it lives up to."""
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
    if program.at_least is not None and (reached < program.at_least * (1 - TOLERANCE) - 1e-12).any():
        raise Uncertified("a job is slower than it must be")
    if len(found.certificates) != len(program.terms):
        raise Uncertified("a term has no certificate")
    for term, certificate in zip(program.terms, found.certificates, strict=True):
        size = max(abs(certificate.bound), abs(certificate.value), 1e-9)
        better = (certificate.value - certificate.bound) * (1.0 if term.most else -1.0)
        if not np.isfinite(certificate.bound) or better > TOLERANCE * size:
            raise Uncertified("an answer is better than its bound")
        promised = certificate.value * (1 - TOLERANCE if term.most else 1 + TOLERANCE)
        if isinstance(term, Ratio) and (reached < term.needs.at(promised) * (1 - TOLERANCE) - 1e-12).any():
            raise Uncertified("a job gets less than the certificate says")
