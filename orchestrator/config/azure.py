"""The values of `providers.azure`: names of regions, sizes, images and a resource group. Functions raise ValueError."""

from __future__ import annotations

import re

from orchestrator.config.names import read_names
from orchestrator.config.values import BadSetting

_REGION = r"[a-z][a-z0-9]+"
_SIZE = r"Standard_[A-Za-z0-9_-]+"
_PART = r"[A-Za-z0-9_.-]+"
_IMAGE = rf"{_PART}:{_PART}:{_PART}:(latest|\d+(\.\d+)*)|/subscriptions/[^\s?#]+"
_GROUP = r"[\w.()-]{0,89}[\w()-]"


def read_regions(value: object) -> tuple[str, ...]:
    """Names of regions."""
    return read_names(value, _REGION, "regions")


def read_instance_types(value: object) -> tuple[str, ...]:
    """Names of sizes."""
    return read_names(value, _SIZE, "sizes")


def read_image(value: object) -> str:
    """An image of the marketplace, or the id of an image."""
    if isinstance(value, str) and re.fullmatch(_IMAGE, value):
        return value
    raise BadSetting('must be publisher:offer:sku:version, such as "microsoft-dsvm:ubuntu-hpc:2404:latest", or an id')


def read_group(value: object) -> str:
    """The name of a resource group."""
    if isinstance(value, str) and re.fullmatch(_GROUP, value):
        return value
    raise ValueError("must be the name of a resource group")


def read_subscription(value: object) -> str:
    """The id of a subscription."""
    if isinstance(value, str) and re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", value, re.IGNORECASE):
        return value.lower()
    raise BadSetting('must be the id of a subscription, such as "11111111-2222-3333-4444-555555555555"')


def read_management(value: object) -> str:
    """The address of Azure Resource Manager: encrypted, because a token is sent there."""
    if isinstance(value, str) and re.fullmatch(r"https://[^\s/?#]+/?", value):
        return value.rstrip("/")
    raise BadSetting('must be an address, such as "https://management.chinacloudapi.cn"')


def read_prices(value: object) -> str:
    """The address of a price list."""
    if isinstance(value, str) and re.fullmatch(r"https?://[^\s?#]+", value):
        return value
    raise BadSetting('must be an address, such as "https://prices.azure.cn/api/retail/prices"')
