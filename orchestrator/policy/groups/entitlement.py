"""What a job is entitled to: its rate with an equal part of everything. Fairness policies compare rates with it."""

from __future__ import annotations

import numpy as np

from orchestrator.errors import InfeasibleError
from orchestrator.policy.groups.collection import Collection
from orchestrator.policy.groups.problem import Floats


def in_proportion(jobs: Collection) -> Floats:
    """(jobs,): steps/s if all of a job's time went to the ways in proportion to their numbers of GPUs, regardless of
    the other jobs (Gavel, Narayanan et al., OSDI 2020, section 4.1)."""
    gpus = _limited(jobs)
    return np.asarray(jobs.rate @ (gpus / gpus.sum()))


def alone(jobs: Collection) -> Floats:
    """(jobs,): steps/s with 1/n of each way's GPUs, n being the number of jobs: the isolated share.

    A job that needs several GPUs has correspondingly less of the time. No job has more than all of the time.
    """
    part = _limited(jobs)[None] / (len(jobs) * jobs.gpus[:, None])
    part = part / np.maximum(part.sum(axis=1), 1)[:, None]
    return np.asarray((jobs.rate * part).sum(axis=1))


def _limited(jobs: Collection) -> Floats:
    gpus = jobs.supply.gpus
    if not np.isfinite(gpus).all() or not gpus.sum() > 0:
        raise InfeasibleError(
            "a fairness policy needs a limited supply: with an unlimited supply, each job can have all that it wants",
            hint="set the number of GPUs of each kind, or choose a policy that minimizes cost",
        )
    return gpus
