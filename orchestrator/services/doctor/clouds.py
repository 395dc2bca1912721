"""Checks of an account's read permissions at a cloud."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from orchestrator.errors import ProviderFailure, UsageError
from orchestrator.services.views import Check, Diagnosis
from providers.collect.permissions import CLOUDS, cloud_access
from providers.errors import ProviderError


def examine_clouds(clouds: Sequence[str]) -> Diagnosis:
    """For each cloud, the account, its read permissions and missing policy lines. Calls the clouds.

    Raises UsageError for an unknown cloud, ProviderFailure if its library is not installed.
    """
    if unknown := [cloud for cloud in clouds if cloud not in CLOUDS]:
        raise UsageError(f"{unknown[0]} cannot be checked", hint=f"one of {', '.join(CLOUDS)}")
    return Diagnosis(tuple(check for cloud in dict.fromkeys(clouds) for check in _checks(cloud)))


def _checks(cloud: str) -> Iterator[Check]:
    try:
        found = cloud_access(cloud)
    except ProviderError as error:
        raise ProviderFailure(str(error), hint=error.hint) from error
    for each in found:
        failed: Literal["fail", "warn"] = "fail" if each.needed else "warn"
        yield Check(f"{cloud}: {each.what}", "ok" if each.works else failed, each.detail, each.remedy)
