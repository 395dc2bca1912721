"""The job file: converts YAML, or a mapping from Python, to a valid JobSpec."""

from orchestrator.jobfile.parse import job_from_mapping, load_job, parse_job, require_sayable
from orchestrator.jobfile.unsupported import UnsupportedField, refuse_unsupported_fields, unsupported_fields

__all__ = [
    "UnsupportedField",
    "job_from_mapping",
    "load_job",
    "parse_job",
    "refuse_unsupported_fields",
    "require_sayable",
    "unsupported_fields",
]
