"""The job file: YAML, or a mapping from Python, to a valid JobSpec. Must not know what becomes of the job."""

from orchestrator.jobfile.parse import job_from_mapping, load_job, parse_job
from orchestrator.jobfile.unsupported import NotYet, not_yet, refuse_not_yet

__all__ = ["NotYet", "job_from_mapping", "load_job", "not_yet", "parse_job", "refuse_not_yet"]
