"""A new bucket of each cloud on loopback, with one interface for tests that hold for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.clouds import blob, gcs, s3
from tests.clouds.server import Cloud, LoopbackServer

VARIABLES = ("AWS_", "GOOGLE_", "AZURE_")


@dataclass(frozen=True)
class Bucket:
    """`url` is that of the bucket; `environment` gives the variables of a client, `refused` those of one that the cloud
    denies everything; `ready` makes what tests of others may have removed."""

    cloud: Cloud
    url: str
    environment: Callable[[LoopbackServer], Mapping[str, str]]
    refused: Callable[[LoopbackServer], Mapping[str, str]]
    ready: Callable[[], None] = lambda: None


def _s3() -> Bucket:
    cloud = s3.S3()
    return Bucket(
        cloud,
        f"s3://{cloud.bucket}",
        s3.environment,
        lambda server: s3.environment(server, s3.REFUSED_KEY_ID),
        cloud.ensure_bucket,
    )


def _gcs() -> Bucket:
    cloud = gcs.Gcs()
    return Bucket(
        cloud,
        f"gs://{cloud.bucket}",
        gcs.environment,
        lambda server: gcs.environment(server, gcs.REFUSED_TOKEN),
    )


def _blob() -> Bucket:
    cloud = blob.Blob()
    return Bucket(
        cloud,
        f"az://{cloud.container}",
        lambda server: blob.environment(server, cloud.key),
        lambda server: blob.environment(server, blob.REFUSED_KEY),
    )


BUCKETS: Mapping[str, Callable[[], Bucket]] = {"s3": _s3, "gs": _gcs, "az": _blob}
"""By the scheme of their URLs."""
