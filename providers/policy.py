"""Policy: the calls that a cloud's provider makes, and the least permissions derived from them.

Each cloud lists its calls once, in `providers/NAME/calls.py`, which does not need the cloud's library. `tradewind
doctor --policy` prints the policy generated from that list.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, cast

from providers.errors import NotFoundError


class Use(StrEnum):
    """The purpose of a call."""

    PRICES = "prices"
    MACHINES = "machines"
    NETWORKS = "networks"
    BUCKET = "bucket"
    STORE = "store"


@dataclass(frozen=True, slots=True)
class Call:
    """One permission in the cloud's own terms, such as `ec2:RunInstances`, and what it is needed for."""

    permission: str
    use: Use


@dataclass(frozen=True, slots=True)
class Store:
    """The bucket that holds orders, reports and checkpoints. `role` is the role whose rights machines get; None: those
    of the control plane's user."""

    bucket: str
    prefix: str
    role: str | None = None


@dataclass(frozen=True, slots=True)
class PolicyDocument:
    """A policy in the form that the cloud's tools accept. `apply` is the command for it."""

    text: str
    format: Literal["json", "yaml"]
    apply: str


POLICIES = {name: f"providers.{name}.calls" for name in ("aws", "gcp", "azure")}


def cloud_policy(cloud: str, uses: Collection[Use], store: Store | None = None) -> PolicyDocument:
    """The least policy for these uses. Use.BUCKET and Use.STORE are left out without `store`. Sends nothing. Raises
    NotFoundError."""
    if cloud not in POLICIES:
        raise NotFoundError(f"there is no cloud named {cloud!r}", hint=f"known: {', '.join(POLICIES)}")
    return cast("PolicyDocument", importlib.import_module(POLICIES[cloud]).policy(uses, store))


def permissions(calls: Iterable[Call], *uses: Use) -> list[str]:
    """The permissions for these uses, in order and without repetitions."""
    return list(dict.fromkeys(call.permission for call in calls if call.use in uses))
