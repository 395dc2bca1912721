"""The job file: YAML, or a mapping from Python, to a valid JobSpec. Must not know what becomes of the job."""

from orchestrator.services.jobfile.not_yet import NotYet, not_yet, refuse_not_yet
from orchestrator.services.jobfile.parse import job_from_mapping, load_job, parse_job

__all__ = ["NotYet", "job_from_mapping", "load_job", "not_yet", "parse_job", "refuse_not_yet"]
