"""A collection of jobs and the supply that they share: the input of every policy.

A *way* is one kind of GPU, or one offer of the market. Supply is a fixed cluster (a number of GPUs of each way), an
elastic market (prices, with or without quotas), or both.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from orchestrator.errors import InfeasibleError
from orchestrator.policy.groups.problem import Floats, Integers, Limits, Pairs, Problem, alike


@dataclass(frozen=True, slots=True)
class Supply:
    """`gpus` (ways,): how many there are, infinite if unlimited; `usd_per_h` (ways,): the price of one."""

    gpus: Floats
    usd_per_h: Floats


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit for all jobs together: at most `most` units over the ways in `ways`.

    `each`, as long as `ways`: how many units of the quota one GPU of a way takes; None: one.
    """

    name: str
    ways: Integers
    most: float
    each: Floats | None = None


@dataclass(frozen=True, slots=True)
class Budgets:
    """Each budget allows at most `usd_per_h` (budgets,) for its jobs. `of` (jobs,): the budget of each job, -1 for
    none."""

    names: tuple[str, ...]
    usd_per_h: Floats
    of: Integers


@dataclass(frozen=True, slots=True)
class Together:
    """Measured space sharing: a job of kind `first` and one of kind `second` on the same GPUs, in way `way`.

    All arrays have shape (measurements,), with each combination once; rates are in steps/s. Only jobs of equal size
    share, and a pair uses the GPUs of one of them.
    """

    first: Integers
    second: Integers
    way: Integers
    rate_first: Floats
    rate_second: Floats


