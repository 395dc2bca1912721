"""A collection of jobs and the supply that they share: what every policy starts from.

A *way* is one kind of GPU, or one offer of the market. Supply is a fixed cluster (so many GPUs of each way), or an
elastic market (prices; no limit, or quotas), or both.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from orchestrator.errors import InfeasibleError
from orchestrator.policy.groups.problem import Floats, Integers, Limits, Pairs, Problem, alike


@dataclass(frozen=True, slots=True)
class Supply:
    """`gpus` (ways,): how many there are, infinite where nothing limits them; `usd_per_h` (ways,): price of one."""

    gpus: Floats
    usd_per_h: Floats


@dataclass(frozen=True, slots=True)
class Quota:
    """At most `most` GPUs over the ways in `ways`, for all jobs together.

    `each`: as `ways`, how many units of the quota one GPU of a way takes; None: one.
    """

    name: str
    ways: Integers
    most: float
    each: Floats | None = None


@dataclass(frozen=True, slots=True)
class Budgets:
    """At most `usd_per_h` (budgets,) for the jobs that `of` (jobs,) assigns to each; -1: none."""

    names: tuple[str, ...]
    usd_per_h: Floats
    of: Integers


@dataclass(frozen=True, slots=True)
class Together:
    """Measured space sharing: a job of kind `first` and one of kind `second`, both on the GPUs of one, in way `way`.

    All (measurements,); each combination once; rates in steps/s. Only jobs of equal size share.
    """

    first: Integers
    second: Integers
    way: Integers
    rate_first: Floats
    rate_second: Floats


@dataclass(frozen=True, slots=True)
class Collection:
    """Jobs, one row each, and their supply.

    `rate` (jobs, ways): steps/s, 0 where a job cannot run; `gpus` (jobs,): how many it takes at once; `steps` (jobs,):
    left; `weight` (jobs,): how much of an even share it is entitled to; `age_s` (jobs,): since it arrived;
    `alone_s` (jobs,): how long what it has done would have taken with an equal part of everything; `deadline_s`
    (jobs,):
    from now, infinite for none; `kind` (jobs,): for `together`; `start_s` (jobs, ways): how long the job's next start
    takes in a way, 0 where it need not start; None: starts are not counted.
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

    def __len__(self) -> int:
        return len(self.rate)

    @property
    def usd_per_h(self) -> Floats:
        """(jobs, ways): what a job costs while it runs so."""
        found: Floats = self.gpus[:, None] * self.supply.usd_per_h
        return found

    @property
    def usd_per_h_started(self) -> Floats:
        """(jobs, ways): the same with the cost of the start there, spread over the time that all the job's steps take
        there. So a job pays for one start in all: in each of its ways for a part, as large as that of its steps there.
        """
        if self.start_s is None:
            return self.usd_per_h
        with np.errstate(divide="ignore", invalid="ignore"):
            per_work = np.where(self.steps[:, None] > 0, self.start_s * self.rate / self.steps[:, None], 0.0)
        found: Floats = self.usd_per_h * (1 + per_work)
        return found

    def agnostic(self) -> Collection:
        """The same as a policy sees it that does not know how differently models run: every way in which a job can run
        is as fast as the first of them. A step is what it does there in a second."""
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
    """A collection; what is left out: one GPU, one step, weight 1, age 0, no deadline.

    Raises InfeasibleError for a job that no way can run, and ValueError for weights that are not positive.
    """
    jobs = len(rate)
    weight = np.ones(jobs) if weight is None else weight
    if not (weight > 0).all():
        raise ValueError(f"the weight of job {int(np.argmin(weight))} is not positive")
    nowhere = np.flatnonzero(~(rate > 0).any(axis=1))
    if len(nowhere):
        raise InfeasibleError(
            f"no throughput is known for job {nowhere[0]}, on any offer", hint="measure it, or state its throughput"
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

    Jobs with different values of `apart` (jobs,) are in different classes. So are, with space sharing, those that
    differ in `needing` (jobs,) or (jobs, any): there, the jobs of a class must need the same. `usd_per_h` (jobs, ways):
    what jobs cost, if not only while they run; jobs that differ in it are in different classes, too.
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
    """The pairs of classes, from those of kinds: classes of equal size, and two of one class only if it has two
    jobs."""
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
