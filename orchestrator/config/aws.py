"""The values of `providers.aws`: names of regions, instance types and images. Functions raise ValueError."""

from __future__ import annotations

import re

_REGION = r"[a-z]{2}(-[a-z]+)+-\d"
_INSTANCE_TYPE = r"[a-z][a-z0-9-]*\.[a-z0-9-]+"
_IMAGE = r"ami-[0-9a-f]{8,17}|ssm:/?[\w.-]+(/[\w.-]+)*"


def read_regions(value: object) -> tuple[str, ...]:
    """Names of regions."""
    return _names(value, _REGION, "regions")


def read_instance_types(value: object) -> tuple[str, ...]:
    """Names of instance types."""
    return _names(value, _INSTANCE_TYPE, "instance types")


def read_image(value: object) -> str:
    """An AMI, or `ssm:` and the name of a parameter."""
    if isinstance(value, str) and re.fullmatch(_IMAGE, value):
        return value
    raise ValueError('must be an AMI, such as "ami-0123456789abcdef0", or "ssm:" and the name of a parameter')


def _names(value: object, form: str, what: str) -> tuple[str, ...]:
    """A list of names of one form, or text with commas between them."""
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not items or not all(isinstance(item, str) for item in items):
        raise ValueError(f"must be a list of {what}")
    names = tuple(dict.fromkeys(item.strip() for item in items))
    if wrong := [name for name in names if not re.fullmatch(form, name)]:
        raise ValueError(f"must be a list of {what}; {wrong[0]!r} is none")
    return names
