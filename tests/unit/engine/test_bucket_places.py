"""In which region a bucket is, of which the store does not say it."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.config import load_config
from orchestrator.engine.inputs.bucket_places import bucket_place, bucket_region

HERE = {"AWS_REGION": "eu-west-1"}


@pytest.mark.parametrize(
    ("store", "declared", "asked", "environ", "region"),
    [
        ("s3://a-bucket/tw", None, "s3://a-bucket/tw", HERE, "eu-west-1"),
        ("s3://a-bucket/tw", None, "s3://another/ck", HERE, "eu-west-1"),
        ("s3://a-bucket/tw", None, "s3://a-bucket/tw", {}, "us-east-1"),
        ("s3://a-bucket/tw", None, "s3://a-bucket/tw", {**HERE, "AWS_ENDPOINT_URL": "https://minio.lan"}, None),
        ("s3://a-bucket/tw", "eu-1", "s3://a-bucket/tw", {"AWS_ENDPOINT_URL": "https://minio.lan"}, "eu-1"),
        (
            "s3://a-bucket/tw",
            None,
            "s3://a-bucket/tw",
            {**HERE, "AWS_ENDPOINT_URL_S3": "https://s3.dualstack.eu-west-1.amazonaws.com"},
            "eu-west-1",
        ),
        ("s3://a-bucket/tw", "eu-north-1", "s3://a-bucket/tw", HERE, "eu-north-1"),
        ("gs://a-bucket/tw", None, "gs://a-bucket/tw", {}, ""),
        ("gs://a-bucket/tw", "europe-west4", "gs://a-bucket/tw", {}, "europe-west4"),
        ("gs://a-bucket/tw", "europe-west4", "gs://another/ck", {}, ""),
        ("az://container/tw", "westeurope", "az://another/ck", {}, "westeurope"),
        ("az://container/tw", "westeurope", "s3://a-bucket/ck", HERE, "eu-west-1"),
        ("gs://a-bucket/tw", "europe-west4", "/data/ck", HERE, ""),
        ("/data/tw", "europe-west4", "gs://a-bucket/ck", HERE, ""),
        ("gs://a-bucket/tw", None, "s3://NOT A BUCKET", HERE, ""),
    ],
)
def test_the_region_of_a_bucket(
    tmp_path: Path, store: str, declared: str | None, asked: str, environ: dict[str, str], region: str | None
) -> None:
    settings = {"state_dir": str(tmp_path), "store_root": store}
    config = load_config(settings | ({} if declared is None else {"store_region": declared}), environ={}, cwd=tmp_path)
    assert bucket_region(config, asked, environ) == region


def test_a_folder_is_in_no_cloud(tmp_path: Path) -> None:
    config = load_config({"state_dir": str(tmp_path), "store_root": "gs://a-bucket/tw"}, environ={}, cwd=tmp_path)
    assert bucket_place(config, "/data") is None
    assert bucket_place(config, "gs://a-bucket/tw") == ("gcp", "")
