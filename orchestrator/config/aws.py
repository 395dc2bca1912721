"""The values of `providers.aws`: names of regions, instance types and images. Functions raise ValueError."""

from __future__ import annotations

import re

from orchestrator.config.names import read_names
from orchestrator.config.values import BadSetting

_REGION = r"[a-z]{2}(-[a-z]+)+-\d"
_INSTANCE_TYPE = r"[a-z][a-z0-9-]*\.[a-z0-9-]+"
_IMAGE = r"ami-[0-9a-f]{8,17}|ssm:/?[\w.-]+(/[\w.-]+)*"


def read_regions(value: object) -> tuple[str, ...]:
    """Names of regions."""
    return read_names(value, _REGION, "regions")


def read_instance_types(value: object) -> tuple[str, ...]:
    """Names of instance types."""
    return read_names(value, _INSTANCE_TYPE, "instance types")


def read_image(value: object) -> str:
    """An AMI, or `ssm:` and the name of a parameter."""
    if isinstance(value, str) and re.fullmatch(_IMAGE, value):
        return value
    raise BadSetting('must be an AMI, such as "ami-0123456789abcdef0", or "ssm:" and the name of a parameter')
