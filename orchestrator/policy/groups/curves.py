"""When the time of a class is enough for the needs of its jobs: a few linear conditions, which are exact.

n equal jobs share times X_k (n jobs' worth of time in way k, of rate T_k). No job can be in two ways at once. They can
reach needs r_1..r_n if and only if, for every rate p that a way has, and for p = 0:

    sum_k X_k max(T_k - p, 0)  >=  sum_m max(r_m - p, 0)

This is the condition for preemptive scheduling on uniform machines (Horvath, Lam and Sethi, J. ACM 24, 1977), with the
sums over the k fastest jobs replaced by their conjugates. It makes classes exact also for jobs with different work and
deadlines.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orchestrator.policy.groups.problem import Floats, Integers, Problem, summed


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """The conditions: the class `of` (conditions,) and the rate p, `above` (conditions,), of each.

    `job` and `at`, both (pairs,), are the pairs of a job and a condition in which it counts.
    """

    of: Integers
    above: Floats
    job: Integers
    at: Integers
    copies: Floats | float
    """(pairs,): how many jobs each pair stands for."""

    def asked(self, needs: Floats) -> Floats:
        """(conditions,): the right side for `needs` (jobs,)."""
        more = np.maximum(needs[self.job] - self.above[self.at], 0)
        return summed(self.at, self.copies * more, len(self.of))

    def slope(self, needs: Floats, slopes: Floats) -> Floats:
        """(conditions,): the derivative of `asked`, if the needs have the derivatives `slopes` (jobs,)."""
        counts = needs[self.job] > self.above[self.at]
        return summed(self.at, self.copies * np.where(counts, slopes[self.job], 0.0), len(self.of))


def curves(problem: Problem, *, equal: bool, asking: Floats) -> Curves:
    """The conditions of each class in which some job asks for something (`asking` (jobs,) > 0).

    `equal`: all jobs of each class always need the same; then p = 0 is enough.
    """
    class_of, count = problem.class_of, problem.count
    has = np.bincount(class_of, asking > 0, minlength=len(count)) > 0
    of, above = [np.flatnonzero(has)], [np.zeros(int(has.sum()))]
    if not equal:
        several = np.flatnonzero(has & (count > 1))
        table = problem.rate[several]
        ways = np.argwhere(table > 0)
        _, first = np.unique(np.column_stack([ways[:, 0], table[table > 0]]), axis=0, return_index=True)
        of.append(several[ways[first, 0]])
        above.append(table[table > 0][first])
    condition = np.concatenate(of).astype(np.int64)
    order = np.argsort(class_of, kind="stable")
    members = np.bincount(class_of, minlength=len(count))
    start = np.concatenate([[0], np.cumsum(members)])
    size = members[condition]
    at = np.repeat(np.arange(len(condition)), size)
    within = np.arange(len(at)) - np.repeat(np.cumsum(size) - size, size)
    job = order[np.repeat(start[condition], size) + within]
    return Curves(condition, np.concatenate(above), job, at, 1.0 if problem.copies is None else problem.copies[job])
