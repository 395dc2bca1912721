"""Max-min fairness: the job that gets least, compared with what it is entitled to, gets as much as possible.

    max min_m  rate_m gpus_m / (weight_m proportional_m)

proportional_m is the job's rate if its time is shared in proportion to the cluster's GPUs. Source: Narayanan et al.,
"Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads" (Gavel), OSDI 2020, section 4.1 (LAS).
"""

from __future__ import annotations

from orchestrator.policy.groups.collection import Collection, problem_of
from orchestrator.policy.groups.entitlement import in_proportion
from orchestrator.policy.groups.needs import Proportional
from orchestrator.policy.groups.problem import Floats
from orchestrator.policy.groups.program import Program, Ratio


def units(jobs: Collection) -> Floats:
    """(jobs,): the rate, in steps/s, that counts as one share."""
    found: Floats = jobs.weight * in_proportion(jobs) / jobs.gpus
    return found


def max_min_fairness(jobs: Collection) -> Program:
    """The program of max-min fairness."""
    unit = units(jobs)
    problem, _ = problem_of(jobs, needing=unit)
    return Program(problem, (Ratio(Proportional(unit)),))
