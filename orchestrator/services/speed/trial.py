"""Trial: some steps of a job on the submitter's own machine before it is handed over, so that its plan has a forecast.

It is a profile with little time and memory, and no condition: a program that does not fit this machine, fails here or
takes too long is submitted all the same. Only what would fail alike on any machine is an error.
"""

from __future__ import annotations

import importlib.util

from orchestrator.errors import SpecError, TradewindError
from orchestrator.installation import Installation
from orchestrator.model import JobSpec
from orchestrator.services.speed.entry_check import memory_limit_bytes
from orchestrator.services.speed.profile import profile
from orchestrator.services.views import PlanView, Trial
from trainers.profile import STEPS

TIMEOUT_S = 60.0  # wall: on an idle machine torch takes 5 s to load, the steps of a small model another


def speed_unknown(plan: PlanView) -> bool:
    """Whether the plan of a new job can promise nothing, for want of its speed."""
    new = {job.id for job in plan.new_jobs}
    placed = [each for each in plan.decisions if each.job_id in new and each.offer_id is not None]
    return any(each.evidence == "none" for each in placed)


def unfit(spec: JobSpec) -> str:
    """Why the job's program cannot be tried on this machine, as far as its job file tells; empty: it may."""
    asked, free = spec.resources, memory_limit_bytes()
    needs = max(asked.memory_bytes or 0, asked.gpu_memory_bytes[0] if asked.gpu_memory_bytes is not None else 0)
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed here"
    if asked.nodes > 1 or any(gpu.count > 1 for gpu in asked.gpus):
        return "it needs several GPUs or machines"
    if needs > free:
        return f"it asks for {needs / 1e9:.0f} GB of memory, and a trial may take {free / 1e9:.0f} GB"
    if spec.train.steps is not None and spec.train.steps < STEPS:
        return f"it has fewer than {STEPS} steps"
    return ""


def try_here(installation: Installation, spec: JobSpec, *, timeout_s: float = TIMEOUT_S) -> Trial:
    """Profile the job if it fits. Raises SpecError for what would fail alike on any machine, and UsageError when a
    secret is not in the environment."""
    if why := unfit(spec):
        return Trial(False, why)
    try:
        seen = profile(installation, spec, timeout_s=timeout_s, memory_bytes=memory_limit_bytes())
    except SpecError:
        raise
    except TradewindError as error:
        return Trial(False, str(error).strip().splitlines()[-1])
    return Trial(True, "", seen.step_wall_s, seen.gpu_memory_bytes, seen.precision, seen.computes)
