"""Trial: runs some steps of a job on the submitter's machine before submission, so that its plan has a forecast.

It is a short profile with limited memory. A program that does not fit this machine, fails here or takes too long is
submitted anyway; only an error that would repeat on every machine prevents the submission.
"""

from __future__ import annotations

import importlib.util

from orchestrator.errors import SpecError, TradewindError
from orchestrator.installation import Installation
from orchestrator.model import JobSpec
from orchestrator.services.speed.entry_check import memory_limit_bytes
from orchestrator.services.speed.profile import ProgramFailed, profile
from orchestrator.services.views import PlanView, Trial
from trainers.profile import STEPS

TIMEOUT_S = 60.0  # wall seconds; on an idle machine torch loads in 5 s, and the steps of a small model take as long


def speed_unknown(plan: PlanView) -> bool:
    """True if the plan of a new job has no forecast because its speed is unknown."""
    new = {job.id for job in plan.new_jobs}
    placed = [each for each in plan.decisions if each.job_id in new and each.offer_id is not None]
    return any(each.evidence == "none" for each in placed)


def unfit(spec: JobSpec) -> str:
    """The reason why the job's program cannot be tried on this machine, according to its job file; empty if it can."""
    asked, free = spec.resources, memory_limit_bytes()
    needs = max(asked.memory_bytes or 0, asked.gpu_memory_bytes[0] if asked.gpu_memory_bytes is not None else 0)
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed here"
    if asked.nodes > 1 or any(gpu.count > 1 for gpu in asked.gpus):
        return "it needs several GPUs or machines"
    if (asked.processes or 1) > 1:
        return "it has several processes"
    if needs > free:
        return f"it needs {needs / 1e9:.0f} GB of memory; a trial may use {free / 1e9:.0f} GB"
    if spec.train.steps is not None and spec.train.steps < STEPS:
        return f"it has fewer than {STEPS} steps"
    return ""


def try_here(installation: Installation, spec: JobSpec, *, timeout_s: float = TIMEOUT_S) -> Trial:
    """Profiles the job if it fits this machine; `timeout_s` is in wall seconds. Raises SpecError for an error that
    would repeat on every machine, UsageError if a secret is missing in the environment."""
    if why := unfit(spec):
        return Trial(False, why)
    try:
        seen = profile(installation, spec, timeout_s=timeout_s, memory_bytes=memory_limit_bytes())
    except SpecError:
        raise
    except TradewindError as error:
        why = str(error).strip().splitlines()[-1]
        small = why.startswith("MemoryError")  # this machine may be smaller than the rented one
        return Trial(False, why, failed=isinstance(error, ProgramFailed) and not small)
    return Trial(True, "", seen.step_wall_s, seen.gpu_memory_bytes, seen.precision, seen.computes)
