"""Programs, which say what a policy asks for, as terms in order of importance; and answers, with their certificates."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.policy.groups.needs import Needs
from orchestrator.policy.groups.problem import Floats, Problem


@dataclass(frozen=True, slots=True)
class Total:
    """The sum of `value` (classes, ways) x time, and of `of_pairs` (pairs,) x time together. If `most`, it is
    maximized, else minimized."""

    value: Floats
    most: bool
    of_pairs: Floats | None = None


@dataclass(frozen=True, slots=True)
class Ratio:
    """The number z of `needs`. It is maximized if the needs rise with z, else minimized."""

    needs: Needs

    @property
    def most(self) -> bool:
        """Whether z is to be large."""
        return self.needs.rising


@dataclass(frozen=True, slots=True)
class Program:
    """Share time so that every job is at least as fast as `at_least` (jobs,) and each term is optimal, given the optima
    of the terms before it."""

    problem: Problem
    terms: tuple[Total | Ratio, ...]
    at_least: Floats | None = None


@dataclass(frozen=True, slots=True)
class Certificate:
    """`value` is what the answer reaches; `bound` is what no answer can exceed (or fall below, if less is better).

    `prices` (limits,): what one more unit of each limit is worth, in the term's unit. `weights`: the multiplier of each
    need. certificate.py shows how to recompute `bound` from them.
    """

    value: float
    bound: float
    prices: Floats
    weights: Floats

    @property
    def gap(self) -> float:
        """The largest possible distance of the value from the best one, relative to the bound."""
        return abs(self.value - self.bound) / max(abs(self.bound), 1e-12)


@dataclass(frozen=True, slots=True)
class Allocation:
    """An answer, with one certificate for each term.

    - `times` (classes, ways): the part of time that the jobs of a class spend in each way, summed over the jobs.
    - `together` (pairs,): the same for pairs.
    - `shares` (jobs, ways): each job's own part of time, without pairs.
    - `rates` (jobs,): steps/s of each job.
    - `in_time`: if False, the solver was cut off, and this is its best answer by then; the certificates say how good it
      is.
    """

    times: Floats
    together: Floats
    shares: Floats
    rates: Floats
    certificates: tuple[Certificate, ...]
    in_time: bool = True
