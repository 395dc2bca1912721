"""How fast each job must be, in steps/s: fixed, or as a function of a single number z that the policy optimizes.

All these functions are convex in z. So their tangents never ask for more than the functions do, and a program that uses
the tangents bounds the true one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from orchestrator.policy.groups.problem import Floats, Integers

ALL = slice(None)


class Needs(Protocol):
    """The needs of all jobs as a function of `z`. If `rising`, needs grow with z, and z is to be large; otherwise z is
    to be small."""

    @property
    def rising(self) -> bool:
        """Whether needs grow with z."""
        ...

    @property
    def linear(self) -> bool:
        """Whether needs are linear in z."""
        ...

    def at(self, z: float) -> Floats:
        """(jobs,): steps/s; infinite where no rate is enough."""
        ...

    def slope(self, z: float) -> Floats:
        """(jobs,): the derivative of `at`."""
        ...

    def reached(self, rates: Floats, jobs: Integers | slice = ALL) -> float:
        """The best z for which these rates are enough for `jobs`."""
        ...


@dataclass(frozen=True, slots=True)
class Proportional:
    """Job m needs z x `unit`[m]: z is the smallest ratio of a job's rate to its unit. A job with a unit of 0 needs
    nothing."""

    unit: Floats
    base: Floats | None = None
    """(jobs,): if given, each job needs this much in addition."""
    rising: bool = True
    linear: bool = True

    def at(self, z: float) -> Floats:
        """(jobs,): steps/s."""
        return z * self.unit if self.base is None else self.base + z * self.unit

    def slope(self, z: float) -> Floats:  # noqa: ARG002
        """(jobs,): the derivative of `at`."""
        return self.unit

    def reached(self, rates: Floats, jobs: Integers | slice = ALL) -> float:
        """The smallest ratio."""
        unit, more = self.unit[jobs], rates if self.base is None else rates - self.base[jobs]
        asks = unit > 0
        return float((more[asks] / unit[asks]).min()) if asks.any() else np.inf


@dataclass(frozen=True, slots=True)
class Finishing:
    """Job m must end within z x `alone_s`[m] seconds of its arrival. It is `age_s` old and has `steps` left.

    With an age of 0 and an `alone_s` of 1, z is the time in which all jobs end. Otherwise z is that of finish-time
    fairness (Themis, Mahajan et al., NSDI 2020, section 3): `alone_s` is how long the job would take with an equal part
    of everything.
    """

    steps: Floats
    age_s: Floats
    alone_s: Floats
    rising: bool = False
    linear: bool = False

    def at(self, z: float) -> Floats:
        """(jobs,): steps/s; infinite where the time has passed."""
        left = z * self.alone_s - self.age_s
        with np.errstate(divide="ignore"):
            return np.where(self.steps <= 0, 0.0, np.where(left > 0, self.steps / np.maximum(left, 1e-300), np.inf))

    def slope(self, z: float) -> Floats:
        """(jobs,): the derivative of `at`."""
        left = np.maximum(z * self.alone_s - self.age_s, 1e-300)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.steps <= 0, 0.0, -self.steps * self.alone_s / left**2)

    def reached(self, rates: Floats, jobs: Integers | slice = ALL) -> float:
        """The largest ratio of a job's time to its time alone; infinite if a job with work left does not run."""
        steps, age_s, alone_s = self.steps[jobs], self.age_s[jobs], self.alone_s[jobs]
        asks = steps > 0
        if not asks.any():
            return 0.0
        with np.errstate(divide="ignore"):
            return float(((age_s[asks] + steps[asks] / rates[asks]) / alone_s[asks]).max())


@dataclass(frozen=True, slots=True)
class WithFloor:
    """`needs`, but never less than `floor` (jobs,) steps/s."""

    needs: Needs
    floor: Floats

    @property
    def rising(self) -> bool:
        """Whether needs grow with z."""
        return self.needs.rising

    @property
    def linear(self) -> bool:
        """Whether needs are linear in z."""
        return self.needs.linear and not self.floor.any()

    def at(self, z: float) -> Floats:
        """(jobs,): steps/s."""
        return np.maximum(self.needs.at(z), self.floor)

    def slope(self, z: float) -> Floats:
        """(jobs,): the derivative of `at`."""
        return np.where(self.needs.at(z) >= self.floor, self.needs.slope(z), 0.0)

    def reached(self, rates: Floats, jobs: Integers | slice = ALL) -> float:
        """The best z for which these rates are enough for `jobs`, without the floor."""
        return self.needs.reached(rates, jobs)


@dataclass(frozen=True, slots=True)
class Some:
    """The needs of some of the jobs, those with the numbers `jobs`."""

    needs: Needs
    jobs: Integers

    @property
    def rising(self) -> bool:
        """Whether needs grow with z."""
        return self.needs.rising

    @property
    def linear(self) -> bool:
        """Whether needs are linear in z."""
        return self.needs.linear

    def at(self, z: float) -> Floats:
        """(jobs,): steps/s."""
        return self.needs.at(z)[self.jobs]

    def slope(self, z: float) -> Floats:
        """(jobs,): the derivative of `at`."""
        return self.needs.slope(z)[self.jobs]

    def reached(self, rates: Floats, jobs: Integers | slice = ALL) -> float:
        """The best z for which these rates are enough for `jobs`, which are numbered among the jobs of this object."""
        return self.needs.reached(rates, self.jobs[jobs])
