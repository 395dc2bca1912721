"""The group file: jobs that are planned together, inline or in their own files, and sweeps over a matrix of values."""

from orchestrator.jobfile.group.parse import is_group_file, load_group, parse_group

__all__ = ["is_group_file", "load_group", "parse_group"]
