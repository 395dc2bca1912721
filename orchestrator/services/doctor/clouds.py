"""Checks of an account's permissions at a cloud, and the policy that grants them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from orchestrator.config import Config
from orchestrator.engine.inputs.bucket_places import bucket_cloud
from orchestrator.errors import ProviderFailure, UsageError, one_of
from orchestrator.installation import cloud_settings
from orchestrator.services.views import Check, CloudPolicy, Diagnosis
from providers.collect.permissions import CLOUDS, cloud_access
from providers.errors import ProviderError
from providers.policy import Store, Use, cloud_policy
from trainers.errors import StoreNotFound
from trainers.objects.services import place_of


def examine_clouds(clouds: Sequence[str], config: Config) -> Diagnosis:
    """For each cloud, the account, its permissions and missing policy lines; also those for renting, if the cloud is
    enabled. Calls the clouds.

    Raises UsageError for an unknown cloud, ProviderFailure if its library is not installed.
    """
    for cloud in clouds:
        _require_known(cloud)
    return Diagnosis(tuple(check for cloud in dict.fromkeys(clouds) for check in account(cloud, config)))


def account(cloud: str, config: Config) -> Iterator[Check]:
    """The checks of one cloud. Raises ProviderFailure if its library is not installed."""
    try:
        found = cloud_access(cloud, cloud_settings(cloud, config) if cloud in config.providers.enabled else None)
    except ProviderError as error:
        raise ProviderFailure(str(error), hint=error.hint) from error
    for each in found:
        failed: Literal["fail", "warn"] = "fail" if each.needed else "warn"
        yield Check(f"{cloud}: {each.what}", "ok" if each.works else failed, each.detail, each.remedy)


def policy(cloud: str, config: Config, *, prices_only: bool = False) -> CloudPolicy:
    """The minimal policy for everything that Tradewind does at a cloud, or only for reading prices. Works offline.
    Raises UsageError for an unknown cloud."""
    _require_known(cloud)
    made = cloud_policy(cloud, [Use.PRICES] if prices_only else list(Use), _store(cloud, config))
    return CloudPolicy(cloud, made.format, made.text, made.apply)


def _store(cloud: str, config: Config) -> Store | None:
    """The bucket of `store_root` at this cloud; None if it is a folder, of another cloud, or of a store with a custom
    endpoint."""
    root = str(config.store_root)
    try:
        if bucket_cloud(config, root) != cloud:
            return None
        place = place_of(root)
    except StoreNotFound:
        return None
    return Store(place.bucket, place.prefix, config.machines.role)


def _require_known(cloud: str) -> None:
    if cloud not in CLOUDS:
        raise UsageError(f"{cloud} cannot be checked", hint=one_of(cloud, CLOUDS))
