"""The bucket of `store_root`: `up --cloud` of its cloud creates it, `down --cloud` removes it if it is empty."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from orchestrator.config import Config
from orchestrator.engine.inputs.bucket_places import bucket_cloud
from orchestrator.errors import UsageError
from orchestrator.installation import Installation
from orchestrator.nodes.access.signing import region_of
from providers.base import MakesBuckets
from providers.bucket import Bucket
from trainers.objects.services import ACCOUNT, BLOB, S3, Place, place_of

_S3_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")


@dataclass(frozen=True, slots=True)
class StoreBucket:
    """The bucket of an installation at the provider that creates it. `name` as in MakesBuckets; `region` is where it is
    created if it does not exist."""

    provider: MakesBuckets
    install: str
    name: str
    region: str
    looked_for_in: str
    """The only region in which clients look for it; "" if they find it in any region."""

    def found(self) -> Bucket | None:
        """The bucket if it exists. Raises ProviderError."""
        return self.provider.bucket(self.install, self.name)

    def make(self, progress: Callable[[str], None]) -> None:
        """As in MakesBuckets; also reports the setting that clients need to find it. Raises ProviderError."""
        self.provider.make_bucket(self.install, self.name, self.region, progress)
        if self.looked_for_in and (bucket := self.found()) is not None and bucket.region != self.looked_for_in:
            progress(f"set AWS_REGION={bucket.region}: S3 clients look for the bucket in that region only")

    def remove(self, progress: Callable[[str], None]) -> None:
        """As in MakesBuckets. Raises ProviderError."""
        self.provider.remove_bucket(self.install, self.name, progress)


def store_bucket(installation: Installation, cloud: str, environ: Mapping[str, str] = os.environ) -> StoreBucket | None:
    """The bucket of `store_root`, if it belongs to this cloud; None if it is a folder, a bucket of another cloud, or a
    bucket of a store with a custom endpoint. Raises UsageError if the storage account of a container is not set."""
    config, provider = installation.config, installation.providers[cloud]
    root = str(config.store_root)
    if bucket_cloud(config, root, environ) != cloud or not isinstance(provider, MakesBuckets):
        return None
    place = place_of(root)
    region = _region(config, cloud, place, environ)
    looked_for_in = region_of(environ) if place.service is S3 else ""
    return StoreBucket(provider, installation.store.install_id, _name(place, environ), region, looked_for_in)


def _region(config: Config, cloud: str, place: Place, environ: Mapping[str, str]) -> str:
    """The configured region (for S3 also from AWS's own variables), else the first region in which machines are
    rented."""
    named = next(filter(None, map(environ.get, _S3_REGIONS)), None) if place.service is S3 else None
    first: str = getattr(config.providers, cloud).regions[0]
    return config.store_region or named or first


def _name(place: Place, environ: Mapping[str, str]) -> str:
    if place.service is not BLOB:
        return place.bucket
    if account := environ.get(ACCOUNT):
        return f"{account}/{place.bucket}"
    raise UsageError(f"the storage account of the container {place.url} is not known", hint=f"set {ACCOUNT}")
