"""Bucket places: in which cloud and region the buckets are that keep checkpoints.

A client of S3 reaches only buckets of its own region, AWS_REGION; all containers of an Azure account are in one region.
Else the region is what `store_root` is declared with (`store_region`), or not known.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from orchestrator.config import Config
from orchestrator.market import Location
from orchestrator.nodes.access.signing import region_of
from orchestrator.policy.ranking.routes import location_of
from trainers.errors import StoreNotFound
from trainers.objects.services import GCS, S3, place_of

_OF_AWS = (".amazonaws.com", ".amazonaws.com.cn")


def bucket_region(config: Config, root: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """The region of the bucket of a URL; "" if it is not known, or this is a folder. None: the store has an address of
    its own (MinIO, Ceph), and `store_region` does not say in which region of AWS it is, so that nobody is known to bill
    what is fetched from it."""
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
    endpoint = next(filter(None, map(environ.get, S3.endpoints)), "")
    host = urlsplit(endpoint).hostname or ""
    return None if endpoint and not host.endswith(_OF_AWS) else region_of(environ)


def bucket_place(config: Config, root: str) -> Location | None:
    """The cloud and region ("": unknown) of the bucket of a URL; None for a folder."""
    return location_of(root, bucket_region(config, root))
