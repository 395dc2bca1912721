"""The values of `providers.gcp`: names of regions, machine types and images, addresses. Functions raise ValueError."""

from __future__ import annotations

import re

from orchestrator.config.names import read_names
from orchestrator.config.values import BadSetting

_REGION = r"[a-z]+(-[a-z]+)+\d+"
_MACHINE_TYPE = r"[a-z]\w*-[a-z0-9]+(-[a-z0-9]+)*(\+[1-8]x[a-z]+(-[a-z0-9]+)+)?"
_IMAGE = r"projects/[a-z][a-z0-9.:-]+/global/images/(family/)?[a-z][a-z0-9-]*"
_PROJECT = r"([a-z0-9.]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]"


def read_regions(value: object) -> tuple[str, ...]:
    """Names of regions."""
    return read_names(value, _REGION, "regions")


def read_machine_types(value: object) -> tuple[str, ...]:
    """Names of machine types; N1 types may have attached GPUs."""
    return read_names(value, _MACHINE_TYPE, "machine types")


def read_image(value: object) -> str:
    """An image, or a family of images."""
    if isinstance(value, str) and re.fullmatch(_IMAGE, value):
        return value
    raise BadSetting('must be an image, such as "projects/PROJECT/global/images/family/NAME"')


def read_project(value: object) -> str:
    """The id of a project."""
    if isinstance(value, str) and re.fullmatch(_PROJECT, value):
        return value
    raise BadSetting('must be the id of a project, such as "my-project-1234"')


def read_address(value: object) -> str:
    """The address of an API."""
    if isinstance(value, str) and re.fullmatch(r"https?://[^/?#\s]+", value.rstrip("/")):
        return value.rstrip("/")
    raise BadSetting('must be an address, such as "https://compute-mine.p.googleapis.com"')
