"""Sends the secrets of jobs from the submitter's environment to the control plane."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from orchestrator.engine.secret_values import Given
from orchestrator.errors import SiteError, UsageError
from orchestrator.installation import Installation
from orchestrator.model import TERMINAL, Job, JobSpec
from orchestrator.services.control_plane.presence import control_plane
from orchestrator.services.secrets.socket import PATIENCE_S, hand_over
from orchestrator.services.views import Accepted


def require_secrets(spec: JobSpec, environment: Mapping[str, str] = os.environ) -> None:
    """Raises UsageError if a secret of the job is missing in the environment, or empty: many CI systems set an unknown
    secret to an empty string."""
    if missing := missing_secrets([spec], environment):
        raise UsageError(
            f"{spec.name} needs secrets that are missing or empty in the environment: {', '.join(missing)}",
            hint=f"export {' '.join(f'{name}=...' for name in missing)} and try again",
        )


def missing_secrets(specs: Iterable[JobSpec], environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The secrets of the jobs that are missing or empty in the environment, each once."""
    names = dict.fromkeys(name for spec in specs for name in spec.train.secrets)
    return tuple(name for name in names if not environment.get(name))


def from_environment(jobs: Iterable[Job], environment: Mapping[str, str] = os.environ) -> Given:
    """The jobs' secrets that are in the environment, by job id; jobs without secrets are omitted."""
    return {
        job.id: {name: environment[name] for name in job.spec.train.secrets if environment.get(name)}
        for job in jobs
        if job.spec.train.secrets
    }


def give(installation: Installation, ref: str) -> Accepted:
    """Sends a job's secrets from the environment of this process to the control plane of this host.

    Raises NotFoundError; UsageError if one is missing in the environment or the job needs none; SiteError if no control
    plane accepts them.
    """
    with installation.store.read() as tx:
        job = tx.find_job(ref)
        name = tx.typed_name(job.id, job.name)
    if not job.spec.train.secrets or job.state in TERMINAL:
        why = f"it is {job.state}" if job.state in TERMINAL else "its job file names none (train.secrets)"
        raise UsageError(f"{job.name} needs no secrets: {why}", hint=f"see: tradewind status {name}")
    require_secrets(job.spec)
    running = control_plane(installation, watch=True)
    if not hand_over(
        installation.state_dir, from_environment([job]), patience_s=PATIENCE_S if running.running else 0.0
    ):
        where = f"it runs on {running.host}: give them there" if running.running else "start it: tradewind up"
        raise SiteError("no control plane of this state folder is running here", hint=where)
    names = ", ".join(job.spec.train.secrets)
    return Accepted(
        "secrets give", (job.id,), f"{job.name}: the control plane has received {names}", control_plane=True
    )