@dataclass(frozen=True, slots=True)
class Collection:
    """Jobs, one row each, and their supply.

    - `rate` (jobs, ways): steps/s, 0 where a job cannot run.
    - `gpus` (jobs,): how many GPUs the job takes at once.
    - `steps` (jobs,): steps left.
    - `weight` (jobs,): how much of an even share the job is entitled to.
    - `age_s` (jobs,): seconds since the job arrived.
    - `alone_s` (jobs,): how long the steps done so far would have taken with an equal part of everything.
    - `deadline_s` (jobs,): from now, infinite for none.
    - `kind` (jobs,): the job's kind in `together`.
    - `start_s` (jobs, ways): how long the job's next start takes in a way, 0 if it need not start. None: starts are not
      counted.
    - `after_s` (jobs,): the duration of the jobs that can only start when the job has ended. None: there are no such
      jobs.
    """

    rate: Floats
    gpus: Floats
    supply: Supply
    steps: Floats
    weight: Floats
    age_s: Floats
    alone_s: Floats
    deadline_s: Floats
    quotas: tuple[Quota, ...] = ()
    budgets: Budgets | None = None
    kind: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    together: Together | None = None
    start_s: Floats | None = None
    after_s: Floats | None = None

    def __len__(self) -> int:
        return len(self.rate)

    @property
    def usd_per_h(self) -> Floats:
        """(jobs, ways): what a job costs per hour while it runs in a way."""
        found: Floats = self.gpus[:, None] * self.supply.usd_per_h
        return found

    @property
    def usd_per_h_started(self) -> Floats:
        """(jobs, ways): as `usd_per_h`, plus the cost of a start, spread over the time that all of the job's steps take
        in the way.

        So a job pays for one start in all: in each of its ways, for the part of a start that equals the part of its
        steps done there.
        """
        if self.start_s is None:
            return self.usd_per_h
        with np.errstate(divide="ignore", invalid="ignore"):
            per_work = np.where(self.steps[:, None] > 0, self.start_s * self.rate / self.steps[:, None], 0.0)
        found: Floats = self.usd_per_h * (1 + per_work)
        return found

    @property
    def limits(self) -> list[tuple[Integers, Floats, float]]:
        """(ways, units that one GPU of each takes, the most) of every limit: first those of single ways, then the
        quotas."""
        gpus = self.supply.gpus
        of_ways = [
            (np.array([way]), np.ones(1), float(gpus[way])) for way in np.flatnonzero(np.isfinite(gpus)).tolist()
        ]
        return of_ways + [
            (quota.ways, np.ones(len(quota.ways)) if quota.each is None else quota.each, quota.most)
            for quota in self.quotas
        ]

    def with_starts(self, begins_s: Floats) -> Collection:
        """The collection in which the rates of jobs with deadlines include their starts: a start takes machines as work
        does, and that of the chosen way counts. `begins_s` (jobs,): how much later than now `deadline_s` counts from;
        then it counts from now."""
        if self.start_s is None:
            return self
        due = np.isfinite(self.deadline_s)[:, None]
        steps = self.steps[:, None]
        counts = due & (self.rate > 0) & (self.start_s > 0) & (steps > 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            rate = np.where(counts, steps / (self.start_s + steps / self.rate), self.rate)
        start_s = np.where(due, 0.0, self.start_s)
        return replace(self, rate=rate, start_s=start_s, deadline_s=self.deadline_s + begins_s)

    def agnostic(self) -> Collection:
        """The collection as seen by a policy that does not know how differently models run: all ways in which a job can
        run have the rate of the first of them. The unit of a step becomes what the job does there in a second."""
        able = self.rate > 0
        first = np.take_along_axis(self.rate, able.argmax(axis=1)[:, None], axis=1)[:, 0]
        return replace(self, rate=able.astype(float), steps=self.steps / first)


def collection(
    rate: Floats,
    supply: Supply,
    *,
    gpus: Floats | None = None,
    steps: Floats | None = None,
    weight: Floats | None = None,
    age_s: Floats | None = None,
    alone_s: Floats | None = None,
    deadline_s: Floats | None = None,
    quotas: tuple[Quota, ...] = (),
    budgets: Budgets | None = None,
    kind: Integers | None = None,
    together: Together | None = None,
    start_s: Floats | None = None,
) -> Collection:
    """A collection. Defaults: one GPU, one step, weight 1, age 0, no deadline.

    Raises InfeasibleError if no way can run a job, and ValueError if a weight is not positive.
    """
    jobs = len(rate)
    weight = np.ones(jobs) if weight is None else weight
    if not (weight > 0).all():
        raise ValueError(f"the weight of job {int(np.argmin(weight))} is not positive")
    nowhere = np.flatnonzero(~(rate > 0).any(axis=1))
    if len(nowhere):
        raise InfeasibleError(
            f"no throughput is known for job {nowhere[0]} on any offer", hint="measure it, or declare its throughput"
        )
    return Collection(
        rate,
        np.ones(jobs) if gpus is None else gpus,
        supply,
        np.ones(jobs) if steps is None else steps,
        weight,
        np.zeros(jobs) if age_s is None else age_s,
        np.zeros(jobs) if alone_s is None else alone_s,
        np.full(jobs, np.inf) if deadline_s is None else deadline_s,
        quotas,
        budgets,
        np.zeros(0, dtype=np.int64) if kind is None else kind,
        together,
        start_s,
    )


def problem_of(
    jobs: Collection, *, apart: Floats | None = None, needing: Floats | None = None, usd_per_h: Floats | None = None
) -> tuple[Problem, Integers]:
    """(the problem, the first job of each class).

    Jobs with different values of `apart` (jobs,) or (jobs, any) are in different classes. With space sharing, so are
    jobs that differ in `needing` (jobs,) or (jobs, any), because all jobs of a class must then need the same.
    `usd_per_h` (jobs, ways): what jobs cost, by default only while they run; jobs that differ in it are in different
    classes, too.
    """
    columns: list[Floats | Integers] = [jobs.rate, jobs.gpus]
    columns += [] if apart is None else [apart]
    columns += [] if usd_per_h is None else [usd_per_h]
    if jobs.budgets is not None:
        columns.append(jobs.budgets.of)
    if jobs.together is not None:
        columns.append(jobs.kind)
        columns += [] if needing is None else [needing]
    first, class_of = alike(*columns)
    gpus, ways = jobs.gpus[first][:, None], jobs.rate.shape[1]
    cost = (jobs.usd_per_h if usd_per_h is None else usd_per_h)[first]
    limited = np.flatnonzero(np.isfinite(jobs.supply.gpus))
    at = np.full((1, ways), -1)
    at[0, limited] = np.arange(len(limited))
    limits = [Limits(tuple(f"way {way}" for way in limited), jobs.supply.gpus[limited].astype(float), at, gpus)]
    for quota in jobs.quotas:
        if not np.isfinite(quota.most):
            continue
        inside = np.where(np.isin(np.arange(ways), quota.ways), 0, -1)[None]
        each = np.ones((1, ways))
        if quota.each is not None:
            each[0, quota.ways] = quota.each
        limits.append(Limits((quota.name,), np.array([quota.most], dtype=float), inside, gpus * each))
    if jobs.budgets is not None:
        of = jobs.budgets.of[first][:, None]
        limits.append(Limits(jobs.budgets.names, jobs.budgets.usd_per_h.astype(float), of, cost))
    pairs = None if jobs.together is None else _pairs(jobs, jobs.together, first, class_of)
    return Problem(jobs.rate[first], cost, class_of, tuple(limits), pairs), first


def _pairs(jobs: Collection, together: Together, first: Integers, class_of: Integers) -> Pairs:
    """The pairs of classes, from the pairs of kinds. Both classes must have jobs of equal size; a class is paired with
    itself only if it has two jobs."""
    kind, gpus, count = jobs.kind[first], jobs.gpus[first], np.bincount(class_of)
    order = np.argsort(kind, kind="stable")
    start = np.searchsorted(kind[order], np.arange(int(kind.max(initial=0)) + 2))
    size = np.diff(start)
    known = (together.first < len(size)) & (together.second < len(size))
    one, two = together.first[known], together.second[known]
    combinations = size[one] * size[two]
    measured = np.repeat(np.flatnonzero(known), combinations)
    within = np.arange(len(measured)) - np.repeat(np.cumsum(combinations) - combinations, combinations)
    left, right = together.first[measured], together.second[measured]
    a, b = order[start[left] + within // size[right]], order[start[right] + within % size[right]]
    fits = (gpus[a] == gpus[b]) & ((left != right) | (a <= b)) & ((a != b) | (count[a] > 1))
    fits &= (together.rate_first[measured] > 0) & (together.rate_second[measured] > 0)
    a, b, measured = a[fits], b[fits], measured[fits]
    return Pairs(
        a.astype(np.int64),
        b.astype(np.int64),
        together.way[measured],
        together.rate_first[measured],
        together.rate_second[measured],
    )
