"""Whether a bucket is at its cloud or at another store with the same protocol, and what makes it there."""

from __future__ import annotations

import pytest

from trainers.objects.refusals import named
from trainers.objects.services import BLOB, S3, SERVICES, Service, place_of

MISSING = {"s3": "NoSuchBucket", "gs": "NoSuchBucket", "az": "ContainerNotFound"}


@pytest.mark.parametrize(
    ("service", "endpoint", "at_its_cloud"),
    [
        (S3, "", True),
        (S3, "https://s3.dualstack.eu-west-1.amazonaws.com", True),
        (S3, "https://s3.cn-north-1.amazonaws.com.cn", True),
        (S3, "https://amazonaws.com.example.org", False),
        (S3, "minio:9000", False),
        (SERVICES["gs"], "https://storage-internal.p.googleapis.com", True),
        (BLOB, "", True),
        (BLOB, "https://myaccount.blob.core.windows.net", True),
        (BLOB, "https://other.blob.core.windows.net", False),
        (BLOB, "http://127.0.0.1:10000/myaccount", False),
    ],
)
def test_an_endpoint_is_one_of_the_cloud_or_of_another_store(
    service: Service, endpoint: str, at_its_cloud: bool
) -> None:
    environ = {service.endpoints[-1]: endpoint, "AZURE_STORAGE_ACCOUNT_NAME": "myaccount"}
    assert service.at_its_cloud(environ) is at_its_cloud


@pytest.mark.parametrize("scheme", MISSING)
def test_a_missing_bucket_is_made_by_our_command_at_its_cloud_and_by_the_stores_own_elsewhere(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = place_of(f"{scheme}://my-bucket/tw")
    refused = Exception(f"status code: 404 <Code>{MISSING[scheme]}</Code>")
    for name in place.service.endpoints:
        monkeypatch.delenv(name, raising=False)
    hint = getattr(named(refused, place), "hint", "")
    assert (
        f"create it: tradewind up --cloud {place.service.cloud} if it is the bucket of store_root, otherwise: " in hint
    )
    assert hint.endswith(place.service.make.replace("BUCKET", "my-bucket"))
    monkeypatch.setenv(place.service.endpoints[0], "https://store.example.org")
    assert ("up --cloud" in getattr(named(refused, place), "hint", "")) is (scheme == "gs")


@pytest.mark.parametrize(
    ("scheme", "asks", "login"),
    [
        ("s3", "http://169.254.169.254/latest/api/token", 'eval "$(aws configure export-credentials --format env)"'),
        ("gs", "http://169.254.169.254/computeMetadata/v1/", "gcloud auth application-default login"),
        ("az", "http://169.254.169.254/metadata/identity/", "az login"),
    ],
)
def test_missing_credentials_of_a_bucket_name_the_command_that_gives_them(scheme: str, asks: str, login: str) -> None:
    error = named(Exception(f"error sending request for url ({asks})"), place_of(f"{scheme}://my-bucket/tw"))
    assert str(error).startswith(f"{scheme}://my-bucket/tw: there are no credentials, and this machine has no role")
    assert login in error.hint
