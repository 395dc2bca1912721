"""Bucket places: the cloud and region of the buckets that keep checkpoints.

A client of S3 reaches only buckets of its own region, AWS_REGION; all containers of an Azure account are in one region.
Otherwise the region is the one declared for `store_root` (`store_region`), or not known.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from orchestrator.config import Config
from orchestrator.market import OWN_STORE, Location
from orchestrator.nodes.access.signing import region_of
from orchestrator.policy.ranking.routes import location_of
from trainers.errors import StoreNotFound
from trainers.objects.services import BLOB, GCS, S3, place_of


def bucket_region(config: Config, root: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """The region of the bucket of a URL; "" if it is not known, or this is a folder. None: the store has an address of
    its own (MinIO, Ceph) and `store_region` names no AWS region for it, so fetching from it is assumed to cost
    nothing."""
    if "://" not in root:
        return ""
    try:
        place = place_of(root)
        if config.store_region and "://" in str(config.store_root):
            shared = place_of(str(config.store_root))
            if shared.service is place.service and (shared.bucket == place.bucket or place.service is not GCS):
                return config.store_region
    except StoreNotFound:
        return ""
    if place.service is not S3:
        return ""
    return region_of(environ) if S3.at_its_cloud(environ) else None


def bucket_place(config: Config, root: str) -> Location | None:
    """The cloud and region ("": unknown) of the bucket of a URL; None for a folder."""
    return location_of(root, bucket_region(config, root))


def bucket_cloud(config: Config, root: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """The cloud of the bucket of a URL; None for a folder, and for a store with an address of its own. Raises
    StoreNotFound."""
    where = location_of(root, bucket_region(config, root, environ))
    if where is None or where == OWN_STORE:
        return None
    service = place_of(root).service
    return None if service is BLOB and not service.at_its_cloud(environ) else where[0]
